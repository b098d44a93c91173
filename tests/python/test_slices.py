"""f.slice(name)[...] is what numpy's basic indexing of the whole gives."""

import tracemalloc

import libst
import numpy as np
import pytest
from conftest import TENSORS, refused
from libst import _windows
from libst._pin import Pin
from safetensors.numpy import save_file

W = TENSORS["w"]


class Anew:
    """A slice for each index, as each keeps its file open."""

    def __init__(self, file):
        self.file = file

    def __getitem__(self, index):
        return self.file.slice("w")[index]


@pytest.fixture
def w(model):
    with libst.open(model) as f:
        yield Anew(f)


def same(got, expected):
    expected = np.asarray(expected)
    return got.dtype == expected.dtype and got.shape == expected.shape and np.array_equal(got, expected)


BASIC = np.index_exp[
    0,
    -1,
    1:2,
    ::-1,
    ...,
    (),
    (1, 2, 3),
    (-1, -1, -1),
    (0, slice(None), 1),
    (slice(1, 3), slice(None, None, 2), ..., 0),
    (..., 2),
    (..., slice(None, None, -2)),
    (0, ...),
    (0, 1, ..., 2),
    (0, 1, 2, ...),
    (slice(None), slice(2, None, -1)),
    (slice(None), slice(2, 0, -1)),
    (slice(None), slice(-1, -4, -1)),
    (slice(5, 2),),
    (slice(None), slice(100, -100, -3)),
    (slice(-100, 100), slice(-2, None)),
    (slice(None), slice(0, 0)),
    (slice(10**30), slice(-(10**30), 10**30, 10**30), slice(None, None, -(10**30))),
    (np.int64(1), np.uint8(2)),
]


@pytest.mark.parametrize("index", BASIC, ids=repr)
def test_is_numpys(w, index):
    assert same(w[index], W[index])


def test_random_slices_are_numpys(tmp_path):
    random = np.random.default_rng(20)

    def bound(size):
        return None if random.random() < 0.25 else int(random.integers(-size - 2, size + 3))

    def part(size):
        if size and random.random() < 0.3:
            return int(random.integers(-size, size))
        step = None if random.random() < 0.3 else int(random.choice([-3, -2, -1, 1, 2, 3, 7]))
        return slice(bound(size), bound(size), step)

    kinds = [np.uint8, np.int16, np.float32, np.complex64]
    arrays = {}
    for i in range(60):
        shape = [int(n) for n in random.integers(0 if i % 7 == 0 else 1, 9, int(random.integers(0, 5)))]
        arrays[f"t{i}"] = random.integers(0, 100, shape).astype(kinds[i % 4])
    path = tmp_path / "random.safetensors"
    save_file(arrays, path)
    tried = 0
    with libst.open(path) as f:
        for name, array in arrays.items():
            part_of = f.slice(name)
            for _ in range(40):
                index = [part(size) for size in array.shape[: int(random.integers(0, array.ndim + 1))]]
                if random.random() < 0.4:
                    index.insert(int(random.integers(0, len(index) + 1)), ...)
                    # what follows the ellipsis indexes the last dimensions
                    behind = len(index) - index.index(...) - 1
                    if behind:
                        index[-behind:] = [part(size) for size in array.shape[array.ndim - behind :]]
                assert same(part_of[tuple(index)], array[tuple(index)]), (name, array.shape, index)
                tried += 1
    assert tried == 2400


def test_result_is_the_callers(w):
    part = w[0]
    assert part.flags.writeable and part.base is None
    part[:] = 0
    assert same(w[0], W[0])


def test_tells_dtype_and_shape_without_reading(model):
    with libst.open(model) as f:
        part = f.slice("w")
        before = f.stats().bytes_read
        assert (part.name, part.dtype, part.shape, len(part)) == ("w", "F32", (2, 3, 4), 2)
        assert "F32" in repr(part)
        with pytest.raises(TypeError):
            len(f.slice("scalar"))
        assert f.stats().bytes_read == before


def test_reads_only_what_it_needs(tmp_path):
    path = tmp_path / "big.safetensors"
    save_file({"big": np.zeros((1000, 1000), np.float32)}, path)
    with libst.open(path) as f:
        before = f.stats().bytes_read
        f.slice("big")[500:502]
        assert 8000 <= f.stats().bytes_read - before < 100_000


def test_scalars_and_empty_tensors(model):
    with libst.open(model) as f:
        assert same(f.slice("scalar")[()], TENSORS["scalar"])
        assert same(f.slice("scalar")[...], TENSORS["scalar"])
        assert same(f.slice("empty")[:, 1:], TENSORS["empty"][:, 1:])


