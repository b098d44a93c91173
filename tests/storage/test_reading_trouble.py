"""Bulk reads of files that shrink, of storage that fails, and within a limit of memory."""

import errno
import os
import threading

import pytest
import st_abi
from disk import in_child
from faults import FaultFs
from mounts import MIB, NAME, Model, Mounts
from st_abi import refused
from test_reading_requests import cached_part

MODEL = Model(count=16)
PLACES = ("ext4", "tmpfs", "record_fs_cached", "record_fs_direct")
WAYS = ("read_many", "prefetch", "load")


@pytest.fixture
def placed(request, scratch, programs):
    """The path of the model, and of the same file where another could change it."""
    with Mounts(scratch, programs, MODEL) as mounts:
        path = mounts.make(request.param).path
        yield path, path.parent.parent / "below" / NAME if "record_fs" in request.param else path


@pytest.mark.parametrize("map", ["auto", "none"])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
@pytest.mark.parametrize(
    "placed, how",
    [(p, w) for p in PLACES for w in WAYS if (p, w) != ("tmpfs", "prefetch")],  # nothing to do there
    indirect=["placed"],
)
def test_file_that_shrinks_is_an_error_and_no_signal(how, when, map, placed):
    """In a process of its own, which a signal would end."""
    path, behind = placed

    def shrink(*_):
        os.truncate(behind, MODEL.data_offset + 3 * MIB)
        return False

    def work():
        # One reader, if it is to shrink between two reads: of several the others may be done before progress is told.
        io_threads = 1 if when == "meanwhile" else 0
        mode = st_abi.MAP_NONE if map == "none" else st_abi.MAP_AUTO
        with st_abi.File(path, writable=False, map=mode, io_threads=io_threads) as f:
            if when == "before":
                shrink()
            call = getattr(f, how)
            status = st_abi.status_of(call, progress=shrink if when == "meanwhile" else None)
            return [status, st_abi.status_of(f.read, "last"), f.read("first") == MODEL.bytes_of("first")]

    assert in_child(work) == ["ST_E_FILE_CHANGED", "ST_E_FILE_CHANGED", True]


@pytest.mark.parametrize("how", WAYS)
def test_read_that_fails_is_told_and_the_handle_goes_on(how, scratch, programs):
    with FaultFs(scratch, programs, "--direct-io") as fs:
        MODEL.write(fs.source / NAME)
        with st_abi.File(fs.mountpoint / NAME, writable=False) as f:
            fs.arm("read", 3, errno.EIO, sticky=True)
            with refused("ST_E_IO"):
                getattr(f, how)()
            fs.disarm()
            getattr(f, how)()
            assert f.view("w0007") == MODEL.bytes_of("w0007")


@pytest.mark.parametrize("how", ["read_many", "prefetch"])
@pytest.mark.parametrize("threads", [1, 4])
def test_memory_limit_bounds_what_stays_in_the_page_cache(threads, how, scratch, programs):
    """At every moment, as another thread sees it, and at the end."""
    limit, slack = 8 * MIB, 2 * MIB  # the slack is the kernel's reading ahead
    with Mounts(scratch, programs, MODEL) as mounts:
        fs = mounts.record_fs(latency_us=2000)
        path = fs.mountpoint / NAME
        seen, failed, is_over = [], [], threading.Event()

        def watch():
            try:
                while not is_over.is_set():
                    seen.append(cached_part(path) * MODEL.size)
            except BaseException as e:
                failed.append(e)

        with st_abi.File(path, writable=False, memory_limit=limit, io_threads=threads) as f:
            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                got = getattr(f, how)() or {}
                while len(seen) <= 3 and not failed:  # on a busy machine the watcher may have looked too rarely
                    got = getattr(f, how)() or {}
            finally:
                is_over.set()
                watcher.join()
            assert failed == []
            assert all(bytes(b) == MODEL.bytes_of(name) for name, b in got.items())
            assert max(seen) <= limit + slack, f"{max(seen) / MIB:.1f} MiB of the page cache"
            assert cached_part(path) * MODEL.size <= limit + slack
    with Mounts(scratch / "unlimited", programs, MODEL) as mounts:  # or else this shows nothing
        (scratch / "unlimited").mkdir()
        path = mounts.record_fs().mountpoint / NAME
        with st_abi.File(path, writable=False) as f:
            getattr(f, how)()
            assert cached_part(path) * MODEL.size > 2 * (limit + slack)  # the kernel may have taken some of it back


def test_stats_tell_what_was_mapped_prefetched_and_owned(scratch, programs):
    with Mounts(scratch, programs, MODEL) as mounts:
        path = mounts.record_fs().mountpoint / NAME
        with st_abi.File(path, writable=False) as f:
            assert f.stats().bytes_mapped >= MODEL.size
            assert f.stats().bytes_resident < MODEL.size / 2
            f.prefetch()
            stats = f.stats()
            assert stats.bytes_prefetched >= MODEL.size - MODEL.data_offset
            assert stats.bytes_resident > MODEL.size * 0.99
            assert stats.read_requests > 0
            assert (stats.bytes_owned, stats.bytes_private_dirty) == (0, 0)
            f.load()
            assert MODEL.size - MODEL.data_offset <= f.stats().bytes_owned < MODEL.size + 2 * MIB
