"""Turn an array of numpy or torch into the st_tensor of a change or a save."""

import ctypes
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from . import _abi
from ._arguments import number
from ._index import Part
from ._rows import Columns, address
from ._torch import bytes_of, is_ready, told_form
from .dtypes import BYTES, NAMES, NUMBERS, PACKED
from .errors import Error, refusal
from .status import Status

_BY_NAME = {name: number for number, name in NAMES.items()}
_masked: Any = np.ma  # whose functions have no types
_NESTED = (Mapping, list, tuple)  # what may hold tensors


class Packed(NamedTuple):
    """A tensor as the bytes of its elements, of any type of the format: F4 and F6, which numpy has not, or others."""

    #: The name in a header: "F4".
    dtype: str
    #: The logical shape.
    shape: Sequence[int]
    #: A C-contiguous array whose bytes they are.
    data: Any


#: What a value will be in a file, told without a copy of it: dtype, shape, bytes; and whether its bytes lie in memory
#: as the file will have them. Those of another are copied when they are taken.
Form = tuple[int, tuple[int, ...], int, bool]


def form_of(value: Any) -> Form:
    if type(value) is np.ndarray:
        return NUMBERS.get(value.dtype) or _number(value.dtype), value.shape, value.nbytes, value.flags.c_contiguous
    if isinstance(value, Packed):
        dtype, shape = _form_of_packed(value)
        data = np.asanyarray(value.data)
        _refuse_mask(data)
        if data.dtype.hasobject:
            raise refusal(Status.DTYPE_MISMATCH, f"the bytes of an array of {data.dtype} are addresses, not values")
        ready = isinstance(value.data, np.ndarray) and data.flags.c_contiguous
        return dtype, shape, data.nbytes, ready
    if _is_torch(value):
        name, shape, nbytes = told_form(value)
        return _BY_NAME[name], shape, nbytes, is_ready(value)
    if not isinstance(value, np.ndarray):
        told = _told_form(value)
        if told is not None:
            return told
        value = _array_of(value)
        _refuse_mask(value)
        return _number(value.dtype), value.shape, value.nbytes, False
    _refuse_mask(value)
    return _number(value.dtype), value.shape, value.nbytes, value.flags.c_contiguous


def _form_of_packed(value: Packed) -> tuple[int, tuple[int, ...]]:
    """An array or a number may stand in another's place, and ctypes would cut a large one."""
    if not isinstance(value.dtype, str):
        kind = type(value.dtype).__name__
        raise refusal(Status.DTYPE_MISMATCH, f"the dtype of a libst.Packed is a name, such as 'F4', not of type {kind}")
    if value.dtype not in _BY_NAME:
        raise refusal(Status.DTYPE_MISMATCH, f"the format has no element type named {value.dtype!r}")
    if isinstance(value.shape, (str, bytes)) or not isinstance(value.shape, Iterable):
        raise TypeError(f"the shape of a libst.Packed is a tuple of numbers, not {value.shape!r}")
    return _BY_NAME[value.dtype], tuple(number("a dimension", extent, 2**64 - 1) for extent in value.shape)


def _refuse_mask(array: Any) -> None:
    if _masked.is_masked(array):
        raise refusal(
            Status.UNSUPPORTED,
            "the array has masked elements, and the format has no masks; "
            "write array.filled(...), or array.data and the mask as a tensor of its own",
        )


def _array_of(value: Any) -> Any:
    """What numpy makes of a value that is no array: of numbers, and of lists of numbers."""
    if hasattr(value, "__array__"):
        return np.asanyarray(value)
    if isinstance(value, (str, bytes, Mapping)):  # numpy takes the keys of some mappings
        raise _no_array(value)
    for part in value if isinstance(value, (list, tuple)) else ():
        _refuse_mask(part)  # numpy forgets it
    array = np.asanyarray(value)
    if array.dtype.hasobject:
        raise _no_array(value)
    return array


def _no_array(value: Any) -> Error:
    kind = type(value).__name__
    text = "None" if value is None else f"{'an' if kind[0] in 'AEIOaeio' else 'a'} {kind}"
    hint = "; flatten it, to tensors with names such as 'model.weight'" if isinstance(value, _NESTED) else ""
    if hasattr(value, "state_dict"):
        hint = "; write the tensors of its state_dict()"
    return refusal(Status.DTYPE_MISMATCH, f"it is {text}, no array or tensor{hint}")


def _told_form(value: Any) -> Optional[Form]:
    """As an array of another library tells it, such as h5py's or jax's: to make it numpy's may read a file."""
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if not isinstance(dtype, np.dtype) or not isinstance(shape, tuple):
        return None
    if not hasattr(value, "__array__") or not all(isinstance(extent, int) and extent >= 0 for extent in shape):
        return None
    return _number(dtype), shape, math.prod(shape) * dtype.itemsize, False


def payload(name: str, value: Any) -> tuple[_abi.Tensor, Any]:
    """A description of a value, and the array whose memory it points into. An error tells the name.

    Keep the second for as long as C uses the first. Whether it fits a tensor in a file is left to the library to
    compare, so that its sentence tells what differs.
    """
    try:
        value = _converted(value)
        dtype, shape, nbytes, _ = form_of(value)
        array = _bytes_of(value)
    except Error as error:
        raise _of(name, error) from None
    except Exception as error:
        _note(name, error)
        raise
    tensor = _abi.Tensor(nbytes=nbytes)
    _set_form(tensor, dtype, shape)
    tensor.data = address(array)
    return tensor, array


