"""safetensors.numpy: dicts of numpy arrays, to files and to bytes, and back."""

import os
from typing import Any, Optional, Union

import numpy as np

from .._payload import address_of, as_it_is_now, columns_of
from ..dtypes import NAMES, NUMBERS, NUMPY, PACKED
from . import TensorSpec, safe_open, serialize, serialize_file
from . import deserialize as deserialize
from ._bytes import check_metadata, described, write_columns
from ._open import all_arrays

Array = np.ndarray[Any, Any]

# Packed F4 and F6 are bytes.
_TYPES: dict[str, Any] = {name: NUMPY[number] for number, name in NAMES.items()}


def save(tensor_dict: dict[str, Array], metadata: Optional[dict[str, str]] = None) -> bytes:
    """The bytes of a file that holds these arrays."""
    kept: list[Array] = []
    return serialize(_flatten(tensor_dict, kept), metadata=metadata)


def save_file(
    tensor_dict: dict[str, Array],
    filename: Union[str, "os.PathLike[str]"],
    metadata: Optional[dict[str, str]] = None,
) -> None:
    """Write a file that holds these arrays, durably."""
    if not all(type(name) is str and _is_dense(array) for name, array in tensor_dict.items()):
        kept: list[Array] = []
        serialize_file(_flatten(tensor_dict, kept), filename, metadata=metadata)
        return
    check_metadata(metadata)
    tensors = as_it_is_now(tensor_dict)
    columns, arrays = columns_of(tensors)
    write_columns(tensors, columns, filename, metadata)
    del arrays  # until here


def load(data: bytes) -> dict[str, Array]:
    """The arrays of a file that lies in memory."""
    content, found = described(data)
    return {
        name: np.ndarray(
            (nbytes,) if dtype in PACKED else shape, NUMPY[dtype], bytearray(content[place : place + nbytes])
        )
        for name, dtype, shape, nbytes, place in found
    }


def load_file(filename: Union[str, "os.PathLike[str]"], *, backend: str = "mmap") -> dict[str, Array]:
    """The arrays of a file, in memory of their own; with `backend="view"` read-only views of the file."""
    if type(backend) is str and backend in ("mmap", "pread"):
        return all_arrays(filename)
    with safe_open(filename, framework="np", backend=backend) as file:
        return file.get_tensors()


# Other packages import what follows from stock, though its names begin with an underscore.


def _getdtype(dtype_str: str) -> "np.dtype[Any]":
    """numpy's dtype for a header's "F32"."""
    dtype: np.dtype[Any] = np.dtype(_TYPES[dtype_str])
    return dtype


def _view2np(safeview: list[tuple[str, dict[str, Any]]]) -> dict[str, Array]:
    """The arrays of what `deserialize` answers, over its memory."""
    arrays: dict[str, Array] = {}
    for name, tensor in safeview:
        dtype = tensor["dtype"]
        array = np.frombuffer(tensor["data"], _TYPES[dtype])
        arrays[name] = array if dtype == "F4" or dtype.startswith("F6_") else array.reshape(tensor["shape"])
    return arrays


def _is_little_endian(tensor: Array) -> bool:
    """Whether an array's elements lie as the format has them."""
    return bool(tensor.dtype.byteorder != ">")  # the machine is little-endian


def _is_dense(array: Any) -> bool:
    """Whether its elements lie in memory as the format has them."""
    return type(array) is np.ndarray and array.dtype in NUMBERS and bool(array.flags.c_contiguous)


def _flatten(tensor_dict: dict[str, Array], keep_alive_buffer: list[Any]) -> dict[str, TensorSpec]:
    """What to write; `keep_alive_buffer` holds the memory where it lies."""
    specs = {}
    names: dict[Any, str] = {}  # of dtypes: numpy makes them up anew each time
    for name, array in tensor_dict.items():
        dense = array
        if not _is_dense(array):
            # Stock would write the bytes of a transposed array in the order in which they lie, under its shape.
            dtype = array.dtype.newbyteorder("<") if array.dtype.byteorder == ">" else array.dtype
            dense = np.asarray(array, dtype, order="C")
        keep_alive_buffer.append(dense)
        dtype = names.get(dense.dtype) or names.setdefault(dense.dtype, dense.dtype.name)
        specs[name] = TensorSpec(dtype=dtype, shape=dense.shape, data_ptr=address_of(dense), data_len=dense.nbytes)
    return specs
