"""The tensors of a file that has few of them, one by one. Columns of numpy's, as in _rows.py, cost more than they spare
there: a data set of small files is opened file by file."""

import struct
from ctypes import c_void_p, sizeof, string_at
from typing import Any

from . import _abi
from ._abi import SIZES
from ._handle import Handle
from ._rows import MEMORY, new_array
from .dtypes import BYTES
from .errors import error

FEW = 8  # tensors
SOME = 128  # of which only dtypes and shapes are wanted

_ROWS: list[Any] = [_abi.Tensor * count for count in range(FEW + 1)]

#: Name, dtype, shape, bytes, file offset.
Tensor = tuple[str, int, tuple[int, ...], int, int]

_row = struct.Struct("@PNIIPPQQ24x")  # st_tensor
_request = struct.Struct("@PNNPNPNQ").pack  # st_read_request
if _row.size != sizeof(_abi.Tensor) or struct.calcsize("@PNNPNPNQ") != sizeof(_abi.ReadRequest):
    raise ImportError("st_tensor or st_read_request has another layout than _few.py has")


def few_tensors(handle: Handle, count: int) -> list[Tensor]:
    """All tensors of one file, so many, in the order of the file."""
    try:
        rows = _ROWS[count]()
        status = _abi.bare_at(handle, SIZES[0], SIZES[count], rows)
        if status:
            raise error(status)
        return [
            (string_at(name, length).decode(), dtype, tuple(MEMORY[at // 8 - 1 : at // 8 - 1 + rank]), nbytes, offset)
            for name, length, dtype, rank, at, _, nbytes, offset in _row.iter_unpack(rows)
        ]
    finally:
        del handle  # see _pin.py


def some_forms(handle: Handle, count: int) -> list[tuple[int, tuple[int, ...]]]:
    """Dtype and shape of all tensors of one file, so many, in the order of the file."""
    try:
        rows, place = new_array((count * _row.size,), BYTES)
        status = _abi.bare_at(handle, SIZES[0], SIZES[count], c_void_p(place))
        if status:
            raise error(status)
        return [
            (dtype, tuple(MEMORY[at // 8 - 1 : at // 8 - 1 + rank]))
            for _, _, dtype, rank, at, _, _, _ in _row.iter_unpack(rows.data)
        ]
    finally:
        del handle


def requests(addresses: "list[tuple[int, int]]") -> bytes:
    """The st_read_requests that read each tensor, by its number, to an address that has room for so many bytes."""
    return b"".join([_request(0, 0, i, place, nbytes, 0, 0, 0) for i, (place, nbytes) in enumerate(addresses)])
