"""Names of tensors, to C and back, one or all of them."""

import ctypes
from collections.abc import Iterable, Iterator
from typing import Any, Callable, NamedTuple

import numpy as np

from . import _abi
from ._handle import Handle
from .errors import NotFoundError, check, error, refusal
from .status import Status

_COLUMNS = np.dtype(
    {
        "names": ["name", "length"],
        "formats": [np.uintp, np.uintp],
        "offsets": [_abi.Tensor.name.offset, _abi.Tensor.name_len.offset],
        "itemsize": ctypes.sizeof(_abi.Tensor),
    }
)
_CHUNK = 4096


def no_name(name: object) -> Exception:
    """What to raise for a name that has no UTF-8."""
    if isinstance(name, str):  # with a lone surrogate
        return NotFoundError(f"no tensor {name!r}: the name is not valid Unicode")
    return TypeError(f"a tensor's name is a str, not {type(name).__name__}")


def encoded(name: str) -> bytes:
    try:
        return name.encode()
    except (AttributeError, UnicodeEncodeError):
        raise no_name(name) from None


def to_write(text: str) -> bytes:
    """The UTF-8 of a name, or of a text of the metadata, that a file shall have."""
    try:
        return text.encode()
    except AttributeError:
        raise no_name(text) from None
    except UnicodeEncodeError as error:
        sentence = f"{text!r} cannot be written: it has half of a surrogate pair, which UTF-8 has not"
        raise refusal(Status.HEADER_UTF8, sentence) from error


def several(given: Iterable[Any]) -> list[Any]:
    """A list of what is given, which must not be one text: that would be taken letter by letter."""
    if isinstance(given, (str, bytes)):
        raise TypeError(f"a list is wanted here; for {given!r} alone give [{given!r}]")
    return list(given)


class Description(NamedTuple):
    """An st_tensor without pointers, which nothing has to keep alive."""

    dtype: int
    shape: tuple[int, ...]
    nbytes: int
    file_offset: int
    shard: int


def describe(answer: Callable[..., int], raw: bytes) -> Description:
    """The tensor of that name, without its data. answer: `Pin.answer`."""
    t = _abi.Tensor()
    status = answer(_abi.st_describe, raw, len(raw), t)
    if status:
        del answer  # not in the traceback of an error, where it would keep the file open
        raise error(status)
    return Description(t.dtype, tuple(t.shape[: t.rank]), t.nbytes, t.file_offset, t.shard)


def index_of(handle: Handle, raw: bytes) -> int:
    """The number of the tensor of that name, for calls that take numbers."""
    index = ctypes.c_size_t()
    status = _abi.st_find(handle, raw, len(raw), index)
    if status:
        del handle
        raise error(status)
    return index.value


def names(handle: Handle, most: int = 0) -> Iterator[str]:
    """All names, in the order of file offsets, without a Python call for each. most: bytes that they take at most, such
    as a header of them all; 0 if that is not known."""
    try:
        size = ctypes.c_size_t(most)
        if not most:
            check(_abi.st_names(handle, None, size))
        packed: Any = np.empty(size.value + 1, np.uint8)  # of no bytes there would be no address
        check(_abi.st_names(handle, ctypes.addressof(ctypes.c_char.from_buffer(packed)), size))
        parts = str(packed[: size.value].data, "utf-8").split("\0")
        parts.pop()  # after the last terminator
        count = _abi.st_count(handle)
        return iter(parts) if len(parts) == count else _names_with_nul(handle, count)
    finally:
        del handle  # not in the traceback of an error, where it would keep the file open


def _names_with_nul(handle: Handle, count: int) -> Iterator[str]:
    """The same where a name holds NUL: the iterator keeps the handle, and reads whole columns of descriptions."""
    for first in range(0, count, _CHUNK):
        rows = np.empty(min(_CHUNK, count - first), _COLUMNS)
        check(_abi.st_at(handle, first, len(rows), rows.__array_interface__["data"][0]))
        pointers: Any = np.ascontiguousarray(rows["name"])
        texts: Any = (ctypes.c_char_p * len(rows)).from_buffer(pointers)[:]  # up to a NUL
        lengths = rows["length"]
        for i in np.flatnonzero(lengths != np.fromiter(map(len, texts), np.uintp, len(texts))):
            texts[i] = ctypes.string_at(int(pointers[i]), int(lengths[i]))
        yield from [text.decode() for text in texts]
