"""Every element of every dtype, as stctl prints it and as it reads it, against numpy and ml_dtypes."""

import math
import os

import ml_dtypes
import numpy as np
import pytest
from cli_files import BITS, NUMPY, pack, tensor_bytes, write

FLOATS = [d for d in BITS if d.startswith(("F", "BF"))]
INTEGERS = [d for d in BITS if d[0] in "IU"]


def interesting_codes(dtype):
    """All codes up to 16 bits; of wider ones the specials and many at random. A multiple of 8 of them."""
    bits = BITS[dtype]
    if dtype == "BOOL":
        return np.array([0, 1] * 4, np.uint8)
    if bits <= 16:
        return np.arange(2**bits)
    rng = np.random.default_rng(7)
    some = rng.integers(0, 2**64, 992, dtype=np.uint64) & np.uint64(2**bits - 1)
    edges = [0, 1, 2**bits - 1, 2 ** (bits - 1), 2 ** (bits - 1) - 1]
    if dtype in ("F32", "F64"):
        values = [1, -1, 0.1, 1e-5, 1e16, 123456789, 1e300, 5e-324, np.inf, -np.inf, np.nan, -0.0, 2**53, 1 / 3]
        with np.errstate(over="ignore"):
            edges += np.array(values, NUMPY[dtype]).view(f"u{bits // 8}").tolist()
    codes = np.concatenate([some, np.array(edges, np.uint64)])
    return np.resize(codes, (len(codes) + 7) // 8 * 8)


def expected(dtype, codes):
    """The elements with those codes, as numpy sees them."""
    bits = BITS[dtype]
    return np.asarray(codes, dtype=f"u{max(bits, 8) // 8}").view(NUMPY[dtype])


@pytest.fixture(params=BITS)
def every_code(request, tmp_path):
    codes = interesting_codes(request.param)
    payload = pack(codes, BITS[request.param])
    path = write(tmp_path / "m.safetensors", {"w": (request.param, [len(codes)], payload)})
    return request.param, path, expected(request.param, codes)


def as_float(value):
    return float(value.replace("NaN", "nan").replace("Infinity", "inf")) if isinstance(value, str) else float(value)


def same(a, b):
    return a == b and math.copysign(1, a) == math.copysign(1, b) or (math.isnan(a) and math.isnan(b))


def test_json_values_are_the_elements(stctl, every_code):
    dtype, path, elements = every_code
    values = stctl.json("get", path, "w")["values"]
    assert len(values) == len(elements)
    if dtype == "C64":
        pairs = elements.view(np.float32).reshape(-1, 2)
        for value, pair in zip(values, pairs):
            assert all(same(float(np.float32(as_float(v))), float(p)) for v, p in zip(value, pair)), (value, pair)
    elif dtype == "BOOL":
        assert values == elements.tolist()
    elif dtype in INTEGERS:
        assert values == [int(x) for x in elements]
        assert all(type(v) is int for v in values)
    else:
        assert all(type(v) is float or v in ("NaN", "Infinity", "-Infinity") for v in values)
        read = np.float64 if dtype == "F64" else np.float32
        for value, element in zip(values, elements):
            assert same(float(read(as_float(value))), float(element)), (value, element)


def test_text_reads_back_as_the_elements(stctl, every_code):
    dtype, path, elements = every_code
    words = stctl("get", path, "w", "--limit", "0")[0].replace("[", " ").replace("]", " ").split()
    assert len(words) == len(elements)
    if dtype == "BOOL":
        assert words == [str(bool(x)).lower() for x in elements]
    elif dtype in INTEGERS:
        assert words == [str(int(x)) for x in elements]
    elif dtype == "C64":
        for word, element in zip(words, elements):
            split = max(word.rfind(sign, 1, -1) for sign in "+-")
            while word[split - 1] == "e":
                split = max(word.rfind(sign, 1, split) for sign in "+-")
            re, im = float(word[:split]), float(word[split:-1])
            assert same(float(np.float32(re)), float(element.real)), (word, element)
            assert same(float(np.float32(im)), float(element.imag)), (word, element)
    else:
        back = np.array([float(w) for w in words]).astype(elements.dtype)
        for word, read, element in zip(words, back, elements):
            assert same(float(read), float(element)), (word, element)


@pytest.mark.parametrize("dtype", [d for d in FLOATS if BITS[d] <= 8])
def test_small_floats_print_their_exact_value(stctl, tmp_path, dtype):
    codes = interesting_codes(dtype)
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [len(codes)], pack(codes, BITS[dtype]))})
    words = stctl("get", path, "w", "--limit", "0")[0].replace("[", " ").replace("]", " ").split()
    for word, element in zip(words, expected(dtype, codes)):
        assert same(float(np.float32(float(word))), float(element)), (word, element)


@pytest.mark.parametrize(
    "dtype, value, text",
    [
        ("BF16", 0.1, "0.1"), ("F16", 0.1, "0.1"), ("F32", 0.1, "0.1"), ("F64", 0.1, "0.1"),
        ("F8_E4M3", 0.1, "0.1015625"), ("F16", 65504, "65504.0"), ("BF16", 100, "100.0"), ("F32", 1e20, "1e+20"),
        ("F32", 16777217, "16777216.0"), ("F64", -0.0, "-0.0"), ("F32", 1e-7, "1e-07"), ("F64", np.inf, "inf"),
        ("F8_E8M0", 2.0**-3, "0.125"), ("F4", -6, "-6.0"), ("C64", 1 - 2j, "1.0-2.0j"), ("BOOL", True, "true"),
        ("U64", 2**64 - 1, "18446744073709551615"), ("I64", -(2**63), "-9223372036854775808"),
    ],
)  # fmt: skip
def test_a_number_looks_as_one_expects(stctl, tmp_path, dtype, value, text):
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [2], tensor_bytes(dtype, np.array([value, value])))})
    assert stctl("get", path, "w")[0] == f"[{text} {text}]\n"


