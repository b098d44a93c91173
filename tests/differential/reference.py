"""The stock Python package `safetensors`, seen as the tests compare it: a verdict and the content."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

import safetensors
from safetensors import TensorSpec, deserialize, safe_open, serialize

assert safetensors.__version__ == "0.8.0", f"the reference is safetensors 0.8.0, not {safetensors.__version__}"

# A panic of its Rust code would be no Exception, and no verdict either: let it through.
REFUSALS = (safetensors.SafetensorError, ValueError, OSError)


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: list[int]
    data: bytes


def read(content: bytes) -> dict[str, Tensor] | None:
    """The tensors of a file in memory; None if the reference refuses it."""
    try:
        entries = deserialize(content)
    except REFUSALS:
        return None
    return {name: Tensor(t["dtype"], list(t["shape"]), bytes(t["data"])) for name, t in entries}


def accepts_file(path: str | os.PathLike, backend: str = "mmap") -> bool:
    try:
        with safe_open(path, framework="np", backend=backend):
            return True
    except REFUSALS:
        return False


def metadata(path: str | os.PathLike) -> dict[str, str]:
    with safe_open(path, framework="np") as f:
        return f.metadata() or {}


def write(tensors: dict[str, Tensor], metadata: dict[str, str] | None) -> bytes:
    """A file as stock writes it. Its TensorSpec has no name for the 6-bit types."""
    keep, specs = [], {}
    for name, t in tensors.items():
        buffer = ctypes.create_string_buffer(t.data, max(1, len(t.data)))
        keep.append(buffer)
        shape = t.shape if t.dtype != "F4" else [*t.shape[:-1], t.shape[-1] // 2]  # it takes F4 in pairs
        specs[name] = TensorSpec(
            dtype=WRITE_NAMES[t.dtype], shape=shape, data_ptr=ctypes.addressof(buffer), data_len=len(t.data)
        )
    return bytes(serialize(specs, metadata=metadata))


# The names that TensorSpec takes for dtypes: those of the frameworks, not those of the header.
WRITE_NAMES = {
    "BOOL": "bool", "F4": "float4_e2m1fn_x2", "U8": "uint8", "I8": "int8", "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16",
    "I32": "int32", "U32": "uint32", "F32": "float32", "C64": "complex64", "F64": "float64", "I64": "int64",
    "U64": "uint64",
}  # fmt: skip
