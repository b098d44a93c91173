"""Exceptions: a class for what a caller may want to catch apart from the rest; `status` tells what it is.

All derive from `Error` and carry the library's status and its sentence. Where
Python has a word for the thing, what is raised is that too: a missing tensor is a
`KeyError`, a missing file a `FileNotFoundError`, a dtype that does not fit a `TypeError`.
"""

import ctypes
import io
import sys
from typing import Any, Optional

from . import _abi
from ._sized import sized
from .status import Status

#: By ST_ACTION_...
_ACTIONS = ("", "fix", "retry", "reopen", "space", "move", "end", "report")


class Error(Exception):
    """Something that libst could not do. `str()` of it is one sentence: what, where, what to do."""

    #: The status, a `Status` where this package knows it, else the bare number.
    status: int = Status.INTERNAL
    #: errno of the system call that failed, or 0.
    os_errno: int = 0
    #: The name of the tensor it is about, or None.
    tensor: Optional[str] = None
    #: The file offset in bytes that it is about, or None.
    offset: Optional[int] = None
    #: For BusyError the process that holds the lock, or 0 if that is not known.
    holder_pid: int = 0

    def __init__(
        self,
        message: str = "",
        status: Optional[int] = None,
        *,
        os_errno: int = 0,
        tensor: Optional[str] = None,
        offset: Optional[int] = None,
        holder_pid: int = 0,
    ) -> None:
        super().__init__(message)
        if status is not None:
            self.status = status
        self.message = message
        self.os_errno = os_errno
        self.tensor = tensor
        self.offset = offset
        self.holder_pid = holder_pid
        if isinstance(self, OSError):
            fields: Any = self
            fields.errno = os_errno or None
            fields.strerror = message

    @property
    def status_name(self) -> str:
        """As in st.h: "ST_E_BUSY"."""
        return str(_abi.st_status_name(int(self.status)).decode())

    @property
    def action(self) -> str:
        """What a caller can do, in the word of st.h: "fix", "retry", "reopen", "space", "move", "end" or "report"; ""
        for a status that the library does not know."""
        number = _abi.st_status_action(int(self.status))
        return _ACTIONS[number] if number < len(_ACTIONS) else ""

    def __str__(self) -> str:
        return self.message  # KeyError would quote it, OSError prefix its errno

    def __reduce__(self) -> tuple[Any, ...]:
        # From one worker process to another with everything it carries.
        kind = None if type(self) in _MADE else type(self)
        return _restore, (kind, self.message, int(self.status), self._details())

    def _details(self) -> dict[str, Any]:
        names = ("os_errno", "tensor", "offset", "holder_pid")
        return {name: getattr(self, name) for name in names}


def _restore(kind: Optional[type[Error]], message: str, status: int, details: dict[str, Any]) -> Error:
    """kind: None where the status tells it."""
    return (kind or _kind(status))(message, known_status(status), **details)


class BusyError(Error, TimeoutError):
    """The call waited for locks of others for longer than `lock_timeout`; see `holder_pid`. It may be made again."""

    status = Status.BUSY


class NotFoundError(Error, KeyError):
    """No tensor, or no key of the metadata, of that name."""

    status = Status.NOT_FOUND


class ClosedError(Error, ValueError):
    """The file was closed, or the transaction or writer is finished. A ValueError, as for Python's own files."""

    status = Status.INVALID_ARGUMENT


class FormatError(Error, ValueError):
    """The file breaks a rule of the format, or an index and its shards do not agree; `status` (40 to 61) says which."""

    status = Status.HEADER_JSON


class StorageError(Error, OSError):
    """What the file lies on, or what has become of it there; `status` (20 to 28) says which, `errno` how.

    Also a FileNotFoundError for `Status.NO_FILE`, a PermissionError for `Status.PERMISSION`.
    """

    status = Status.IO


