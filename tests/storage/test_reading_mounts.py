"""Every kind of mount: it opens, every byte is right, and libst says what it found and did."""

import errno
import mmap
import os

import pytest
import st_abi
from clients import lacking
from mounts import KINDS, NEEDS, Model, Mounts

MODEL = Model()
MAPS = {"auto": 0, "shared": 1, "private": 2, "none": 3}


@pytest.fixture(scope="module", params=KINDS)
def mounted(request, module_scratch, programs):
    why_not = lacking(*NEEDS.get(request.param, ()))
    if why_not:
        pytest.skip(why_not)
    with Mounts(module_scratch, programs, MODEL) as mounts:
        yield mounts.make(request.param)


def read_all(f, how):
    """Every tensor by one of the ways that there are."""
    if how == "views":
        return {name: f.view(name) for name in f.names()}
    if how == "reads":
        return {name: f.read(name) for name in f.names()}
    if how == "read_many":
        return f.read_many()
    getattr(f, how)()  # prefetch or load: the views then show it
    return {name: f.view(name) for name in f.names()}


@pytest.mark.parametrize("map", MAPS)
@pytest.mark.parametrize("how", ["views", "reads", "read_many", "prefetch", "load"])
def test_bytes_are_those_of_the_file(how, map, mounted):
    with st_abi.File(mounted.path, writable=False, map=MAPS[map]) as f:
        assert sorted(f.names()) == sorted(MODEL.sizes)
        for name, seen in read_all(f, how).items():
            assert seen == MODEL.bytes_of(name), name


def map_plainly(path, flags):
    fd = os.open(path, os.O_RDONLY)
    try:
        with mmap.mmap(fd, 0, flags, mmap.PROT_READ) as m:
            return m[: len(MODEL.content())]
    finally:
        os.close(fd)


def test_plain_mapping_does_what_the_case_is_about(mounted):
    """Otherwise the next test would show nothing."""
    assert map_plainly(mounted.path, mmap.MAP_PRIVATE) == MODEL.content()
    if mounted.is_shareable:
        assert map_plainly(mounted.path, mmap.MAP_SHARED) == MODEL.content()
    else:
        with pytest.raises(OSError) as e:
            map_plainly(mounted.path, mmap.MAP_SHARED)
        assert e.value.errno == errno.ENODEV


def test_verdict_and_mapping(mounted):
    with st_abi.File(mounted.path, writable=False) as f:
        info = f.io_info()
        assert st_abi.STORAGE[info.storage] == mounted.storage
        assert mounted.filesystem in info.filesystem.decode()
        assert info.map == mounted.map
        assert info.reason
        assert info.file_size == MODEL.size
        assert info.data_offset == MODEL.data_offset


def test_shared_mapping_that_is_refused_becomes_private_and_the_reason_says_so(mounted):
    with st_abi.File(mounted.path, writable=False, map=st_abi.MAP_SHARED) as f:
        info = f.io_info()
        if mounted.is_shareable:
            assert (info.map, info.map_fallbacks) == (st_abi.MAP_SHARED, 0)
        else:
            assert (info.map, info.map_fallbacks) == (st_abi.MAP_PRIVATE, 1)
            assert "private" in info.reason.decode() or "shared" in info.reason.decode()
            assert f.stats().map_fallbacks == 1
            assert f.log, "the fallback was not told"
