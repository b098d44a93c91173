"""Elements that NumPy has from ml_dtypes, in and out of .npy files; and casts from each dtype to each."""

import json
import os
import subprocess
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from cli_files import BITS, IN_NUMPY, NUMPY, stock, tensor_bytes, write
from safetensors.numpy import load_file

OTHERS = [d for d in BITS if d not in IN_NUMPY]
SIGNED = [d for d in BITS if d not in ("BOOL", "U8", "U16", "U32", "U64", "F8_E8M0")]


def ours(stctl, path, name):
    return stctl.raw("get", path, name, "-o", "-").stdout


@pytest.mark.parametrize("dtype", OTHERS)
def test_npy_of_ml_dtypes_both_ways(stctl, tmp_path, dtype):
    array = np.array([[1, 2, 0.5, 4], [4, 1, 2, 1]]).astype(NUMPY[dtype])
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [2, 4], tensor_bytes(dtype, array))})
    stctl("get", path, "w", "-o", tmp_path / "w.npy")
    assert np.array_equal(np.load(tmp_path / "w.npy").view(NUMPY[dtype]), array)
    new = array[::-1].copy()
    np.save(tmp_path / "new.npy", new)  # as ml_dtypes writes it
    stctl("update", path, "w", "--npy", tmp_path / "new.npy")
    assert ours(stctl, path, "w") == tensor_bytes(dtype, new)
    stctl("update", path, "w", "--npy", tmp_path / "w.npy")  # as we write it
    assert ours(stctl, path, "w") == tensor_bytes(dtype, array)
    stctl("put", path, "v", "--npy", tmp_path / "new.npy", "--dtype", dtype)
    assert ours(stctl, path, "v") == tensor_bytes(dtype, new)
    [v] = stctl.json("ls", path, "v")["tensors"]
    assert (v["dtype"], v["shape"]) == (dtype, [2, 4])


@pytest.mark.parametrize("dtype", [d for d in BITS if BITS[d] < 8])
def test_npy_of_less_than_bytes_is_whole_or_refused(stctl, tmp_path, dtype):
    """A byte that is missing, one too many, and bits that no element has: packing would hide all three."""
    array = np.array([1, 2, 0.5, 4]).astype(NUMPY[dtype])
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [4], tensor_bytes(dtype, array))})
    before = path.read_bytes()
    np.save(tmp_path / "new.npy", array)
    whole = (tmp_path / "new.npy").read_bytes()
    for bad in [whole[:-1], whole + b"\0", whole[:-1] + bytes([1 << BITS[dtype]])]:
        (tmp_path / "new.npy").write_bytes(bad)
        for change in [["put", path, "v", "--dtype", dtype], ["update", path, "w"]]:
            assert "new.npy" in stctl(*change, "--npy", tmp_path / "new.npy", code=1)[1]
            assert path.read_bytes() == before


def test_bf16_needs_no_name_and_bytes_do(stctl, model, tmp_path):
    np.save(tmp_path / "b.npy", np.ones(3, ml_dtypes.bfloat16))
    stctl("put", model, "b", "--npy", tmp_path / "b.npy")
    assert stock(model)["b"].dtype == ml_dtypes.bfloat16
    np.save(tmp_path / "f.npy", np.ones(3, ml_dtypes.float8_e4m3fn))
    before = model.read_bytes()
    assert "--dtype" in stctl("put", model, "f", "--npy", tmp_path / "f.npy", code=1)[1]
    assert model.read_bytes() == before


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_get_makes_safetensors_files(stctl, tmp_path, dtype):
    array = np.arange(12).reshape(3, 4).astype(NUMPY[dtype])
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [3, 4], tensor_bytes(dtype, array))})
    stctl("get", path, "w", "--slice", ":,1:3", "-o", tmp_path / "w.safetensors")
    back = load_file(tmp_path / "w.safetensors")
    assert list(back) == ["w"] and back["w"].dtype == array.dtype and np.array_equal(back["w"], array[:, 1:3])
    stctl("get", path, "w", "--cast", "F16", "-o", tmp_path / "w.safetensors")
    assert np.array_equal(load_file(tmp_path / "w.safetensors")["w"], array.astype(np.float16))
    stctl("update", path, "--from", tmp_path / "w.safetensors", "--cast")
    assert np.array_equal(stock(path)["w"], array)


