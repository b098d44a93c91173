"""Safetensors files for the tests of stctl: written here byte by byte where stock cannot (exotic
dtypes, odd names, broken headers), and read back by stock safetensors wherever it can."""

import json
import pathlib
import struct
import time

import ml_dtypes
import numpy as np
from safetensors import safe_open

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip

# What each dtype is to numpy: one element each, also for the packed ones.
NUMPY = {
    "BOOL": np.bool_, "F4": ml_dtypes.float4_e2m1fn, "F6_E2M3": ml_dtypes.float6_e2m3fn,
    "F6_E3M2": ml_dtypes.float6_e3m2fn, "U8": np.uint8, "I8": np.int8, "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz, "I16": np.int16,
    "U16": np.uint16, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I32": np.int32, "U32": np.uint32,
    "F32": np.float32, "C64": np.complex64, "F64": np.float64, "I64": np.int64, "U64": np.uint64,
}  # fmt: skip

IN_NUMPY = [name for name, kind in NUMPY.items() if np.dtype(kind).isbuiltin == 1]


def pack(codes, bits):
    """Codes of 4 or 6 bits, packed from the low bits up; of 8 and more as they are."""
    if bits >= 8:
        return np.asarray(codes, dtype=f"<u{bits // 8}").tobytes()
    ones = (np.asarray(codes, dtype=np.uint8)[:, None] >> np.arange(bits)) & 1
    return np.packbits(ones.astype(np.uint8).ravel(), bitorder="little").tobytes()


def tensor_bytes(dtype, array):
    """The bytes in a file of an array of NUMPY[dtype]."""
    array = np.ascontiguousarray(array, dtype=NUMPY[dtype])
    return pack(array.view(np.uint8).ravel(), BITS[dtype]) if BITS[dtype] < 8 else array.tobytes()


def header_and_data(header, data=b""):
    """A file of that header: a dict, or bytes that need not be JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write(path, tensors, metadata=None):
    """tensors: {name: (dtype, shape, bytes)}, in the order of the file."""
    header = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, (dtype, shape, payload) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(payload)]}
        data += payload
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    path.write_bytes(header_and_data(text, data))
    return path


def sparse(path, name, nbytes):
    """One U8 tensor of zeros that takes no disk."""
    header = json.dumps({name: {"dtype": "U8", "shape": [nbytes], "data_offsets": [0, nbytes]}}).encode()
    with open(path, "wb") as file:
        file.write(header_and_data(header))
        file.truncate(8 + len(header) + nbytes)
    return path


def stock(path):
    """{name: array} as stock safetensors reads the file."""
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def wait_until(condition, process):
    """Until the condition holds; the process must not end before."""
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, f"ended with {process.returncode}"
        assert time.monotonic() < deadline
        time.sleep(0.002)


def sleeps(process):
    """How often its main thread has gone to sleep: as it waits for a lock, it does so again and again."""
    told = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(told.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def is_staged(model):
    """Has a change a journal with something in it?"""
    folder = model.with_name(model.name + ".st-journal")
    return folder.exists() and any(entry.stat().st_size for entry in folder.iterdir())
