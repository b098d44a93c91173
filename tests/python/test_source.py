"""A safetensors file in a Python file object, or behind a function."""

import errno
import gc
import io
import itertools
import os
import pathlib
import pickle
import signal
import threading
import weakref
import zipfile

import libst
import numpy as np
import pytest
from conftest import TENSORS, refused


class Held:
    """The function of a source, which notes what is asked of it."""

    def __init__(self, data):
        self.data = data
        self.asked = []
        self.raises = None

    def __call__(self, offset, buffer):
        self.asked.append((offset, len(buffer), threading.get_ident()))
        if self.raises is not None:
            raise self.raises
        buffer[:] = self.data[offset : offset + len(buffer)]


@pytest.fixture
def held(model):
    return Held(model.read_bytes())


@pytest.fixture
def large():
    arrays = {f"t{i}": np.random.default_rng(i).random((100, 1000), np.float32) for i in range(10)}
    from safetensors.numpy import save

    return arrays, Held(save(arrays))


def same(got):
    return got.keys() == TENSORS.keys() and all(np.array_equal(got[name], TENSORS[name]) for name in TENSORS)


def test_a_member_of_an_archive(model, tmp_path):
    with zipfile.ZipFile(tmp_path / "models.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(model, "inside.safetensors")
    with zipfile.ZipFile(tmp_path / "models.zip") as archive, archive.open("inside.safetensors") as member:
        with libst.open_source(member) as f:
            assert same({name: f[name] for name in f})
            assert same(f.read_many(list(f)))
            assert np.array_equal(f.slice("w")[1:], TENSORS["w"][1:])
            assert f.path is None and f.shards == () and f.mode == "r"
            assert f.io_info().mapping == "none"
        assert same(libst.load(member))
        assert not member.closed


@pytest.mark.parametrize(
    "kind", [lambda p: open(p, "rb"), lambda p: open(p, "rb", 0), lambda p: io.BytesIO(p.read_bytes())]
)
def test_any_binary_file_object(model, kind):
    with kind(model) as file, libst.open_source(file) as f:
        assert same(dict(f))


@pytest.mark.parametrize("url", ["{}", "simplecache::file://{}", "zip://inside.safetensors::{}.zip"])
def test_what_fsspec_opens(model, tmp_path, url):
    with zipfile.ZipFile(f"{model}.zip", "w") as archive:
        archive.write(model, "inside.safetensors")
    caches = {"simplecache": {"cache_storage": str(tmp_path / "cache")}} if "cache" in url else {}
    with pytest.importorskip("fsspec").open(url.format(model), **caches) as file:
        with libst.open_source(file) as f:
            assert same(dict(f))
        assert same(libst.load(file))


def test_what_fsspec_opens_and_reads_by_ranges(large):
    arrays, held = large
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/model.safetensors", held.data)

    class Ranges(fsspec.spec.AbstractBufferedFile):
        def _fetch_range(self, start, end):
            return self.fs.cat_file(self.path, start, end)

    with Ranges(memory, "/model.safetensors", block_size=1 << 16) as file, libst.open_source(file) as f:
        got = f.read_many(list(f))
        assert all(np.array_equal(got[name], arrays[name]) for name in arrays)


def test_one_that_only_reads(model):
    class Reader:
        def __init__(self, file):
            self.seek, self.read = file.seek, lambda n: file.read(min(n, 7))

    with open(model, "rb") as file, libst.open_source(Reader(file)) as f:
        assert same(dict(f))


def test_one_that_does_not_say_where_it_went(model):
    class Silent(io.BytesIO):
        def seek(self, *to):
            super().seek(*to)

    with libst.open_source(Silent(model.read_bytes())) as f:
        assert np.array_equal(f["w"], TENSORS["w"])
    assert np.array_equal(libst.load(Silent(model.read_bytes()))["w"], TENSORS["w"])


@pytest.mark.parametrize("told", [-5, 1 << 40])
def test_one_that_reads_no_number_of_bytes(model, told):
    class Wrong(io.BytesIO):
        def readinto(self, buffer):
            return told

    with pytest.raises(OSError, match="says that it read"):
        libst.open_source(Wrong(model.read_bytes()))


def test_a_view_keeps_the_source(model):
    file = io.BytesIO(model.read_bytes())
    kept = weakref.ref(file)
    f = libst.open_source(file)
    view = f["w"]
    f.close()
    del f, file
    gc.collect()
    assert kept() is not None and np.array_equal(view, TENSORS["w"])
    del view
    gc.collect()
    assert kept() is None


def test_a_function_is_called_by_several_threads(large):
    arrays, held = large
    with libst.open_source(held, size=len(held.data), most_reads=4, block_size=1 << 16) as f:
        assert f.io_info().io_threads == 4
        got = f.read_many(list(f))
    assert all(np.array_equal(got[name], array) for name, array in arrays.items())
    assert all(n <= 1 << 16 for _, n, _ in held.asked)


def test_one_read_at_a_time_is_made_by_the_caller(large):
    arrays, held = large
    with libst.open_source(held, size=len(held.data)) as f:
        f.read_many(list(f))
    assert {thread for _, _, thread in held.asked} == {threading.get_ident()}


def test_opening_reads_no_data(large):
    _, held = large
    libst.open_source(held, size=len(held.data)).close()
    assert [(offset, n <= 16384) for offset, n, _ in held.asked] == [(0, True)]


@pytest.mark.parametrize("most_reads", [1, 4])
@pytest.mark.parametrize("raised", [PermissionError(errno.EACCES, "no"), RuntimeError("lost"), KeyboardInterrupt()])
def test_what_it_raises_comes_out_of_the_call(large, raised, most_reads):
    arrays, held = large
    with libst.open_source(held, size=len(held.data), most_reads=most_reads, block_size=1 << 16) as f:
        held.raises = raised
        for call in (lambda: f["t3"], lambda: f.read("t3"), lambda: f.read_many(list(f)), f.prefetch):
            with pytest.raises(type(raised)) as caught:
                call()
            assert caught.value is raised
        with pytest.raises(KeyError):  # and out of no other
            f["missing"]
        held.raises = None
        assert np.array_equal(f["t3"], arrays["t3"])
    held.raises = raised
    with pytest.raises(type(raised)):
        libst.open_source(held, size=len(held.data))


def test_ctrl_c_during_a_read_comes_out_of_the_call(held):
    with libst.open_source(held, size=len(held.data)) as f:

        def interrupted(offset, buffer):
            signal.raise_signal(signal.SIGINT)

        held.__class__ = type("Interrupted", (Held,), {"__call__": lambda self, *a: interrupted(*a)})
        with pytest.raises(KeyboardInterrupt):
            f["w"]


def test_ctrl_c_during_reads_by_threads_comes_out_when_they_have_returned(large):
    arrays, held = large
    handled = threading.Event()
    number = itertools.count()
    begun, ended = [], []

    def interrupt(*_):
        handled.set()
        raise KeyboardInterrupt

    def read(offset, buffer):
        begun.append(offset)
        if next(number) == 1:  # the first after that of the header
            os.kill(os.getpid(), signal.SIGINT)
        if threading.get_ident() != threading.main_thread().ident:
            handled.wait(60)
        held(offset, buffer)
        ended.append(offset)

    with libst.open_source(read, size=len(held.data), most_reads=4, block_size=1 << 16) as f:
        before = signal.signal(signal.SIGINT, interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                f.read_many(list(f))
        finally:
            signal.signal(signal.SIGINT, before)
        assert handled.is_set() and len(begun) - len(ended) in (0, 1)  # one of the caller's own
        assert np.array_equal(f["t3"], arrays["t3"])


def test_a_source_that_ends_early(model, large):
    data = large[1].data
    with libst.open_source(io.BytesIO(data[:-4]), size=len(data)) as f, pytest.raises(EOFError, match="4 bytes before"):
        f.read_many(list(f))
    with pytest.raises(libst.FormatError, match="after its header"):
        libst.open_source(io.BytesIO(model.read_bytes()[:-4]))


def test_it_is_only_read(model, held):
    with libst.open_source(held, size=len(held.data), name="bucket/model", identity="v7") as f:
        with refused("READ_ONLY", "bucket/model .version v7.*save a copy"):
            f.update("w", TENSORS["w"])
        with refused("UNSUPPORTED", "source"):
            f.reopen()
        with pytest.raises(TypeError, match="source"):
            pickle.dumps(f)
        f.refresh()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [({}, "give size"), ({"size": -1}, "size is"), ({"size": 8, "most_reads": -1}, "most_reads is")],
)
def test_arguments_are_checked(held, arguments, match):
    with pytest.raises(ValueError, match=match):
        libst.open_source(held, **arguments)


def test_names_are_text(held):
    """Or a path; a name that no UTF-8 can hold is told all the same."""
    size = len(held.data)
    for name, told in ((pathlib.Path("m.st"), "m.st"), ("\udcff", r"'\\udcff'")):
        with libst.open_source(held, size=size, name=name) as f, refused("UNSUPPORTED", told):
            f.reopen()
    for arguments in ({"name": b"m.st"}, {"name": 3}, {"identity": 3}):
        with pytest.raises(TypeError, match=f"{next(iter(arguments))} is a str, not (bytes|int)"):
            libst.open_source(held, size=size, **arguments)


def test_a_file_object_takes_one_read_at_a_time(model):
    with open(model, "rb") as file, pytest.raises(ValueError, match="one position"):
        libst.open_source(file, most_reads=2)


def test_a_forked_child_reads_nothing(held):
    with libst.open_source(held, size=len(held.data)) as f:
        seen = f["w"]
        asked = len(held.asked)
        child = os.fork()
        if child == 0:
            try:
                f["b"]
                wrong = 1
            except NotImplementedError:
                wrong = 0 if np.array_equal(seen, TENSORS["w"]) and len(held.asked) == asked else 2
            finally:
                os._exit(wrong)
        assert os.waitpid(child, 0)[1] == 0
        assert np.array_equal(f["b"], TENSORS["b"])


@pytest.mark.parametrize("number", [int, np.int64, np.uint32])
@pytest.mark.parametrize("more", [-1, 1])
def test_a_count_other_than_was_asked_for_is_an_error(held, number, more):
    added = 0

    def read(offset, buffer):
        held(offset, buffer)
        return number(len(buffer) + added)

    with libst.open_source(read, size=len(held.data)) as f:
        assert np.array_equal(f.read("w"), TENSORS["w"])
        added = more
        n = TENSORS["b"].nbytes
        with pytest.raises(OSError, match=f"the source says that it read {n + more} bytes, of {n}$") as raised:
            f.read("b")
        assert raised.value.errno == errno.EIO


@pytest.mark.parametrize("said", [None, True, False, "7", 7.5, np.zeros(3, np.int64)])
def test_what_is_no_count_is_not_looked_at(held, said):
    def read(offset, buffer):
        held(offset, buffer)
        return said

    with libst.open_source(read, size=len(held.data)) as f:
        assert same(dict(f))


@pytest.mark.parametrize("source", [3, None, [1]])
def test_what_is_no_source_is_told(source):
    for take in (libst.load, libst.open_source):
        with pytest.raises(TypeError, match=f"a path, .* is wanted, not {type(source).__name__}"):
            take(source)