# What every one of them holds, and what falls between numbers of the smaller ones.
EXACT = np.array([1, 2, 4, 1])
BETWEEN = np.array([0.3, 1.125, 1.375, -0.7, 2.5, -2.5, 3.5, 0.0, -0.0, 1.0009765625, 1.0029296875, 2.75])


@pytest.mark.parametrize("to", BITS)
@pytest.mark.parametrize("dtype", BITS)
def test_every_dtype_is_cast_to_every_other(stctl, tmp_path, dtype, to):
    values = np.ones(4) if "BOOL" in (dtype, to) else EXACT
    raw = tensor_bytes(dtype, values.astype(NUMPY[dtype]))
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [2, 2], raw)})
    out, err = stctl("get", path, "w", "--cast", to, "-o", tmp_path / "w")
    assert (tmp_path / "w").read_bytes() == tensor_bytes(to, values.astype(NUMPY[to]))
    assert out == "" and ("ties to even" in err) == (dtype != to)


@pytest.mark.parametrize("to", [d for d in SIGNED if d[0] in "BF"])
@pytest.mark.parametrize("dtype", ["F64", "F32", "BF16"])
def test_casts_to_floats_are_those_of_ml_dtypes(stctl, tmp_path, dtype, to):
    random = np.random.default_rng(3).uniform(-6, 6, 500)
    array = np.concatenate([BETWEEN, random]).astype(NUMPY[dtype])
    if dtype == "F64":  # from there ml_dtypes rounds twice
        array = array.astype(np.float32).astype(np.float64)
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [len(array)], array.tobytes())})
    stctl("get", path, "w", "--cast", to, "-o", tmp_path / "w")
    assert (tmp_path / "w").read_bytes() == tensor_bytes(to, array.astype(np.float32).astype(NUMPY[to]))


@pytest.mark.parametrize("to", ["F16", "BF16", "F8_E5M2"])
def test_every_kind_of_f32_is_cast(stctl, tmp_path, to):
    """Each exponent, with what lies at and beside the ties of its fractions; NaNs; and what is beyond the range."""
    edges = {(odd << bit) + beside for bit in range(23) for odd in (0, 1, 3) for beside in (-1, 0, 1)}
    fractions = np.array([e % (1 << 23) for e in edges], np.uint32)
    codes = (np.arange(512, dtype=np.uint32) << 23)[:, None] | fractions
    array = codes.ravel().view(np.float32)
    path = write(tmp_path / "m.safetensors", {"w": ("F32", [array.size], array.tobytes())})
    stctl("get", path, "w", "--cast", to, "-o", tmp_path / "w")
    got = np.frombuffer((tmp_path / "w").read_bytes(), NUMPY[to])
    with np.errstate(over="ignore", invalid="ignore"):
        want = array.astype(NUMPY[to])
    numbers = ~np.isnan(array)
    assert got[numbers].tobytes() == want[numbers].tobytes()
    assert np.isnan(got[~numbers].astype(np.float32)).all()


