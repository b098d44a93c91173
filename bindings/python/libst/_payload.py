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


def payload(value: Any) -> tuple[_abi.Tensor, Any]:
    """A description of an array, or of Packed, and the array whose memory it points into.

    Keep the second for as long as C uses the first. Whether it fits a tensor in a file is left to the library to
    compare, so that its sentence tells what differs.
    """
    packed = value if isinstance(value, Packed) else None
    array = np.asarray(packed.data if packed else value, order="C")
    if packed and packed.dtype not in _BY_NAME:
        raise DtypeMismatchError(f"the format has no element type named {packed.dtype!r}")
    tensor = _abi.Tensor(nbytes=array.nbytes, data=array.__array_interface__["data"][0])
    _set_form(
        tensor,
        _BY_NAME[packed.dtype] if packed else _number(array.dtype),
        tuple(packed.shape) if packed else array.shape,
    )
    return tensor, array


def may_be_packed(value: Any, tensor: _abi.Tensor) -> bool:
    """Whether these may be the bytes of elements that numpy has not: then the file says of which, and what shape."""
    return tensor.dtype == NUMBERS[BYTES] and tensor.rank == 1 and not isinstance(value, Packed)


def take_form(tensor: _abi.Tensor, wanted: Description) -> None:
    """Let flat bytes be elements as the file has them, if it has such."""
    if wanted.dtype in PACKED:
        _set_form(tensor, wanted.dtype, wanted.shape)


def _set_form(tensor: _abi.Tensor, dtype: int, shape: tuple[int, ...]) -> None:
    tensor.dtype = dtype
    tensor.rank = len(shape)
    tensor.shape = (ctypes.c_uint64 * max(len(shape), 1))(*shape)


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
