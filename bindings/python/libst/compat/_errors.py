"""SafetensorError, with the sentences of stock where a program may look for them.

The libst error with the exact place is the `__cause__` of each.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Optional

from ..errors import Error, FormatError
from ..status import Status


class SafetensorError(Exception):
    """What stock raises for everything that is about the format or its own arguments."""


class MissingDtypeError(SafetensorError, AttributeError):
    """Of an element type that this torch lacks, and newer ones have. Stock raises AttributeError alone."""


TOO_MANY_BYTES = "overflow computing buffer size from shape and/or element type"
_FORMAT = {
    Status.HEADER_TOO_SMALL: "header too small",
    Status.HEADER_TOO_LARGE: "header too large",
    Status.HEADER_TRUNCATED: "invalid header length",
    Status.HEADER_UTF8: "invalid UTF-8 in header",
    Status.HEADER_JSON: "invalid JSON in header",
    Status.METADATA: "invalid JSON in header",
    Status.TENSOR_INFO: "invalid JSON in header",
    Status.DTYPE: "invalid JSON in header",
    Status.DUPLICATE_NAME: "invalid JSON in header",
    Status.SHAPE_OVERFLOW: TOO_MANY_BYTES,
    Status.SIZE_MISMATCH: "invalid shape, data type, or offset for tensor",
    Status.SUBBYTE: "The slice is slicing for subbytes dtypes, and the slice does not end up at a byte boundary, "
    "this is invalid.",
    Status.TRUNCATED: "incomplete metadata, file not fully covered",
    Status.TRAILING_DATA: "incomplete metadata, file not fully covered",
}
_PLACES = (Status.OFFSETS, Status.OVERLAP, Status.HOLE)  # of tensors
# Those that stock ends with what its JSON reader has to say: here it is what libst has to say.
_OPEN_ENDED = ("invalid UTF-8 in header", "invalid JSON in header")


def format_text(error: Error) -> str:
    """How stock puts a broken rule of the format."""
    status = Status(error.status)
    if status in _PLACES:
        return f"invalid offset for tensor `{error.tensor}`"
    text = _FORMAT.get(status)
    if text is None:  # of shards, which stock has not
        return str(error)
    return f"{text}: {error}" if text in _OPEN_ENDED else text


def missing(name: str) -> SafetensorError:
    return SafetensorError(f"File does not contain tensor {name}")


class translated:
    """Errors of libst as stock raises them. `doing` begins the sentence; `path` is of a file that should be there."""

    __slots__ = ("_doing", "_path")

    def __init__(self, doing: str, path: str = "") -> None:
        self._doing = doing
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        _kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        _traceback: Optional[TracebackType],
    ) -> None:
        if isinstance(error, Error):
            translate(error, self._doing, self._path)


def translate(error: Error, doing: str, path: str = "") -> None:
    """Raise what stock raises for it, if that is another."""
    if isinstance(error, FileNotFoundError):
        raise FileNotFoundError(f"No such file or directory: {path}") from error
    if isinstance(error, FormatError):
        raise SafetensorError(f"{doing}: {format_text(error)}") from error
    of_storage = isinstance(error, OSError) and (error.errno or error.status == Status.NOT_REGULAR)
    if not of_storage and not isinstance(error, MemoryError):
        raise SafetensorError(f"{doing}: {error}") from error


@contextmanager
def translated_writing() -> Iterator[None]:
    """The same for a file that is written: stock raises SafetensorError for the storage, too."""
    doing = "Error while serializing"
    try:
        yield
    except FormatError as error:
        if isinstance(error.__cause__, UnicodeEncodeError):
            raise error.__cause__ from None
        raise SafetensorError(f"{doing}: {format_text(error)}") from error
    except Error as error:
        number = error.os_errno
        reason = f"I/O error: {os.strerror(number)} (os error {number}): {error}" if number else str(error)
        raise SafetensorError(f"{doing}: {reason}") from error