@pytest.mark.parametrize("kind", ["raw", "packed npy", "put of a file", "update of a file"])
def test_a_source_that_is_cut_while_it_is_cast(stctl, model, tmp_path, kind):
    """It is read, and not mapped: the command ends by no SIGBUS. It has taken all of it, or changed nothing."""
    source, n = tmp_path / "source", 4 << 20
    put = ["put", "-q", model, "n"]
    if kind == "raw":
        source.write_bytes(np.ones(n, np.float32).tobytes())
        put += ["--from-raw", source, "--dtype", "F32", "--shape", n, "--cast", "I16"]
    elif "file" in kind:
        write(source, {"n": ("F32", [n], np.ones(n, np.float32).tobytes())})
        put += ["--from", source, "--cast", "I16"]
        if "update" in kind:
            stctl(*map(str, put))
            put = ["update", *put[1:-1]]
    else:
        with open(source, "wb") as file:
            np.save(file, np.full(32 * n, 2, np.uint8).view(ml_dtypes.float4_e2m1fn))
        put += ["--npy", source, "--dtype", "F4"]

    def has_it_open(process):
        try:
            folder = Path(f"/proc/{process.pid}")
            is_mapped = str(source) in (folder / "maps").read_text()
            return is_mapped or any(os.path.samefile(fd, source) for fd in (folder / "fd").iterdir())
        except OSError:
            return False

    def is_cut_while_it_is_open():
        with stctl.popen(*map(str, put), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None:
                if has_it_open(process):
                    os.truncate(source, 0)
                    assert process.wait(60) in (0, 1)
                    return process
                time.sleep(0.001)
        assert process.returncode == 0  # it was too fast

    for _ in range(50):
        before = model.read_bytes()
        if process := is_cut_while_it_is_open():
            break
    else:
        pytest.fail("it was never seen with its source open")
    if process.returncode == 1:
        assert model.read_bytes() == before
        return
    content = model.read_bytes()
    data = 8 + int.from_bytes(content[:8], "little")
    begin, end = json.loads(content[8:data])["n"]["data_offsets"]
    want = bytes([0x22]) * (16 * n) if kind == "packed npy" else np.ones(n, np.int16).tobytes()
    assert content[data + begin : data + end] == want


def test_casts_to_integers_round_to_even(stctl, tmp_path):
    array = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 2.4])
    path = write(tmp_path / "m.safetensors", {"w": ("F64", [7], array.tobytes())})
    assert stctl.json("get", path, "w", "--cast", "I8")["values"] == [0, 2, 2, 0, -2, 126, 2]
    big = np.array([2**63 - 1, -(2**63), 2**53 + 1], np.int64)
    path = write(tmp_path / "m.safetensors", {"w": ("I64", [3], big.tobytes())})
    assert np.array_equal(np.array(stctl.json("get", path, "w", "--cast", "F64")["values"]), big.astype(np.float64))
    assert np.array_equal(
        np.array(stctl.json("get", path, "w", "--cast", "F32")["values"], np.float32), big.astype(np.float32)
    )


@pytest.mark.parametrize(
    "dtype, value, to, want",
    [
        ("I64", 2**53 + 1, "U64", 2**53 + 1), ("I64", 2**63 - 1, "U64", 2**63 - 1), ("I64", -1, "U64", None),
        ("U64", 2**53 + 1, "I64", 2**53 + 1), ("U64", 2**63 - 1, "I64", 2**63 - 1), ("U64", 2**63, "I64", None),
        ("U64", 2**64 - 1, "F64", 2.0**64), ("I64", -(2**63), "F64", -(2.0**63)),
        ("U64", 2**61 + 2**37 + 1, "F32", 2**61 + 2**38), ("I64", -(2**61) - 2**37 - 1, "F32", -(2**61) - 2**38),
        ("U64", 2**63 + 2**55, "BF16", 2**63), ("U64", 2**63 + 2**55 + 1, "BF16", 2**63 + 2**56),
        ("U64", 2**63 + 2**62, "F8_E8M0", 2.0**64), ("U64", 2**63 + 2**62 - 1, "F8_E8M0", 2.0**63),
    ],
)  # fmt: skip
def test_integers_that_no_double_holds_are_cast_at_once(stctl, tmp_path, dtype, value, to, want):
    """By a double some would change, and others be rounded twice. On some machines a long double is one."""
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [1], np.array([value], NUMPY[dtype]).tobytes())})
    stctl("get", path, "w", "--cast", to, "-o", tmp_path / "w", code=1 if want is None else 0)
    if want is not None:
        assert (tmp_path / "w").read_bytes() == np.array([want]).astype(NUMPY[to]).tobytes()


