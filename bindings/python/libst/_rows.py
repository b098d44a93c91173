"""Many tensors at once: C has arrays of structs, numpy sees their columns, so a tensor costs few steps of Python."""

import ctypes
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable

import numpy as np

from . import _abi
from ._names import to_write
from .dtypes import BYTES
from .errors import error

Rows = np.ndarray[Any, Any]
Array = np.ndarray[Any, Any]


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
_empty = np.empty
_addressof = ctypes.addressof
_lay_over = ctypes.c_char.from_buffer

#: All memory as 64-bit numbers: the one at address a is number a // 8 - 1. A slice of it makes no pointer.
MEMORY: Any = ctypes.cast(8, ctypes.POINTER(ctypes.c_uint64))


#: Bytes that each object of Python's begins with. In an array of numpy's the address of its elements comes next, by the
#: ABI that extension modules are compiled with. To look there takes half the time of other ways.
_HEAD = object.__basicsize__
_sample = np.empty(1)
_ADDRESS_FIRST: bool = (
    sys.implementation.name == "cpython"
    and MEMORY[(id(_sample) + _HEAD) // 8 - 1] == _sample.__array_interface__["data"][0]
)


def address(array: Any) -> int:
    """Where the elements of an array of numpy's lie. Not by its buffer, if that can be: the array then keeps 80 bytes
    about it for as long as it lives."""
    if _ADDRESS_FIRST and type(array) is np.ndarray:
        found: int = MEMORY[(id(array) + _HEAD) // 8 - 1]
        return found
    try:
        return _addressof(_lay_over(array))  # a third of the time that the other way takes
    except (TypeError, ValueError, BufferError):  # read-only, empty, of a type that Python has not
        return int(array.__array_interface__["data"][0])


def new_array(shape: tuple[int, ...], dtype: Any) -> tuple[Array, int]:
    """An array, not filled, and its address."""
    array = _empty(shape, dtype)
    return array, MEMORY[(id(array) + _HEAD) // 8 - 1] if _ADDRESS_FIRST else address(array)


def new_rows(count: int, columns: "np.dtype[Any]") -> tuple[Rows, int]:
    """An array of structs, not filled, and its address."""
    flat = np.empty(count * columns.itemsize, BYTES)
    return flat.view(columns), address(flat)


def describe_all(answer: Callable[..., int], count: int) -> Rows:
    """Descriptions of all tensors, in the order of the file: so many. Names and shapes in it are the handle's. answer:
    `Pin.answer`."""
    try:
        rows, where = new_rows(count, TENSOR)
        status = answer(_abi.st_at, 0, count, where)
        if status:
            raise error(status)
        return rows
    finally:
        del answer  # not in the traceback of an error, where it would keep the file open


def describe_each(answer: Callable[..., int], raw: Sequence[bytes]) -> Rows:
    """The same of those that have these names."""
    try:
        rows, where = new_rows(len(raw), TENSOR)
        structs = (_abi.Tensor * len(raw)).from_address(where)
        find = _abi.st_describe
        for name, struct in zip(raw, structs):
            status = answer(find, name, len(name), struct)
            if status:
                raise error(status)
        return rows
    finally:
        del answer


def requests_of(rows: Rows, addresses: np.ndarray[Any, np.dtype[np.int64]], sizes: Any) -> tuple[Rows, int]:
    """To read what the rows describe, or one row always, to these addresses; and the address of that."""
    requests, where = new_rows(len(addresses), REQUEST)
    requests["name"] = rows["name"]
    requests["name_len"] = rows["name_len"]
    requests["index"] = 0
    requests["dst"] = addresses
    requests["dst_size"] = sizes
    requests["ranges"] = 0
    requests["range_count"] = 0
    requests["reserved"] = 0
    return requests, where


def shapes(rows: Rows, of_one_file: bool = False) -> Iterator[tuple[int, ...]]:
    """As long as the handle that described them lives. of_one_file: their shapes lie in one array.

    One after the other: who keeps each form but once then makes no thousands of tuples, which would set the cycle
    collector going, over all that torch has."""
    starts, ranks = rows["shape"].tolist(), rows["rank"].tolist()
    if of_one_file and starts:
        first = min(starts)
        end = max([start + 8 * rank for start, rank in zip(starts, ranks)])
        if end - first <= 64 * len(starts):
            extents = tuple(MEMORY[first // 8 - 1 : end // 8 - 1])
            begins = [(start - first) // 8 for start in starts]
            return (extents[begin : begin + rank] for begin, rank in zip(begins, ranks))
    return (tuple(MEMORY[start // 8 - 1 : start // 8 - 1 + rank]) for start, rank in zip(starts, ranks))


#: Where in an st_tensor, in 64-bit words: its dtype and rank, its shape, data and size.
_WORDS = ctypes.sizeof(_abi.Tensor) // 8
_FORM, _SHAPE, _DATA, _NBYTES = (
    getattr(_abi.Tensor, name).offset // 8 for name in ("dtype", "shape", "data", "nbytes")
)


class Columns:
    """Tensors to be written, as many as was said: what each will be in the file, and where its bytes lie. They are put
    where C will look for them, because what grows meanwhile leaves holes in memory."""

    __slots__ = ("rows", "extents", "known", "_words", "_end")

    def __init__(self, count: int = 0) -> None:
        memory = bytearray(count * _WORDS * 8)
        self.rows: Rows = np.frombuffer(memory, TENSOR) if count else np.empty(0, TENSOR)
        self.extents = array("Q")  # shapes, one behind the other, each once
        self.known: dict[tuple[int, ...], int] = {}  # which, and where they begin
        self._words = memoryview(memory).cast("Q")
        self._end = 0  # of what was added

    def add(self, dtype: int, shape: Sequence[int], nbytes: int, address: int) -> None:
        shape = tuple(shape)
        begin = self.known.get(shape)
        if begin is None:
            begin = self.known[shape] = len(self.extents)
            self.extents.extend(shape)
        words, at = self._words, self._end
        words[at + _FORM] = dtype | len(shape) << 32
        words[at + _SHAPE] = begin
        words[at + _DATA] = address
        words[at + _NBYTES] = nbytes
        self._end = at + _WORDS

    @property
    def sizes(self) -> list[int]:
        found: list[int] = self.rows["nbytes"].tolist()
        return found

    def take_rows(self, names: Iterable[str]) -> tuple[Rows, Any]:
        """For C, with these names; and the memory that they point into. Once."""
        text, lengths = _packed(list(names))
        rows = self.rows
        rows["name_len"] = lengths
        rows["name"] = _starts(lengths + np.uint64(1)) + np.uint64(address(text))
        extents = np.array(self.extents, np.uint64)
        rows["shape"] *= np.uint64(extents.itemsize)
        rows["shape"] += np.uint64(address(extents))
        return rows, (text, extents)


def _packed(names: list[str]) -> "tuple[Rows, np.ndarray[Any, np.dtype[np.uint64]]]":
    """Names in UTF-8, each with a NUL behind it; and the length of each."""
    try:
        text = "\0".join([*names, ""])
        raw = text.encode() if names else b""
    except (TypeError, UnicodeEncodeError):
        for name in names:
            to_write(name)  # raises
        raise
    lengths: Iterable[int] = map(len, names) if raw.isascii() else (len(name.encode()) for name in names)
    return np.frombuffer(raw, np.uint8), np.fromiter(lengths, np.uint64, len(names))


def _starts(lengths: "np.ndarray[Any, np.dtype[np.uint64]]") -> "np.ndarray[Any, np.dtype[np.uint64]]":
    """Where each begins, of stretches one behind the other."""
    return np.cumsum(lengths, dtype=np.uint64) - lengths