@pytest.mark.parametrize("shape", [(2**63, 0), (0, 2**63), (2**64 - 1, 0)])
def test_more_than_numpy_has_in_a_dimension_is_a_value_error(raw, shape):
    """Beside one of size 0. A part that is smaller can be had."""
    with libst.open(raw([("a", "U8", shape, b"")]), "r+") as f:
        s = f.slice("a")
        with pytest.raises(ValueError) as whole:
            f["a"]
        for index in np.index_exp[..., :, (slice(None), slice(None))]:
            with pytest.raises(ValueError, match=str(whole.value)):
                s[index]
        with pytest.raises(ValueError, match=str(whole.value)):
            f.read_many([("a", ...)])
        with refused("SHAPE_MISMATCH"):
            f.update("a", np.empty((2, 0), np.uint8), at=...)
        if shape[0]:
            assert s[7].shape == (0,) and s[5:9].shape == (4, 0) and s[:: -(2**62)].shape[1] == 0


@pytest.mark.parametrize("index", [2, -3, (0, 3), (..., 4), 10**30, (0, 0, 0, 0), (..., 0, ...)], ids=repr)
def test_outside_is_an_index_error(w, index):
    with pytest.raises(IndexError):
        W[index]
    with pytest.raises(IndexError):
        w[index]


ROWS = [
    [1, 0, 1, -2],
    np.array([1]),
    np.array([0, -1], np.int8),
    np.array([1, 0], np.uint64)[::-1],
    [],
    np.empty(0, np.int32),
    ([1, 0, 0],),
    ([1, 0, 0], ...),
    ([0, 1], slice(1, None)),
    ([0, 1], 1, slice(None, None, -2)),
    ([0, 1], ..., -1),
    ([0, 1], slice(None), 3),
    ([1, 1], 0, 0),
    ([], 1),
]


@pytest.mark.parametrize("index", ROWS, ids=repr)
def test_an_array_of_indices_picks_rows(w, model, index):
    as_numpy = np.array(index, int) if isinstance(index, list) else index
    if isinstance(index, tuple) and index[0] == []:
        as_numpy = (np.array([], int), *index[1:])
    assert same(w[index], W[as_numpy])
    with libst.open(model) as f:
        first, rows, last = f.read_many([("scalar", ()), ("w", index), ("w", 1)])
        assert same(first, TENSORS["scalar"]) and same(rows, W[as_numpy]) and same(last, W[1])
        assert rows.flags.writeable and rows.flags.c_contiguous


@pytest.mark.parametrize("index", [[2], [0, -3], np.array([0, 2**63], np.uint64), ([0], 3), ([], 3)], ids=repr)
def test_rows_outside_are_an_index_error(w, index):
    with pytest.raises(IndexError):
        w[index]


def test_rows_side_by_side_are_one_request(tmp_path):
    big = np.arange(1 << 20, dtype=np.int32).reshape(1024, 1024)
    libst.save(tmp_path / "m", {"big": big})
    with libst.open(tmp_path / "m", io_threads=1) as f:
        before = f.stats()
        assert same(f.slice("big")[[*range(900, 100, -1), 1000]], big[[*range(900, 100, -1), 1000]])
        after = f.stats()
        assert after.read_requests - before.read_requests < 20
        assert after.bytes_read - before.bytes_read < 1000 * 4096


@pytest.fixture
def tall(tmp_path):
    """What it holds, and its path: tensors of more rows than are read by a request each."""
    random = np.random.default_rng(3)
    tensors = {
        "flags": random.integers(0, 2, 3000).astype(bool),
        "numbers": random.integers(0, 1 << 30, 200_000),
        "pixels": random.integers(0, 256, (50_000, 7, 3), np.uint8),
        "pairs": random.random((70_000, 2)).astype(np.complex64),
        "pages": random.integers(0, 1 << 30, (3000, 1024), np.int32),
        "nothing": np.empty((5000, 0, 4), np.float32),
    }
    libst.save(tmp_path / "tall", tensors)
    return tensors, tmp_path / "tall"


