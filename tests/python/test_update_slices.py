"""f.update(name, values, at=…) does what numpy's assignment does to the whole, and to nothing else."""

import libst
import ml_dtypes
import numpy as np
import pytest
from conftest import TENSORS, at_once, refused
from locks import exclusive
from safetensors.numpy import load_file, save_file

W = TENSORS["w"]


def draw_part(random, shape):
    """A part as numpy takes it, without a copy of the rules: also bounds that lie outside."""

    def bound(size):
        return None if random.random() < 0.25 else int(random.integers(-size - 2, size + 3))

    def one(size):
        if size and random.random() < 0.25:
            return int(random.integers(-size, size))
        step = None if random.random() < 0.3 else int(random.choice([-3, -2, -1, 1, 2, 3, 7]))
        return slice(bound(size), bound(size), step)

    parts = [one(size) for size in shape[: random.integers(0, len(shape) + 1)]]
    if shape and shape[0] and random.random() < 0.4:
        rows = random.integers(-shape[0], shape[0], random.integers(0, 12))
        parts[:1] = [rows if random.random() < 0.7 else rows.tolist()]
    if len(parts) < len(shape) and random.random() < 0.3:
        parts.append(...)
    return parts[0] if len(parts) == 1 and random.random() < 0.5 else tuple(parts)


def last_wins(array, at, values):
    """numpy's assignment; it promises no order where an index comes twice, so row for row."""
    first, rest = (at[0], at[1:]) if isinstance(at, tuple) and at else (at, ())
    if not isinstance(first, (list, np.ndarray)):
        array[at] = values
        return
    for row, value in zip(first, values):
        array[(int(row), *rest)] = value


def shape_of(array, at):
    at = tuple(np.array(part, int) if isinstance(part, list) else part for part in (at if type(at) is tuple else (at,)))
    return array[at].shape


@pytest.mark.parametrize("publish", [False, True])
def test_random_parts_are_numpys(tmp_path, publish):
    random = np.random.default_rng(31)
    kinds = [np.uint8, np.int16, np.float32, np.complex64, ml_dtypes.bfloat16]
    shapes = [(), (7,), (300,), (40, 13), (9, 1, 700), (5, 0, 2), (6, 3, 4, 2)]
    arrays = {}
    for i, shape in enumerate(shapes):
        count = int(np.prod(shape))
        arrays[f"t{i}"] = random.integers(0, 100, count).astype(kinds[i % len(kinds)]).reshape(shape)
    path = tmp_path / "model.safetensors"
    libst.save(path, arrays)
    with libst.open(path, "r+") as f:
        for _ in range(60):
            with f.transaction(publish=publish) as t:
                for _ in range(random.integers(1, 5)):
                    name = f"t{random.integers(len(shapes))}"
                    array = arrays[name]
                    if random.random() < 0.15:
                        array[...] = random.integers(0, 100, array.shape).astype(array.dtype)
                        t.update(name, array.copy())
                        continue
                    at = draw_part(random, array.shape)
                    values = random.integers(0, 100, shape_of(array, at)).astype(array.dtype)
                    last_wins(array, at, values)
                    t.update(name, values, at=at)
                    values[...] = 0  # they were taken during the call
            for name, array in arrays.items():
                assert np.array_equal(f.read(name), array), name
    with libst.open(path) as f:
        assert all(np.array_equal(f.read(name), array) for name, array in arrays.items())


def test_stock_reads_what_a_part_became(model):
    with libst.open(model, "r+") as f:
        f.update("w", -W[:, 1], at=np.s_[:, 1])
        f.update("b", np.array([7, 8, 9]), at=[4, 0, 4])
        f.update("scalar", np.array(9.5), at=())
        f.update("empty", np.empty((0, 3), np.float16), at=...)
        f.update("w", np.array(100, np.float32), at=(1, -1, 0))
    seen = load_file(model)
    expected = W.copy()
    expected[:, 1] *= -1
    expected[1, -1, 0] = 100
    assert np.array_equal(seen["w"], expected)
    assert np.array_equal(seen["b"], [8, -1, 0, 1, 9])
    assert seen["scalar"] == 9.5


def test_a_part_follows_what_its_transaction_did_before(model):
    with libst.open(model, "r+") as f:
        with f.transaction() as t:
            t.update("w", W * 2)
            t.update("w", W[:1], at=np.s_[:1])
            t.put("new", np.zeros((4, 4), np.int16))
            t.update("new", np.ones((2, 2), np.int16), at=([0, 3], np.s_[1:3]))
            t.rename("b", "c")
            t.update("c", np.array([50]), at=np.s_[-1:])
            t.rename("new", "newer")
            t.update("newer", np.array([9, 9, 9, 9], np.int16), at=2)
        assert np.array_equal(f["w"], np.concatenate([W[:1], W[1:] * 2]))
        assert np.array_equal(f["c"], [-2, -1, 0, 1, 50])
        assert f["newer"].tolist() == [[0, 1, 1, 0], [0, 0, 0, 0], [9, 9, 9, 9], [0, 1, 1, 0]]


MISFITS = {
    "shape": (W, np.s_[:1], ValueError, "SHAPE_MISMATCH"),
    "no broadcast": (np.float32(1), np.s_[:1], ValueError, "SHAPE_MISMATCH"),
    "dtype": (W[:1].astype(np.float64), np.s_[:1], TypeError, "DTYPE_MISMATCH"),
    "row outside": (W[:1], [2], IndexError, "OUT_OF_RANGE"),
}


