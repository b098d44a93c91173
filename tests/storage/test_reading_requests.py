"""What bulk reads ask of the storage, from a filesystem that writes down every request: order, size, whose handle."""

import mmap
import os

import pytest
import st_abi
from disk import in_children
from mounts import MIB, NAME, Model, Mounts
from st_abi import refused

PAGE = 4096
READ_AHEAD = MIB  # so that the kernel allows requests of that size for the page cache, too
MODEL = Model(count=16)
MANY = Model(count=500, size=64 << 10)

# Ways to read a whole model.
WHOLE = {"prefetch": lambda f: f.prefetch(), "read_many": lambda f: f.read_many(), "load": lambda f: f.load()}


@pytest.fixture
def recorded(scratch, programs):
    """recorded(model, options…): a record_fs that holds it, and its path there."""
    stack = []

    def make(model, *options, **more):
        mounts = Mounts(scratch, programs, model)
        stack.append(mounts)
        fs = mounts.record_fs("--in-order", *options, **{"read_ahead": READ_AHEAD, **more})
        return fs, fs.mountpoint / NAME

    yield make
    for mounts in stack:
        mounts.__exit__()


MOUNTED = {"cached": [], "direct": ["--direct-io"]}


@pytest.fixture(params=MOUNTED)
def either(request):
    """Options of a mount with a page cache, or without."""
    return MOUNTED[request.param]


def reader(path, **options):
    return st_abi.File(path, writable=False, **options)


def bulk(fs, path, call, **options):
    """The reads of a call, by handle; without those of opening."""
    with reader(path, **options) as f:
        fs.clear()
        call(f)
        return fs.reads()


def check_order(reads):
    """Every handle goes forward only."""
    for handle, requests in reads.items():
        for before, after in zip(requests, requests[1:], strict=False):
            assert before.offset < after.offset, f"handle {handle} went back: {before}, then {after}"


