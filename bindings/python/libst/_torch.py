"""Lay torch tensors over bytes, and bytes over torch tensors. Imports torch when first asked, and never otherwise."""

import ctypes
import importlib
from math import prod
from typing import Any

import numpy as np

from ._rows import address, new_array
from .dtypes import BYTES
from .errors import refusal
from .status import Status

# What torch calls the element types of the format. Older versions lack some; F6 none has.
TORCH_NAMES = {
    "BOOL": "bool",
    "F4": "float4_e2m1fn_x2",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
_NAMES = {f"torch.{kind}": name for name, kind in TORCH_NAMES.items()}


# torch's dtype and the bytes of an element, for element types that were asked for. By the name in a header.
_kinds: dict[str, tuple[Any, int]] = {}
_torch: Any = None


def _kind(name: str) -> tuple[Any, int]:
    global _torch
    found = _kinds.get(name)
    if found is None:
        _torch = importlib.import_module("torch")
        kind = getattr(_torch, TORCH_NAMES.get(name, ""), None)
        if kind is None:
            raise refusal(
                Status.UNSUPPORTED,
                f"torch {_torch.__version__} has no type for {name}; read it with numpy, as packed bytes",
            )
        found = _kinds[name] = kind, _torch.empty((), dtype=kind).element_size()
    return found


def torch_dtype(name: str) -> Any:
    """torch's dtype for a header's "BF16"."""
    return _kind(name)[0]


def torch_tensor(array: "np.ndarray[Any, Any]", dtype: str, shape: "tuple[int, ...]") -> Any:
    """A tensor over the memory of `array`, which may be written and which it keeps alive.

    dtype: as in a header; it may be another than numpy's, as numpy has not all of them.
    shape: in elements; packed F4 counts two to a torch element, as torch does.
    """
    if not array.nbytes:
        return laid_over(None, 0, 0, 0, dtype, shape)
    return laid_over(array.reshape(-1).view(BYTES), address(array), 0, array.nbytes, dtype, shape)


def laid_over(buffer: Any, address: int, offset: int, nbytes: int, dtype: str, shape: "tuple[int, ...]") -> Any:
    """A tensor in writable memory, which it keeps alive. It is the whole of its storage, so that who saves, pickles or
    copies it takes no more.

    address: where its bytes are; offset: where they are in the buffer.
    """
    kind, size = _kinds.get(dtype) or _kind(dtype)
    if dtype == "F4":
        shape = _in_pairs(shape)
    if not nbytes:
        return _torch.empty(shape, dtype=kind, device="cpu")  # whatever is torch's default
    if address % size:  # a file may begin its data anywhere
        buffer, offset = bytearray(memoryview(buffer)[offset : offset + nbytes]), 0
    return _shaped(_torch.frombuffer(buffer, dtype=kind, count=nbytes // size, offset=offset), shape)


def new_tensor(dtype: str, shape: "tuple[int, ...]") -> "tuple[Any, int, int]":
    """A tensor in memory of its own, not filled; its address, and its bytes."""
    kind, size = _kinds.get(dtype) or _kind(dtype)
    if dtype == "F4":
        shape = _in_pairs(shape)
    nbytes = prod(shape) * size
    if not nbytes:
        return _torch.empty(shape, dtype=kind, device="cpu"), 0, 0
    array, place = new_array((nbytes,), BYTES)  # numpy asks for huge pages where torch does not
    return _shaped(_torch.frombuffer(array, dtype=kind), shape), place, nbytes


def _shaped(flat: Any, shape: "tuple[int, ...]") -> Any:
    """As many elements in another shape: the same tensor, as a view would keep two. Of what loses its last dimension
    torch would still tell its extent."""
    if shape:
        try:
            return flat.resize_(shape)
        except (AssertionError, RuntimeError):  # a transform or mode of torch's lets nothing be changed
            pass
    return flat.view(shape)


def _in_pairs(shape: "tuple[int, ...]") -> "tuple[int, ...]":
    """How torch counts the elements of F4."""
    if not shape:
        return shape
    if shape[-1] % 2:
        text = f"torch has elements of F4 in pairs, and the last dimension of {list(shape)} is odd"
        raise refusal(Status.UNSUPPORTED, f"{text}; read it with numpy, as packed bytes")
    return (*shape[:-1], shape[-1] // 2)


def told_form(tensor: Any) -> tuple[str, tuple[int, ...], int]:
    """What a tensor is in a file: its element type as in a header, its shape in elements, its bytes."""
    name = _NAMES.get(str(tensor.dtype))
    if name is None:
        text = f"the format has no element type for {tensor.dtype}; convert it with tensor.to(...)"
        raise refusal(Status.DTYPE_MISMATCH, text)
    if getattr(tensor, "is_nested", False):
        raise refusal(Status.UNSUPPORTED, "the format has no nested tensors; write those of tensor.unbind()")
    shape = tuple(tensor.shape)
    if name == "F4" and shape:
        shape = (*shape[:-1], shape[-1] * 2)  # torch counts pairs
    return name, shape, tensor.nelement() * tensor.element_size()


def is_ready(tensor: Any) -> bool:
    """Whether a tensor's elements lie in this machine's memory, one behind the other, as they are."""
    strided = str(tensor.layout) == "torch.strided" and tensor.device.type == "cpu"
    return strided and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def bytes_of(tensor: Any) -> "np.ndarray[Any, Any]":
    """The bytes of a tensor's elements, in memory that they keep: its own if it `is_ready`, else that of a copy."""
    if str(tensor.layout) != "torch.strided":
        text = f"the format has no sparse tensors ({tensor.layout}); write tensor.to_dense()"
        raise refusal(Status.UNSUPPORTED, text)
    if tensor.device.type == "meta":
        raise refusal(Status.UNSUPPORTED, "the tensor is on the device meta, so it has no bytes that could be written")
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    nbytes = dense.nelement() * dense.element_size()
    if not nbytes:
        return np.empty(0, np.uint8)
    if not dense.data_ptr():  # numpy would make new memory of it, and nobody has filled that
        kind = type(tensor).__name__
        text = f"the tensor is a {kind} without memory of its own; write the plain tensor behind it"
        raise refusal(Status.UNSUPPORTED, f"{text} (of a DTensor to_local() or full_tensor()), or a clone() of it")
    memory: Any = (ctypes.c_ubyte * nbytes).from_address(dense.data_ptr())
    memory.owner = dense
    return np.frombuffer(memory, np.uint8)