class DeltaError(Error, ValueError):
    """The file is no delta, or a damaged one; with `Status.DELTA_BASE` one that was made for another base, or has been
    applied already. Nothing changed."""

    status = Status.DELTA


class NeedsRecoveryError(Error):
    """A committed journal waits: open the file anew, or recover from where the file can be written."""

    status = Status.NEEDS_RECOVERY


#: The class of statuses that have one of their own, from one to another.
_PUBLIC: tuple[tuple[int, int, type[Error]], ...] = (
    (Status.NOT_FOUND, Status.NOT_FOUND, NotFoundError),
    (Status.BUSY, Status.BUSY, BusyError),
    (Status.IO, Status.CHECKSUM, StorageError),
    (Status.HEADER_TOO_SMALL, Status.SHARD_PATH, FormatError),
    (Status.DELTA, Status.DELTA_BASE, DeltaError),
    (Status.NEEDS_RECOVERY, Status.NEEDS_RECOVERY, NeedsRecoveryError),
)

#: What Python calls others.
_NATURAL: dict[int, type[Exception]] = {
    Status.INVALID_ARGUMENT: ValueError,
    Status.NOMEM: MemoryError,
    Status.INTERNAL: RuntimeError,
    Status.UNSUPPORTED: NotImplementedError,
    Status.OUT_OF_RANGE: IndexError,
    Status.BUFFER_SIZE: ValueError,
    Status.READ_ONLY: io.UnsupportedOperation,
    Status.FORKED: RuntimeError,
    Status.NO_FILE: FileNotFoundError,
    Status.PERMISSION: PermissionError,
    Status.DTYPE_MISMATCH: TypeError,
    Status.SHAPE_MISMATCH: ValueError,
    Status.NBYTES_MISMATCH: ValueError,
    Status.INCOMPLETE: ValueError,
}


def _public(status: int) -> type[Error]:
    return next((kind for first, last, kind in _PUBLIC if first <= status <= last), Error)


def _made(status: int, natural: type[Exception]) -> type[Error]:
    """A public class that is one of Python's, too. It goes by the public name, and is caught by either."""
    public = _public(status)
    return type(
        public.__name__, (public, natural), {"__module__": __name__, "__doc__": public.__doc__, "status": status}
    )


_KINDS: dict[int, type[Error]] = {status: _made(status, natural) for status, natural in _NATURAL.items()}
_MADE = frozenset(_KINDS.values())


def _kind(status: int) -> type[Error]:
    return _KINDS.get(status) or _public(status)


def known_status(status: int) -> int:
    """A `Status`, or the bare number of one that only a newer library knows."""
    try:
        return Status(status)
    except ValueError:
        return status


def known_offset(offset: int) -> Optional[int]:
    """C writes UINT64_MAX for no offset."""
    return None if offset == 2**64 - 1 else offset


def refusal(status: Status, message: str, tensor: Optional[str] = None) -> Error:
    """The exception for what C would refuse, found here."""
    return _kind(status)(message, status, tensor=tensor)


def message_text(message: bytes) -> str:
    """A message is UTF-8, but for the paths in it, which are as the system has them."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        # No surrogates, which could not be printed.
        return message.decode(sys.getfilesystemencoding(), "backslashreplace")


def error(status: int) -> Error:
    """The exception for a call that just answered `status` on this thread."""
    kind = _kind(status)
    info = sized(_abi.ErrorInfo)
    if _abi.st_last_error_info(info) or info.status != status:
        return kind(_abi.st_status_name(status).decode(), known_status(status))
    tensor = None
    if info.tensor is not None:
        tensor = ctypes.string_at(info.tensor, info.tensor_len).decode("utf-8", "replace")
    return kind(
        message_text(info.message or b""),
        known_status(status),
        os_errno=info.os_errno,
        tensor=tensor,
        offset=known_offset(info.offset),
        holder_pid=info.holder_pid,
    )


def check(status: int) -> None:
    """Raise unless a call answered ST_OK."""
    if status:
        raise error(status)