def check_size(reads, largest=MIB):
    """As large as they may be, but for where a part begins, the kernel's window grows, or a buffer is not aligned."""
    for handle, requests in reads.items():
        small = [r for r in requests if r.size < largest * 7 // 8]
        begin, end = span(requests)
        assert len(requests) <= (end - begin) / (largest * 7 // 8) + 5, f"handle {handle}: {len(small)} as {small[:3]}"


def span(requests):
    return min(r.offset for r in requests), max(r.end for r in requests)


def asked(reads):
    return sum(r.size for requests in reads.values() for r in requests)


def asked_without_a_gap(reads):
    """How much of the file, from its start, was asked for by all handles together."""
    end = 0
    for request in sorted((r for requests in reads.values() for r in requests), key=lambda r: r.offset):
        if request.offset > end:
            break
        end = max(end, request.end)
    return end


def cached_part(path):
    """How much of a file is in the page cache."""
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as m:
        return st_abi.resident(m) / (-(-os.path.getsize(path) // PAGE) * PAGE)


@pytest.mark.parametrize("how", WHOLE)
def test_whole_model_is_asked_for_in_file_order_and_in_large_requests(how, either, recorded):
    fs, path = recorded(MODEL, *either)
    reads = bulk(fs, path, WHOLE[how])
    check_order(reads)
    check_size(reads)
    assert max(end for _, end in map(span, reads.values())) >= MODEL.size
    assert MODEL.size - 2 * READ_AHEAD < asked(reads) < MODEL.size + 4 * MIB  # once; opening has read ahead


@pytest.mark.parametrize("how", WHOLE)
@pytest.mark.parametrize("kernel_window", [128 << 10, 512 << 10])
def test_order_holds_where_the_kernel_asks_for_less(kernel_window, how, recorded):
    fs, path = recorded(MODEL, read_ahead=kernel_window)
    reads = bulk(fs, path, WHOLE[how])
    check_order(reads)
    check_size(reads, largest=kernel_window)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_of_a_bulk_read_have_a_handle_and_a_part_of_their_own(threads, either, recorded):
    fs, path = recorded(MODEL, *either)
    options = {"prefetch": st_abi.PREFETCH_PARALLEL if threads > 1 else st_abi.PREFETCH_SEQUENTIAL}
    reads = bulk(fs, path, lambda f: f.read_many(), io_threads=threads, **options)
    check_order(reads)
    assert 1 <= len(reads) <= threads
    if threads > 1:
        assert len(reads) > 1, "one handle for all threads"


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_workers_warm_a_part_each_on_a_handle_each_and_together_all(workers, recorded):
    fs, path = recorded(MODEL, read_ahead=128 << 10)

    def work(i):
        with reader(path, worker_index=i, worker_count=workers) as f:
            f.prefetch()

    in_children(workers, work)
    reads = {handle: [r for r in requests if r.end > MODEL.data_offset] for handle, requests in fs.reads().items()}
    parts = sorted(span(requests[1:] or requests) for requests in reads.values() if requests)
    assert len(parts) >= workers
    check_order(reads)
    slack = 1 * MIB  # what the kernel reads ahead at the end of a part, and blocks that are not cut
    for begin, end in parts:
        assert end - begin <= MODEL.size / workers + slack, f"a part of {end - begin} for {workers} workers"
    for (_, end), (begin, _) in zip(parts, parts[1:], strict=False):
        assert begin >= end - slack, f"two workers read the same: {parts}"
    assert asked(reads) < MODEL.size + workers * slack
    assert asked_without_a_gap(fs.reads()) >= MODEL.size


@pytest.mark.parametrize("how", ["read", "read_many", "prefetch", "load"])
@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_forked_worker_opens_the_file_for_itself(workers, how, either, recorded):
    """A handle of the parent, used in children: each reads on a handle of its own, the parent's is left alone."""
    fs, path = recorded(MODEL, *either)
    names = [n for n in MODEL.sizes if n.startswith("w")]
    with reader(path) as f:
        assert f.read("first") == MODEL.bytes_of("first")
        parents = set(fs.opens())
        fs.clear()

        def work(i):
            mine = names[i::workers]
            if how == "read":
                got = {n: f.read(n) for n in mine}
            elif how == "read_many":
                got = f.read_many(mine)
            else:
                f.prefetch(mine) if how == "prefetch" else f.load([f.names().index(n) for n in mine])
                got = {n: f.view(n) for n in mine}
            assert all(seen == MODEL.bytes_of(n) for n, seen in got.items())
            return f.stats().reopens

        assert in_children(workers, work) == [1] * workers
        assert len(fs.opens()) >= workers
        assert not parents & set(fs.reads()), "a child read on its parent's handle"
        fs.clear()
        assert f.read("last") == MODEL.bytes_of("last")
        assert f.stats().reopens == 0
        assert not fs.opens()


def test_child_keeps_to_the_file_that_its_parent_opened(place):
    """Also when the path names another one by then."""
    path = MODEL.write(place / NAME)
    with reader(path) as f:
        os.replace(Model(count=16, size=MIB).write(place / "other"), path)

        def work(i):
            return [bytes(seen) == MODEL.bytes_of(name) for name, seen in f.read_many().items()]

        assert in_children(1, work) == [[True] * len(MODEL.sizes)]
        assert f.read("w0001") == MODEL.bytes_of("w0001")


@pytest.mark.parametrize("how", ["read_many", "prefetch"])
def test_every_second_of_small_tensors_is_read_through(how, either, recorded):
    fs, path = recorded(MANY, *either)
    chosen = list(MANY.sizes)[1::2]
    got = {}

    def call(f):
        got.update(f.read_many(chosen) if how == "read_many" else f.prefetch(chosen) or {})

    reads = bulk(fs, path, call)
    assert all(seen == MANY.bytes_of(n) for n, seen in got.items())
    check_order(reads)
    check_size(reads)
    assert sum(map(len, reads.values())) <= MANY.size / MIB + 4 * len(reads)


def test_order_of_the_requests_given_does_not_matter(either, recorded):
    """By name, which is not the order of the file: it is still read once and forward."""
    fs, path = recorded(MANY, *either)
    reads = bulk(fs, path, lambda f: f.read_many(sorted(MANY.sizes, reverse=True)))
    check_order(reads)
    check_size(reads)
    assert asked(reads) < MANY.size + 4 * MIB


def test_large_gaps_are_not_read(recorded):
    fs, path = recorded(MODEL, "--direct-io")
    chosen = [n for n in MODEL.sizes if n.startswith("w")][::4]
    reads = bulk(fs, path, lambda f: f.read_many(chosen))
    check_order(reads)
    wanted = sum(MODEL.sizes[n] for n in chosen)
    assert wanted <= asked(reads) < wanted + len(chosen) * (256 << 10)


@pytest.mark.parametrize("how", ["read_many", "prefetch", "load"])
def test_progress_counts_to_the_end_and_may_cancel(how, either, recorded):
    fs, path = recorded(MODEL, *either)
    told = []
    with reader(path) as f:
        getattr(f, how)(progress=lambda done, total: told.append((done, total)))
        assert told == sorted(told) and told[-1][0] == told[-1][1] > MODEL.size / 2
        assert len(told) > 3
    fs.remount()
    with reader(path) as f:
        fs.clear()
        with refused("ST_E_CANCELLED"):
            getattr(f, how)(progress=lambda done, total: True)
        assert asked(fs.reads()) < MODEL.size * 3 / 4, "it went on"
        assert f.read("w0001") == MODEL.bytes_of("w0001")


def test_how_it_reads_is_told_with_a_reason(either, recorded):
    _, path = recorded(MODEL, *either)
    with reader(path) as f:
        info = f.io_info()
        assert info.prefetch in (st_abi.PREFETCH_SEQUENTIAL, st_abi.PREFETCH_PARALLEL)
        assert info.io_threads >= 1
        assert info.block_size >= MIB
        assert info.prefetch_reason
    options = {"prefetch": st_abi.PREFETCH_PARALLEL, "io_threads": 3, "block_size": 2 * MIB}
    with reader(path, **options) as f:
        info = f.io_info()
        assert {name: getattr(info, name) for name in options} == options


@pytest.mark.parametrize(
    "variable, value, field, expected",
    [
        ("ST_PREFETCH", "none", "prefetch", st_abi.PREFETCH_NONE),
        ("ST_PREFETCH", "sequential", "prefetch", st_abi.PREFETCH_SEQUENTIAL),
        ("ST_PREFETCH", "parallel", "prefetch", st_abi.PREFETCH_PARALLEL),
        ("ST_IO_THREADS", "3", "io_threads", 3),
        ("ST_BLOCK_SIZE", str(2 * MIB), "block_size", 2 * MIB),
    ],
)
def test_environment_says_how_to_read(variable, value, field, expected, recorded, monkeypatch):
    _, path = recorded(MODEL)
    monkeypatch.setenv(variable, value)
    with reader(path) as f:
        assert getattr(f.io_info(), field) == expected