@pytest.mark.parametrize(
    "value, to, want",
    [
        (1e6, "F16", "Infinity"), (-1e6, "F8_E5M2", "-Infinity"), (1e300, "F32", "Infinity"),
        (1e300, "BF16", "Infinity"), (np.nan, "F8_E4M3", "NaN"), (np.nan, "BF16", "NaN"),
        (500.0, "F8_E8M0", 512.0), (3.0, "F8_E8M0", 4.0), (500.0, "F8_E4M3", None),
        (np.inf, "F8_E4M3FNUZ", None), (7.0, "F4", None), (np.nan, "F6_E2M3", None), (127.5, "I8", None),
        (-1.0, "U64", None), (2.0**64, "U64", None), (np.nan, "I32", None), (0.0, "F8_E8M0", None),
    ],
)  # fmt: skip
def test_what_is_out_of_range(stctl, tmp_path, value, to, want):
    """Infinity where the dtype has it; else nothing is done."""
    path = write(tmp_path / "m.safetensors", {"w": ("F64", [2], np.array([value, value]).tobytes())})
    before = path.read_bytes()
    result = stctl.json("get", path, "w", "--cast", to, code=0 if want else 1)
    if want:
        assert result["values"] == [want, want]
        assert (result["dtype"], result["cast_from"]) == (to, "F64")
    else:
        assert to in result["error"]["message"]
        stctl("put", path, "w", "--from", path, "--cast", to, code=1)
        assert path.read_bytes() == before


def test_put_casts_what_it_puts(stctl, model, arrays, tmp_path):
    out, _ = stctl("put", model, "layer.0.weight", "--from", model, "--cast", "BF16")
    assert "layer.0.weight: cast from F32 to BF16, each to the nearest, ties to even" in out
    got = stock(model)["layer.0.weight"]
    assert np.array_equal(got, arrays["layer.0.weight"].astype(ml_dtypes.bfloat16)) and got.dtype == ml_dtypes.bfloat16
    np.save(tmp_path / "n.npy", np.arange(12, dtype=np.float64).reshape(3, 4) / 7)
    error = stctl.json("update", model, "layer.0.weight", "--npy", tmp_path / "n.npy", code=1)["error"]
    assert error["status"] == "ST_E_DTYPE_MISMATCH"
    err = stctl("update", model, "layer.0.weight", "--npy", tmp_path / "n.npy", "--cast")[1]
    assert "layer.0.weight: cast from F64 to BF16" in err
    want = np.load(tmp_path / "n.npy").astype(np.float32).astype(ml_dtypes.bfloat16)
    assert np.array_equal(stock(model)["layer.0.weight"], want)


@pytest.mark.parametrize("command", ["put", "update"])
def test_casts_hold_one_tensor_in_memory(stctl, tmp_path, command):
    n, each = 24, 1 << 20
    raw = np.arange(each).astype(np.uint8).tobytes()
    small = write(tmp_path / "small.safetensors", {f"t{i}": ("U8", [each], raw) for i in range(n)})
    path = write(tmp_path / "m.safetensors", {"other": ("U8", [1], b"x")})
    if command == "update":
        path = write(tmp_path / "m.safetensors", {f"t{i}": ("F64", [each], bytes(8 * each)) for i in range(n)})
    cast = ["--cast", "F64"] if command == "put" else ["--cast"]
    peak = stctl.peak(command, path, "--from", small, *cast)
    assert peak < 128 << 10  # of 192 MiB that are cast, and 24 that are mapped
    assert ours(stctl, path, f"t{n - 1}") == np.arange(each).astype(np.uint8).astype(np.float64).tobytes()