@pytest.mark.parametrize("options", [{}, {"mapping": "none", "block_size": 1 << 16, "io_threads": 1}], ids=str)
def test_many_rows_in_any_order_are_numpys(tall, options):
    tensors, path = tall
    random = np.random.default_rng(4)
    parts = [(), np.index_exp[..., 0], np.index_exp[..., ::-2], np.index_exp[1:2], np.index_exp[0:0]]
    with libst.open(path, **options) as f:
        for name, whole in tensors.items():
            n = len(whole)
            for rows in (
                random.integers(-n, n, 4000),
                np.sort(random.integers(0, n, 2000)),
                np.arange(n)[::-1],
                np.arange(n)[:: n // 1300],
                np.full(1500, -1, np.int16),
                random.permutation(n)[:2000].tolist(),
            ):
                for part in parts if whole.ndim > 1 else parts[:1]:
                    assert same(f.slice(name)[(rows, *part)], whole[(np.array(rows), *part)]), (name, part)


def test_rows_of_many_windows_are_numpys(tall, monkeypatch):
    tensors, path = tall
    random = np.random.default_rng(8)
    for limit, value in (("_AT_ONCE", 3), ("_ROOM", 20_000), ("_COPIED", 5000)):
        monkeypatch.setattr(_windows, limit, value)
    with libst.open(path) as f:
        for name in ("numbers", "pairs", "pages"):
            n = len(tensors[name])
            for rows in (random.integers(-n, n, 2000), np.repeat(random.integers(0, n, 50), 40), np.arange(n)[::-1]):
                assert same(f.slice(name)[rows], tensors[name][rows])


def test_many_rows_stand_beside_other_parts(tall):
    tensors, path = tall
    rows = np.random.default_rng(5).integers(-3000, 3000, 5000)
    wanted = [
        ("pages", 7),
        ("numbers", rows),
        ("flags", [3, -1]),
        ("pages", (rows, slice(0, 9))),
        ("nothing", rows),
        ("pairs", []),
    ]
    told = []
    with libst.open(path, progress=lambda done, total: told.append((done, total))) as f:
        for progress in (None, lambda done, total: told.append((done, total))):
            told.clear()
            got = f.read_many(wanted, progress=progress)
            for array, (name, index) in zip(got, wanted):
                index = index if name != "pairs" else slice(0, 0)
                assert same(array, tensors[name][index])
                assert array.flags.writeable and array.flags.c_contiguous
            assert told == sorted(told) and told[-1] == (sum(array.nbytes for array in got),) * 2


def read_rows(f, name, rows):
    """The rows, and the most memory that Python had for them besides."""
    tracemalloc.start()
    try:
        got = f.slice(name)[rows]
        return got, tracemalloc.get_traced_memory()[1] - got.nbytes
    finally:
        tracemalloc.stop()


def test_many_rows_cost_few_requests_and_little_memory(tall):
    tensors, path = tall
    rows = np.random.default_rng(6).integers(0, 200_000, 400_000)
    with libst.open(path, io_threads=1) as f:
        before = f.stats()
        got, besides = read_rows(f, "numbers", rows)
        assert same(got, tensors["numbers"][rows])
        after = f.stats()
        # What comes twice is read once, but for a row at the end of a window.
        assert after.bytes_read - before.bytes_read < tensors["numbers"].nbytes + 1000
        assert after.read_requests - before.read_requests < 50
        assert besides < (9 << 20) + 48 * len(rows)


@pytest.mark.parametrize("nbytes, count, buffer", [(4 << 10, 8000, 9 << 20), (16 << 10, 1100, 1 << 20)])
def test_long_rows_that_come_often_take_little_memory(tmp_path, nbytes, count, buffer):
    random = np.random.default_rng(7)
    whole = random.integers(0, 256, (50, nbytes), np.uint8)
    libst.save(tmp_path / "m", {"w": whole})
    rows = random.integers(0, 50, count)
    with libst.open(tmp_path / "m") as f:
        got, besides = read_rows(f, "w", rows)
    assert same(got, whole[rows])
    assert besides < buffer


def test_rows_of_one_stretch_are_read_at_once(tall):
    tensors, path = tall
    with libst.open(path, io_threads=1) as f:
        before = f.stats().read_requests
        assert same(f.slice("numbers")[np.arange(200_000)], tensors["numbers"])
        assert f.stats().read_requests - before < 3


def test_of_wide_rows_only_the_picked_part_is_read(tmp_path):
    count, width = 8800, 40 << 10
    header = b'{"wide":{"dtype":"U8","shape":[%d,%d],"data_offsets":[0,%d]}}' % (count, width, count * width)
    with open(tmp_path / "wide", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(file.tell() + count * width)
    rows = np.arange(0, count, 8)
    with libst.open(tmp_path / "wide") as f:
        before = f.stats().bytes_read
        assert not f.slice("wide")[rows, 0].any()
        assert f.stats().bytes_read - before < 2 * len(rows)


def test_the_rows_are_those_of_the_index_as_it_was_given(tall):
    tensors, path = tall
    rows = np.arange(0, 200_000, 50)
    given = rows.copy()

    class Writer:  # as another thread might, after the rows were looked at
        def __index__(self):
            rows[:] = 0
            return 7

    with libst.open(path) as f:
        picked, one = f.read_many([("numbers", rows), ("numbers", (Writer(),))])
    assert not rows.any()
    assert same(picked, tensors["numbers"][given]) and same(one, tensors["numbers"][7])


@pytest.fixture
def far(tall):
    """A file that is not near, and where it was read since it was opened."""
    data, places = tall[1].read_bytes(), []

    def read(offset, buffer):
        places.append(offset)
        buffer[:] = data[offset : offset + len(buffer)]

    with libst.open_source(read, size=len(data)) as f:
        places.clear()
        yield f, places


def test_many_rows_of_several_tensors_are_read_in_the_order_of_the_file(tall, far):
    f, places = far
    rows = np.arange(2000)
    names = sorted(set(tall[0]) - {"nothing"}, key=lambda name: -f.info(name).file_offset)
    for got, name in zip(f.read_many([(name, rows) for name in names]), names):
        assert same(got, tall[0][name][rows])
    assert places == sorted(places) and len(set(places)) >= len(names)


def requests_of_reads(monkeypatch):
    """How many each further read of many asks for."""
    asked = []
    call_bulk = Pin.call_bulk

    def call(pin, function, where, count, **options):
        asked.append(count)
        call_bulk(pin, function, where, count, **options)

    monkeypatch.setattr(Pin, "call_bulk", call)
    return asked


def test_many_rows_of_several_tensors_are_read_by_one_call(tall, far, monkeypatch):
    """A server answers each call after a while."""
    asked = requests_of_reads(monkeypatch)
    rows = np.arange(0, 3000, 2)
    wanted = [(name, rows) for name in ("flags", "numbers", "pixels", "pairs")] + [("pages", (rows, slice(3, 7)))]
    for got, (name, index) in zip(far[0].read_many(wanted), wanted):
        assert same(got, tall[0][name][index])
    assert len(asked) == 1


@pytest.mark.parametrize("limit, value", [("_FAR_ROOM", 20_000), ("_AT_ONCE", 40), ("_ROWS_AT_ONCE", 3000)])
def test_windows_of_several_tensors_are_numpys(tall, far, monkeypatch, limit, value):
    monkeypatch.setattr(_windows, limit, value)
    monkeypatch.setattr(_windows, limit.replace("FAR_", ""), value)
    random, told = np.random.default_rng(9), []
    with libst.open(tall[1]) as near:
        for f in (near, far[0]):
            names = random.choice(sorted(set(tall[0]) - {"nothing"}), 12)
            wanted = [(name, random.integers(-3000, 3000, random.integers(1025, 4000))) for name in names]
            wanted += [("pages", (wanted[0][1], slice(None, None, -100))), ("pixels", (wanted[1][1], slice(1, 3), 0))]
            told.clear()
            got = f.read_many(wanted, progress=lambda done, total: told.append((done, total)))
            for array, (name, index) in zip(got, wanted):
                assert same(array, tall[0][name][index]), name
            assert told == sorted(told) and told[-1] == (sum(array.nbytes for array in got),) * 2


def test_rows_of_far_storage_share_requests_over_wider_gaps(tall, far, monkeypatch):
    asked = requests_of_reads(monkeypatch)
    rows = np.repeat(np.arange(0, 200_000, 2000), 11)
    with libst.open(tall[1]) as near:
        for f in (near, far[0]):
            assert same(f.slice("numbers")[rows], tall[0]["numbers"][rows])
    assert asked == [100, 1]


def test_longer_rows_of_far_storage_share_requests(tmp_path, monkeypatch):
    asked = requests_of_reads(monkeypatch)
    whole = np.arange(100 * 4096, dtype=np.int32).reshape(100, 4096)
    libst.save(tmp_path / "m", {"w": whole})
    rows = np.arange(1200) * 7 % 100
    with libst.open(tmp_path / "m") as near, open(tmp_path / "m", "rb") as file, libst.open_source(file) as far:
        for f in (near, far):
            assert same(f.slice("w")[rows], whole[rows])
    assert asked == [1200, 1]


@pytest.mark.parametrize("wrong", [3000, -3001, 2**62, -(2**63)])
def test_the_row_that_is_not_there_is_named(tall, wrong):
    rows = np.arange(2000)
    rows[1234] = wrong
    with libst.open(tall[1]) as f:
        for name in ("flags", "pages"):
            with pytest.raises(IndexError, match=rf"index {wrong} is out of bounds for axis 0 with size 3000"):
                f.slice(name)[rows]
            with pytest.raises(TypeError, match="an array of indices"):
                f.slice(name)[rows >= 0]


def test_an_exception_of_progress_ends_a_read_of_many_rows(tall):
    def stop(done, total):
        raise KeyError(done)

    with libst.open(tall[1]) as f, pytest.raises(KeyError):
        f.read_many([("pages", np.arange(3000))], progress=stop)


def test_rows_of_packed_types_are_whole_bytes(raw):
    data = bytes(range(16))
    with libst.open(raw([("t", "F4", [4, 8], data), ("u", "F4", [4, 1], b"ab")])) as f:
        assert f.slice("t")[[2, 0]].tobytes() == data[8:12] + data[:4]
        assert f.slice("t")[[2, 0], 2:4].tobytes() == data[9:10] + data[1:2]
        assert f.slice("t")[[]].shape == (0,)
        with refused("SUBBYTE"):
            f.slice("u")[[0, 1]]
        assert f.slice("t")[[1, 0] * 1000].tobytes() == (data[4:8] + data[:4]) * 1000
        with refused("SUBBYTE"):
            f.slice("u")[[0, 1] * 1000]


@pytest.mark.parametrize("index", [None, True, np.True_, "w", 1.0, (0, None)], ids=lambda i: type(i).__name__)
def test_fancy_indexing_is_a_type_error(w, index):
    with pytest.raises(TypeError, match="slice takes"):
        w[index]


@pytest.mark.parametrize(
    "index", [[True, False], [0.5], [[0, 1]], np.array([[0, 1]]), (0, [1]), ([0], [1]), (..., [1])], ids=repr
)
def test_other_arrays_are_a_type_error(w, index):
    with pytest.raises(TypeError, match="an array of indices"):
        w[index]


def test_a_scalar_has_no_rows(model):
    with libst.open(model) as f, pytest.raises(IndexError):
        f.slice("scalar")[[0]]


def test_a_step_of_zero_is_refused(w):
    with pytest.raises(ValueError):
        w[::0]


def test_a_missing_tensor_is_not_found(model):
    with libst.open(model) as f, pytest.raises(libst.NotFoundError):
        f.slice("nope")


def test_packed_types_are_cut_at_whole_bytes(raw):
    data = bytes(range(16))
    with libst.open(raw([("t", "F4", [4, 8], data)])) as f:
        part = f.slice("t")
        assert part.shape == (4, 8) and part.dtype == "F4"
        assert part[1].tobytes() == data[4:8]
        assert part[1:3].tobytes() == data[4:12]
        assert part[::-1].tobytes() == data[12:] + data[8:12] + data[4:8] + data[:4]
        assert part[:, 2:4].tobytes() == bytes([data[1], data[5], data[9], data[13]])
        assert part[1].dtype == np.uint8 and part[1].shape == (4,)
        for cut in (np.index_exp[:, 1:3], np.index_exp[0, 0], np.index_exp[:, ::2]):
            with pytest.raises(libst.FormatError) as caught:
                part[cut]
            assert caught.value.status == libst.Status.SUBBYTE


def test_what_is_outside_is_told_with_the_tensor_and_its_shape(tmp_path):
    libst.save(tmp_path / "m", {"a": np.ones(100), "w": np.ones((5, 3))})
    told = r"; the tensor 'w' has the shape \[5, 3\]: ask for what is in it"
    with libst.open(tmp_path / "m", "r+") as f:
        for index in (9, -6, (0, 3), (0, 0, 0), [1, 9], ([0], 7)):
            with pytest.raises(IndexError, match=told):
                f.slice("w")[index]
            with pytest.raises(IndexError, match=told):
                f.read_many([("a", 3), ("w", index)])
            if index != [1, 9]:  # C tells of an array of rows
                with pytest.raises(IndexError, match=told):
                    f.update("w", np.ones(3), at=index)
        with pytest.raises(TypeError, match=r"numpy.flatnonzero\(mask\)"):
            f.slice("w")[np.ones(5, bool)]
        for out in (np.empty((5, 3), "f4"), np.empty((5, 4)), np.empty((5, 6))[:, ::2]):
            with pytest.raises(ValueError if out.shape[1] == 4 or not out.flags.c_contiguous else TypeError) as wrong:
                f.read("w", out=out)
            assert "'w'" in str(wrong.value) and "; give " in str(wrong.value)