def test_json_of_half_precision_is_not_rounded(stctl, tmp_path):
    tensors = {"f": ("F16", [1], tensor_bytes("F16", [0.1])), "b": ("BF16", [1], tensor_bytes("BF16", [0.1]))}
    path = write(tmp_path / "m.safetensors", tensors)
    assert stctl.json("get", path, "f")["values"] == [0.099975586]
    assert stctl.json("get", path, "b")["values"] == [0.100097656]


# --- update --fill: numbers as elements

FILLS = {
    "BOOL": ["true", "0"],
    "C64": ["1.5-2.5j", "3", "-2j", "1e-3+1e+3j"],
    "F8_E8M0": ["1", "0.125", "1.7014118346046923e+38", "5.877471754111438e-39", "nan"],
    "F4": ["0", "-6", "0.5", "2.4", "1.25", "-0.0"],
    "F6_E2M3": ["7.5", "-0.125", "1.06", "0.1"],
    "F6_E3M2": ["28", "-0.0625", "5.5", "0.1"],
} | {d: ["0", "-0.0", "1", "0.1", "-3.3", "57.25", "1e-4", "nan"] for d in FLOATS if BITS[d] >= 8 and d != "F8_E8M0"}


@pytest.mark.parametrize("dtype, text", [(d, t) for d, texts in FILLS.items() for t in texts])
def test_fill_rounds_as_numpy_does(stctl, tmp_path, dtype, text):
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [2, 4], bytes(BITS[dtype]))})
    stctl("update", path, "w", "--fill", text)
    number = {"true": True, "0": False}[text] if dtype == "BOOL" else complex(text) if dtype == "C64" else float(text)
    element = np.array(number).astype(NUMPY[dtype])
    got = path.read_bytes()[-BITS[dtype] :]
    if number != number:  # which NaN is not fixed
        codes = np.frombuffer(got, f"u{BITS[dtype] // 8}")
        assert all(np.isnan(expected(dtype, codes).astype(np.float64)))
    else:
        assert got == tensor_bytes(dtype, np.full(8, element))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_fill_takes_the_whole_range_of_integers(stctl, tmp_path, dtype):
    info = np.iinfo(NUMPY[dtype])
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [3], bytes(3 * BITS[dtype] // 8))})
    for value in (info.min, info.max, 1):
        stctl("update", path, "w", "--fill", str(value))
        assert stctl.json("get", path, "w")["values"] == [value] * 3
    for value in (info.min - 1, info.max + 1, "1.5", "x", ""):
        stctl("update", path, "w", "--fill", str(value), code=2)
    assert stctl.json("get", path, "w")["values"] == [1] * 3


@pytest.mark.parametrize("dtype", [d for d in FLOATS if BITS[d] <= 16 and d != "F8_E8M0"])
def test_fill_knows_the_largest_number(stctl, tmp_path, dtype):
    largest = float(ml_dtypes.finfo(NUMPY[dtype]).max)
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [8], bytes(BITS[dtype]))})
    for value in (largest, -largest):
        stctl("update", path, "w", "--fill", repr(value))
        stctl("update", path, "w", "--fill", repr(2 * value), code=2)
        assert [float(np.float32(v)) for v in stctl.json("get", path, "w")["values"]] == [value] * 8


@pytest.mark.parametrize(
    "dtype, text",
    [("BOOL", "2"), ("F4", "nan"), ("F6_E2M3", "inf"), ("F8_E4M3", "inf"), ("F8_E8M0", "3"), ("F8_E8M0", "0"),
     ("F8_E8M0", "-1"), ("F32", "1e39"), ("F64", "1e309"), ("F32", "1,5"), ("F32", ""), ("C64", "1+j2"), ("F16", " 1")],
)  # fmt: skip
def test_fill_refuses_what_the_dtype_cannot_hold(stctl, tmp_path, dtype, text):
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [8], bytes(BITS[dtype]))})
    before = path.read_bytes()
    err = stctl("update", path, "w", "--fill", text, code=2)[1]
    assert dtype in err
    assert path.read_bytes() == before


def test_a_dtype_that_only_a_newer_libst_knows_is_no_integer(stctl, tmp_path, newer):
    with_newer = {**os.environ, "LD_PRELOAD": str(newer)}
    path = write(tmp_path / "m.safetensors", {"w": ("U16", [2], bytes(4)), "f": ("F32", [2], bytes(8))})
    before = path.read_bytes()
    assert "X16" in stctl("ls", path, env=with_newer)[0]
    for command in (
        ["get", path, "w"],
        ["get", path, "w", "--json"],
        ["get", path, "w", "--cast", "F32", "-o", tmp_path / "w.bin"],
        ["get", path, "f", "--cast", "X16", "-o", tmp_path / "f.bin"],
        ["update", path, "w", "--fill", "1"],
    ):
        out, err = stctl(*command, env=with_newer, code=1)
        assert "does not know the elements of X16" in out + err
    assert path.read_bytes() == before
    stctl("get", path, "w", "-o", tmp_path / "w.bin", env=with_newer)  # raw bytes are bytes
    assert (tmp_path / "w.bin").read_bytes() == bytes(4)