def as_it_is_now(tensors: Mapping[str, Any]) -> Mapping[str, Any]:
    """A dict that another thread may change, copied; of a class of its own by what it gives out, and not by its `copy`.
    Other mappings as they are: they may make their values when asked."""
    if type(tensors) is dict:
        return tensors.copy()
    return dict(tensors.items()) if isinstance(tensors, dict) else tensors


def columns_of(tensors: Mapping[str, Any]) -> tuple[Columns, Optional[list[Any]]]:
    """What many values will be in a file. And the values, if all of them are `ready`; else None, and addresses are no
    use.

    Keep the values for as long as C uses the addresses: a mapping may make each value anew when it is asked, and other
    threads may put others in a dict."""
    columns = Columns(len(tensors))
    kept: Optional[list[Any]] = []
    for name, value in tensors.items():
        try:
            dtype, shape, nbytes, ready = form_of(value)
            address = address_of(value) if ready else 0
        except Error as error:
            raise _of(name, error) from None
        except Exception as error:
            _note(name, error)
            raise
        if not ready:
            kept = None
        if kept is not None:
            kept.append(value)
        columns.add(dtype, shape, nbytes, address)
    return columns, kept


def _of(name: str, error: Error) -> Error:
    """The error, told of a tensor."""
    return refusal(Status(error.status), f"{name!r}: {error.message}", name)


def _note(name: str, error: Exception) -> None:
    """What numpy, torch or another library raises stays as it is."""
    if sys.version_info >= (3, 11):
        error.add_note(f"libst: this is of the tensor {name!r}")


def address_of(value: Any) -> int:
    """Where the bytes of a value lie that is ready; they stay there while it lives."""
    return address(value if type(value) is np.ndarray else _bytes_of(value))


def _converted(value: Any) -> Any:
    """An array of numpy or torch, or bytes of `Packed`: what else there is, is asked for its elements once."""
    if isinstance(value, Packed):
        return value._replace(data=np.asanyarray(value.data))
    return value if isinstance(value, np.ndarray) or _is_torch(value) else _array_of(value)


def _bytes_of(value: Any) -> Any:
    if _is_torch(value):
        return bytes_of(value)
    return np.asarray(value.data if isinstance(value, Packed) else value, order="C")


def may_be_packed(value: Any, tensor: _abi.Tensor) -> bool:
    """Whether these may be the bytes of elements that numpy has not: then the file says of which, and what shape."""
    return tensor.dtype == NUMBERS[BYTES] and tensor.rank == 1 and not isinstance(value, Packed)


def take_form(tensor: _abi.Tensor, wanted: tuple[int, tuple[int, ...]]) -> None:
    """Let flat bytes be elements of the dtype and shape that are wanted, if numpy has no such."""
    if wanted[0] in PACKED:
        _set_form(tensor, *wanted)


def fit(name: str, tensor: _abi.Tensor, value: Any, wanted: tuple[int, tuple[int, ...]], part: Part) -> None:
    """Give a value the shape that C has for a part of the tensor of that name, whose dtype and shape are `wanted`."""
    shape = tuple(tensor.shape[: tensor.rank])
    if wanted[0] in PACKED and may_be_packed(value, tensor):
        _set_form(tensor, wanted[0], part.full)
    elif shape == part.shape:
        _set_form(tensor, tensor.dtype, part.full)
    else:
        sentence = f"the part has shape {list(part.shape)}, but the new values have {list(shape)}"
        raise refusal(Status.SHAPE_MISMATCH, f"{name!r}: {sentence}", name)


def _is_torch(value: Any) -> bool:
    # Where there is a tensor of it, it was imported. While another thread imports it, it has no such class yet.
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(value, kind)


def _set_form(tensor: _abi.Tensor, dtype: int, shape: tuple[int, ...]) -> None:
    tensor.dtype = dtype
    tensor.rank = len(shape)
    tensor.shape = (ctypes.c_uint64 * max(len(shape), 1))(*shape)


def _in_order(dtype: "np.dtype[Any]") -> "np.dtype[Any]":
    """The type with the byte order of the format, if it has an order: texts have none."""
    try:
        return dtype.newbyteorder("<")
    except TypeError:
        return dtype


def _number(dtype: "np.dtype[Any]") -> int:
    number = NUMBERS.get(dtype)
    if number is not None:
        return number
    if _in_order(dtype) in NUMBERS:
        raise refusal(
            Status.DTYPE_MISMATCH,
            f"the array is big-endian ({dtype.str}) and the format little-endian; "
            "convert it with array.astype(array.dtype.newbyteorder('<'))",
        )
    text = f"the format has no element type for numpy's {dtype}"
    if dtype.name.startswith(("float4_", "float6_")):  # of ml_dtypes, a byte each
        text += "; pack them, and give the bytes as libst.Packed, or for an update as a flat uint8 array"
    raise refusal(Status.DTYPE_MISMATCH, text)