@pytest.mark.parametrize("what", MISFITS)
def test_a_misfit_leaves_the_transaction_as_it_was(model, what):
    values, at, kind, status = MISFITS[what]
    with libst.open(model, "r+") as f:
        with f.transaction() as t:
            with refused(status) as caught:
                t.update("w", values, at=at)
            assert isinstance(caught.value, kind) and caught.value.tensor == "w" and "'w'" in str(caught.value)
            with pytest.raises(libst.NotFoundError):
                t.update("absent", values, at=at)
            t.update("w", -W[:1], at=np.s_[:1])
        assert np.array_equal(f["w"], np.concatenate([-W[:1], W[1:]]))


@pytest.mark.parametrize(
    "at, error",
    [
        (5, IndexError),
        (np.s_[0, 0, 0, 0], IndexError),
        (np.s_[..., ...], IndexError),
        ([2**63], IndexError),
        ([[0, 1]], TypeError),
        ([True, False], TypeError),
        ([0.5], TypeError),
        ("w", TypeError),
        ((0, [1]), TypeError),
        (([0], [1]), TypeError),
    ],
)
def test_what_is_no_part_is_refused(model, at, error):
    before = model.read_bytes()
    with libst.open(model, "r+") as f, pytest.raises(error):
        f.update("w", W, at=at)
    with libst.open(model, "r+") as f, pytest.raises(IndexError):
        f.update("scalar", np.float64(1), at=[0])
    assert model.read_bytes() == before


def test_packed_elements(raw):
    path = raw([("f4", "F4", [3, 4], bytes([0x11, 0x11, 0x22, 0x22, 0x33, 0x33]))])
    with libst.open(path, "r+") as f:
        f.update("f4", np.array([0xAA, 0xBB], np.uint8), at=1)
        f.update("f4", libst.Packed("F4", (2, 2), np.array([0xCC, 0xDD], np.uint8)), at=([2, 0], np.s_[2:]))
        assert f["f4"].tobytes() == bytes([0x11, 0xDD, 0xAA, 0xBB, 0x33, 0xCC])
        with refused("SUBBYTE"):
            f.update("f4", np.array([0xAA], np.uint8), at=np.s_[1, 1:3])


@pytest.mark.parametrize("publish", [False, True])
def test_random_rows_of_packed_elements(raw, publish):
    random = np.random.default_rng(32)
    data = random.integers(0, 256, (2000, 20), np.uint8)  # two elements a byte
    with libst.open(raw([("f4", "F4", [2000, 40], data.tobytes())]), "r+") as f:
        for rows in (random.permutation(2000), random.integers(-2000, 2000, 5000), np.arange(2000)[::-2]):
            begin, end = np.sort(random.choice(21, 2, replace=False)).tolist()
            values = random.integers(0, 256, (len(rows), end - begin), np.uint8)
            last_wins(data, (rows, slice(begin, end)), values)
            with f.transaction(publish=publish) as t:
                packed = libst.Packed("F4", (len(rows), 2 * (end - begin)), values.reshape(-1))
                t.update("f4", packed, at=(rows, slice(2 * begin, 2 * end)))
            assert f["f4"].tobytes() == data.tobytes()


def test_packed_elements_under_a_name_that_the_transaction_gave_them(raw):
    path = raw([("f4", "F4", [4], b"\x11\x22"), ("w", "U8", [2], b"\x33\x44")])
    with libst.open(path, "r+") as f:
        with f.transaction() as t:
            t.rename("f4", "old")
            t.put("f4", libst.Packed("F4", (2, 2), np.zeros(2, np.uint8)))
            t.rename("w", "new")
            for name, byte in ("old", 0x55), ("f4", 0x66), ("new", 0x77):
                t.update(name, np.full(2, byte, np.uint8))
        assert {name: f[name].tobytes() for name in f} == {"old": b"UU", "f4": b"ff", "new": b"ww"}
        assert [f.info(name).shape for name in ("old", "f4", "new")] == [(4,), (2, 2), (2,)]


def test_rows_of_one_tensor_are_changed_side_by_side(tmp_path):
    path = tmp_path / "model.safetensors"
    table = np.arange(64 * 1024, dtype=np.float32).reshape(64, 1024)
    save_file({"emb": table}, path)
    with libst.open(path, "r+", lock_timeout=0) as f:
        offset = f.info("emb").file_offset
        with exclusive(path, offset + 10 * 4096, 4096):
            f.update("emb", -table[11:13], at=np.s_[11:13])
            f.update("emb", -table[[9, 40]], at=[9, 40])
            with pytest.raises(libst.BusyError) as busy:
                f.update("emb", -table[9:11], at=np.s_[9:11])
            assert busy.value.tensor == "emb"
    table[[9, 11, 12, 40]] *= -1
    assert np.array_equal(load_file(path)["emb"], table)


def test_threads_that_change_rows_lose_none(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"emb": np.zeros((40, 100), np.uint8)}, path)  # rows so short that those between are locked too

    def change(worker):
        with libst.open(path, "r+") as f:
            for i in range(10):
                rows = np.arange(worker, 40, 4)
                f.update("emb", np.full((10, 100), worker * 50 + i, np.uint8), at=rows)

    at_once(change, *range(4))
    expected = np.broadcast_to((np.arange(40) % 4 * 50 + 9)[:, None], (40, 100))
    assert np.array_equal(load_file(path)["emb"], expected)
