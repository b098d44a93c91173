"""Many tensors at once: C has arrays of structs, numpy sees their columns, so a tensor costs few steps of Python."""

import ctypes
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from . import _abi
from ._handle import Handle
from ._names import encoded
from .errors import error

Rows = np.ndarray[Any, Any]


def _columns(struct: Any) -> "np.dtype[Any]":
    kinds: dict[int, Any] = {4: np.uint32, 8: np.uint64}
    fields = [(name, getattr(struct, name)) for name, *_ in struct._fields_]
    fields = [(name, field) for name, field in fields if field.size in kinds]
    return np.dtype(
        {
            "names": [name for name, _ in fields],
            "formats": [kinds[field.size] for _, field in fields],
            "offsets": [field.offset for _, field in fields],
            "itemsize": ctypes.sizeof(struct),
        }
    )


TENSOR = _columns(_abi.Tensor)
REQUEST = _columns(_abi.ReadRequest)
_Byte = ctypes.c_char
_Shape: Any = ctypes.POINTER(ctypes.c_uint64)


def address(array: Any) -> int:
    """Where the elements of an array of numpy's lie."""
    try:
        return ctypes.addressof(_Byte.from_buffer(array))  # a third of the time that the other way takes
    except (TypeError, ValueError, BufferError):  # read-only, empty, of a type that Python has not
        return int(array.__array_interface__["data"][0])


def describe_all(handle: Handle) -> Rows:
    """Descriptions of all tensors, in the order of the file. Names and shapes in it are the handle's."""
    rows = np.empty(_abi.st_count(handle), TENSOR)
    status = _abi.st_at(handle, 0, len(rows), address(rows))
    if status:
        del handle  # not in the traceback of an error, where it would keep the file open
        raise error(status)
    return rows


def describe_each(handle: Handle, raw: Sequence[bytes]) -> Rows:
    """The same of those that have these names."""
    rows = np.empty(len(raw), TENSOR)
    memory: Any = rows
    structs = (_abi.Tensor * len(raw)).from_buffer(memory) if raw else ()
    find = _abi.st_describe
    for name, struct in zip(raw, structs):
        status = find(handle, name, len(name), struct)
        if status:
            del handle
            raise error(status)
    return rows


def shapes(rows: Rows) -> list[tuple[int, ...]]:
    """As long as the handle that described them lives."""
    if not len(rows):
        return []
    pointers = np.ascontiguousarray(rows["shape"])
    first = (_Shape * len(rows)).from_buffer(pointers)
    return [tuple(shape[:rank]) for shape, rank in zip(first, rows["rank"].tolist())]


class Columns:
    """Tensors to be written: what each will be in the file, and where its bytes lie."""

    __slots__ = ("dtypes", "ranks", "extents", "sizes", "addresses")

    def __init__(self) -> None:
        self.dtypes = array("I")
        self.ranks = array("Q")
        self.extents = array("Q")  # of all, one behind the other
        self.sizes = array("Q")
        self.addresses = array("Q")

    def add(self, dtype: int, shape: Sequence[int], nbytes: int, address: int) -> None:
        self.dtypes.append(dtype)
        self.ranks.append(len(shape))
        self.extents.extend(shape)
        self.sizes.append(nbytes)
        self.addresses.append(address)

    def take_rows(self, names: Iterable[str]) -> tuple[Rows, Any]:
        """For C, with these names; and the memory that they point into. The columns are empty then."""
        text, lengths = _packed(list(names))
        rows = np.zeros(len(lengths), TENSOR)
        rows["name_len"] = lengths
        rows["name"] = _starts(lengths + np.uint64(1)) + np.uint64(address(text))
        rows["rank"] = ranks = np.array(self.ranks, np.uint64)
        extents = np.array(self.extents, np.uint64)
        rows["shape"] = _starts(ranks) * np.uint64(extents.itemsize) + np.uint64(address(extents))
        rows["dtype"] = self.dtypes
        rows["nbytes"] = self.sizes
        rows["data"] = self.addresses
        Columns.__init__(self)
        return rows, (text, extents)


def _packed(names: list[str]) -> "tuple[Rows, np.ndarray[Any, np.dtype[np.uint64]]]":
    """Names in UTF-8, each with a NUL behind it; and the length of each."""
    try:
        text = "\0".join(names)
        raw = text.encode()
    except (TypeError, UnicodeEncodeError):
        for name in names:
            encoded(name)  # raises
        raise
    lengths: Iterable[int] = map(len, names) if len(raw) == len(text) else (len(name.encode()) for name in names)
    return np.frombuffer(raw + b"\0", np.uint8), np.fromiter(lengths, np.uint64, len(names))


def _starts(lengths: "np.ndarray[Any, np.dtype[np.uint64]]") -> "np.ndarray[Any, np.dtype[np.uint64]]":
    """Where each begins, of stretches one behind the other."""
    return np.cumsum(lengths, dtype=np.uint64) - lengths
