"""All 22 element types, both ways, against the stock reader."""

import subprocess
import sys

import libst
import ml_dtypes
import numpy as np
import pytest
import safetensors
from conftest import raw_file, refused
from libst import _rows, dtypes
from safetensors.numpy import save_file
from ways import WAYS

NUMPY = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "I16": np.int16,
    "U16": np.uint16,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I32": np.int32,
    "U32": np.uint32,
    "F32": np.float32,
    "C64": np.complex64,
    "F64": np.float64,
    "I64": np.int64,
    "U64": np.uint64,
}
BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}


def payload(dtype, count, seed):
    """That many elements of random bits (of BOOL: 0 or 1)."""
    random = np.random.default_rng(seed)
    bits = BITS.get(dtype) or np.dtype(NUMPY[dtype]).itemsize * 8
    top = 2 if dtype == "BOOL" else 256
    return random.integers(0, top, count * bits // 8, np.uint8).tobytes()


def stock(path):
    """What the stock reader, which knows all types as bytes, sees: name to (dtype, shape, bytes)."""
    entries = safetensors.deserialize(path.read_bytes())
    return {name: (entry["dtype"], entry["shape"], bytes(entry["data"])) for name, entry in entries}


def test_all_22_are_known():
    assert len(dtypes.NAMES) == 22
    assert set(dtypes.NAMES.values()) == set(NUMPY) | set(BITS)


WITHOUT_ML_DTYPES = """
import sys
sys.modules["ml_dtypes"] = None  # as where it is not installed
import libst, numpy as np
a, b = np.array([1, 2, 3], [("BF16", "<u2")]), np.zeros((2, 2), [("F8_E5M2", "u1")])
libst.save("bits.safetensors", {"a": a, "b": b})
with libst.open("bits.safetensors", "r+") as f:
    assert f.info("a").dtype == "BF16" and f.info("b").dtype == "F8_E5M2" and f["b"].shape == (2, 2)
    assert f["a"]["BF16"].tolist() == [1, 2, 3] and f.slice("a")[1:]["BF16"].tolist() == [2, 3]
    with f.transaction() as t:
        t.update("a", np.array([0x3F80, 0x4000, 0xC000], "<u2").view([("BF16", "<u2")]))
assert libst.load("bits.safetensors")["a"]["BF16"].tolist() == [0x3F80, 0x4000, 0xC000]
assert "no ml_dtypes" in libst.show_config("dicts")["python"]
"""


def test_without_ml_dtypes_its_types_are_their_bits(tmp_path):
    subprocess.run([sys.executable, "-c", WITHOUT_ML_DTYPES], cwd=tmp_path, check=True)
    with libst.open(tmp_path / "bits.safetensors") as f:
        assert f["a"].tolist() == [1, 2, -2] and f["a"].dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("shift", [0, 1], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("dtype", NUMPY)
def test_round_trip(raw, dtype, shift):
    """A view of the bytes a stock reader sees; an update with an array of that type; the stock reader sees that."""
    old, new = payload(dtype, 24, 1), payload(dtype, 24, 2)
    path = raw([("pad", "U8", [shift], b"p" * shift), ("t", dtype, [2, 3, 4], old)])
    with libst.open(path, "r+", mapping="shared") as f:
        view = f["t"]
        assert view.dtype == np.dtype(NUMPY[dtype])
        assert view.shape == (2, 3, 4) and view.tobytes() == old
        assert f.read("t").tobytes() == old
        assert f.info("t").dtype == dtype and f.info("t").nbytes == len(old)
        assert f.slice("t")[1:, :, ::-2].tobytes() == view[1:, :, ::-2].tobytes()

        f.update("t", np.frombuffer(new, NUMPY[dtype]).reshape(2, 3, 4))
        assert f["t"].tobytes() == new
    assert stock(path)["t"] == (dtype, [2, 3, 4], new)
    assert stock(path)["pad"][2] == b"p" * shift


@pytest.mark.parametrize(
    "lie", [lambda a: a, lambda a: a.T, lambda a: a[:, ::2], lambda a: a[:0], lambda a: a[1, 2]], ids=range(5)
)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_arrays_are_written_as_stock_writes_them(tmp_path, way, lie):
    arrays = {name: np.asarray(lie(np.arange(12).reshape(3, 4).astype(kind))) for name, kind in NUMPY.items()}
    save_file({name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()}, tmp_path / "stock")
    name_of = {np.dtype(kind): name for name, kind in NUMPY.items()}
    way(tmp_path / "ours", arrays, lambda array: (name_of[array.dtype], array.shape, array.nbytes))
    assert stock(tmp_path / "ours") == stock(tmp_path / "stock")


@pytest.mark.parametrize("dtype", BITS)
def test_round_trip_of_packed_types(raw, dtype):
    """Less than a byte an element: flat bytes, and the logical shape in info."""
    old, new = payload(dtype, 24, 1), payload(dtype, 24, 2)
    path = raw([("t", dtype, [2, 3, 4], old)])
    with libst.open(path, "r+") as f:
        assert f["t"].dtype == np.uint8 and f["t"].shape == (24 * BITS[dtype] // 8,)
        assert f["t"].tobytes() == old
        assert f.read("t").tobytes() == old
        assert f.info("t").shape == (2, 3, 4) and f.info("t").dtype == dtype

        f.update("t", np.frombuffer(new, np.uint8))
        assert f.read("t").tobytes() == new
        with refused("NBYTES_MISMATCH"):
            f.update("t", np.frombuffer(new, np.uint8)[:-1])
        with refused("DTYPE_MISMATCH"):
            f.update("t", np.zeros((2, 3, 4), np.uint8))  # elements, not packed bytes
    assert stock(path)["t"] == (dtype, [2, 3, 4], new)


@pytest.mark.parametrize("kind", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
def test_unpacked_arrays_of_packed_types_are_refused(raw, kind):
    path = raw([("t", "F4", [8], bytes(4))])
    with libst.open(path, "r+") as f:
        with refused("DTYPE_MISMATCH", match="flat uint8"):
            f.update("t", np.zeros(8, getattr(ml_dtypes, kind)))


def test_bf16_values_are_bf16(raw):
    path = raw([("t", "BF16", [3], bytes.fromhex("803f 0040 40c0"))])
    with libst.open(path) as f:
        assert f["t"].astype(np.float32).tolist() == [1.0, 2.0, -3.0]


def test_shapes_of_no_and_of_many_dimensions(raw):
    shapes = [[], [1], [0], [3, 0, 2], [1] * 32, [2] * 10]
    tensors = [(f"t{i}", "I16", s, payload("I16", int(np.prod(s)), i)) for i, s in enumerate(shapes)]
    with libst.open(raw(tensors), "r+") as f:
        for name, _, shape, data in tensors:
            assert f[name].shape == tuple(shape) and f[name].tobytes() == data
            assert f.read(name).shape == tuple(shape)
            f.update(name, f[name] * 3)
            assert f.read(name).tobytes() == (np.frombuffer(data, np.int16) * 3).tobytes()


@pytest.mark.parametrize("first", [True, False], ids=["as numpy has it", "asked for"])
def test_a_new_array_is_filled_where_its_elements_lie(monkeypatch, first):
    assert not first or _rows._ADDRESS_FIRST  # of every numpy so far
    monkeypatch.setattr(_rows, "_ADDRESS_FIRST", first)
    for dtype in {dtype for dtype in dtypes.NUMPY if dtype is not None}:
        for shape in ((), (3,), (5, 7), (0,), (2, 0)):
            array, place = _rows.new_array(shape, dtype)
            assert (array.shape, array.dtype, array.base) == (shape, dtype, None)
            assert place == array.__array_interface__["data"][0]


def test_open_memory_has_them_all(tmp_path):
    every = [*NUMPY, *BITS]
    data = raw_file([(dtype, dtype, [8], payload(dtype, 8, 5)) for dtype in every])
    with libst.open_memory(data) as f:
        assert {name: view.tobytes() for name, view in f.items()} == {d: payload(d, 8, 5) for d in every}
