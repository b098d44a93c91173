"""Turn a numpy array into the st_tensor of an update."""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _abi
from ._names import Description
from .dtypes import BYTES, NAMES, NUMBERS, PACKED
from .errors import DtypeMismatchError

_BY_NAME = {name: number for number, name in NAMES.items()}


class Packed(NamedTuple):
    """A tensor as the bytes of its elements, of any type of the format: F4 and F6, which numpy has not, or others."""

    #: The name in a header: "F4".
    dtype: str
    #: The logical shape.
    shape: Sequence[int]
    #: A C-contiguous array whose bytes they are.
    data: Any


def payload(array: Any, wanted: Description) -> tuple[_abi.Tensor, Any]:
    """A description of `array`, and the array whose memory it points into.

    Keep the second for as long as C uses the first. `wanted` describes the tensor in
    the file: of sub-byte types an array holds only packed bytes, so their dtype
    and shape are taken from there. Everything else is left to the library to
    compare, so that its sentence tells what differs.
    """
    array = np.asarray(array, order="C")
    tensor = _abi.Tensor(nbytes=array.nbytes, data=array.__array_interface__["data"][0])
    shape = array.shape
    if wanted.dtype in PACKED and array.dtype == BYTES and array.ndim == 1:
        tensor.dtype = wanted.dtype
        shape = wanted.shape
    else:
        tensor.dtype = _number(array.dtype)
    tensor.rank = len(shape)
    tensor.shape = (ctypes.c_uint64 * max(len(shape), 1))(*shape)
    return tensor, array


def new_payload(value: Any) -> tuple[_abi.Tensor, Any]:
    """The same for a tensor that no file describes yet: an array, or Packed."""
    packed = value if isinstance(value, Packed) else None
    array = np.asarray(packed.data if packed else value, order="C")
    if packed and packed.dtype not in _BY_NAME:
        raise DtypeMismatchError(f"the format has no element type named {packed.dtype!r}")
    shape = tuple(packed.shape) if packed else array.shape
    tensor = _abi.Tensor(nbytes=array.nbytes, data=array.__array_interface__["data"][0])
    tensor.dtype = _BY_NAME[packed.dtype] if packed else _number(array.dtype)
    tensor.rank = len(shape)
    tensor.shape = (ctypes.c_uint64 * max(len(shape), 1))(*shape)
    return tensor, array


def _number(dtype: "np.dtype[Any]") -> int:
    number = NUMBERS.get(dtype)
    if number is not None:
        return number
    if dtype.newbyteorder("<") in NUMBERS:
        raise DtypeMismatchError(
            f"the array is big-endian ({dtype.str}) and the format little-endian; "
            "convert it with array.astype(array.dtype.newbyteorder('<'))"
        )
    raise DtypeMismatchError(
        f"the format has no element type for numpy's {dtype}; "
        "packed 4- and 6-bit elements are given as a flat uint8 array"
    )
