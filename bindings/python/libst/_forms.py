"""Element type, shape, size and place of every tensor of a file: a few steps for all of them, none for each."""

import ctypes
from typing import Any

import numpy as np

from . import _abi
from ._handle import Handle
from .errors import check

#: dtype, shape, bytes, file offset
Form = tuple[int, tuple[int, ...], int, int]

_MANY = 64  # from so many on numpy's columns cost less than ctypes' structs

_NUMBERS = {"dtype": np.uint32, "rank": np.uint32, "shape": np.uint64, "nbytes": np.uint64, "file_offset": np.uint64}
_COLUMNS = np.dtype(
    {
        "names": list(_NUMBERS),
        "formats": list(_NUMBERS.values()),
        "offsets": [getattr(_abi.Tensor, name).offset for name in _NUMBERS],
        "itemsize": ctypes.sizeof(_abi.Tensor),
    }
)


def all_forms(handle: Handle) -> list[Form]:
    """In the order of `names`. Of one file, whose shapes lie in one array: see st_at_many."""
    count = _abi.st_count(handle)
    try:
        if count < _MANY:
            tensors = (_abi.Tensor * count)()
            check(_abi.st_at_many(handle, 0, count, ctypes.addressof(tensors)))
            return [(t.dtype, tuple(t.shape[: t.rank]), t.nbytes, t.file_offset) for t in tensors]
        rows: Any = np.empty(count, _COLUMNS)
        check(_abi.st_at_many(handle, 0, count, rows.__array_interface__["data"][0]))
        shapes, ranks = rows["shape"], rows["rank"]
        first = int(shapes.min())
        dims = tuple((ctypes.c_uint64 * (int((shapes // 8 + ranks).max()) - first // 8)).from_address(first))
        places = ((shapes - np.uint64(first)) // 8).tolist()
        each = [dims[place : place + rank] for place, rank in zip(places, ranks.tolist())]
        return list(zip(rows["dtype"].tolist(), each, rows["nbytes"].tolist(), rows["file_offset"].tolist()))
    finally:
        del handle
