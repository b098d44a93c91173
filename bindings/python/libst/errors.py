"""Exceptions: one class for what a caller may want to catch apart from the rest.

All derive from `Error` and carry the library's status and its sentence. Where
Python has a word for the thing, the class is that too: a missing tensor is a
`KeyError`, a missing file a `FileNotFoundError`.
"""

import ctypes
import io
from typing import Any, Optional

from . import _abi
from .status import Status


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

    def __str__(self) -> str:
        return self.message  # KeyError would quote it, OSError prefix its errno

    def __reduce__(self) -> tuple[Any, ...]:
        # From one worker process to another with everything it carries.
        return _restore, (type(self), self.message, int(self.status), self._details())

    def _details(self) -> dict[str, Any]:
        names = ("os_errno", "tensor", "offset", "holder_pid")
        return {name: getattr(self, name) for name in names}


def _restore(kind: type[Error], message: str, status: int, details: dict[str, Any]) -> Error:
    return kind(message, known_status(status), **details)


class InvalidArgumentError(Error, ValueError):
    status = Status.INVALID_ARGUMENT


class ClosedError(Error, ValueError):
    """The file was closed. A ValueError, as for Python's own files."""

    status = Status.INVALID_ARGUMENT


class OutOfMemoryError(Error, MemoryError):
    status = Status.NOMEM


class InternalError(Error, RuntimeError):
    """A bug in libst; please report it."""


class UnsupportedError(Error, NotImplementedError):
    status = Status.UNSUPPORTED


class CancelledError(Error):
    status = Status.CANCELLED


class InterruptedCallError(Error):
    """`File.interrupt()` was called while this call waited or read; nothing changed."""

    status = Status.INTERRUPTED


class NotFoundError(Error, KeyError):
    """No tensor of that name."""

    status = Status.NOT_FOUND


class OutOfRangeError(Error, IndexError):
    status = Status.OUT_OF_RANGE


class BufferSizeError(Error, ValueError):
    status = Status.BUFFER_SIZE


class ReadOnlyError(Error, io.UnsupportedOperation):
    """A change was asked of a file opened with mode "r"."""

    status = Status.READ_ONLY


class BusyError(Error, TimeoutError):
    """Another worker held the lock for longer than `lock_timeout`; see `holder_pid`."""

    status = Status.BUSY


class ForkedError(Error, RuntimeError):
    """The transaction belongs to the parent process."""

    status = Status.FORKED


class StorageError(Error, OSError):
    """The operating system failed a call; `errno` says how."""

    status = Status.IO


class NoFileError(StorageError, FileNotFoundError):
    status = Status.NO_FILE


class AccessError(StorageError, PermissionError):
    """The operating system forbids it."""

    status = Status.PERMISSION


class NoSpaceError(StorageError):
    """The disk, or the quota, is full; nothing changed."""

    status = Status.NO_SPACE


class NotRegularError(StorageError):
    """A folder, a device or a pipe, where a plain file is needed."""

    status = Status.NOT_REGULAR


class FileChangedError(StorageError):
    """The file was truncated or rewritten under an open handle."""

    status = Status.FILE_CHANGED


class LockUnsupportedError(StorageError):
    """The filesystem cannot lock, or grants every lock; changing is refused."""

    status = Status.LOCK_UNSUPPORTED


class PoisonedError(StorageError):
    """A sync failed on this handle earlier; close it and open anew."""

    status = Status.POISONED


class FormatError(Error, ValueError):
    """The file breaks a rule of the format; or an index and its shards do not agree; `status` (40 to 61) says which."""

    status = Status.HEADER_JSON


class DeltaError(Error, ValueError):
    """The file is no delta, or one that contradicts itself or was damaged."""

    status = Status.DELTA


class DeltaBaseError(Error, ValueError):
    """The delta was made for another base, or has been applied already; nothing changed."""

    status = Status.DELTA_BASE


class DtypeMismatchError(Error, TypeError):
    """An update may not change the dtype."""

    status = Status.DTYPE_MISMATCH


class ShapeMismatchError(Error, ValueError):
    """An update may not change the shape."""

    status = Status.SHAPE_MISMATCH


class NbytesMismatchError(Error, ValueError):
    """The payload has another size than the tensor."""

    status = Status.NBYTES_MISMATCH


class NeedsRecoveryError(Error):
    """A committed journal waits: recover from where the file can be written."""

    status = Status.NEEDS_RECOVERY


class JournalError(Error):
    """A journal that is damaged, foreign or planted; it was not applied."""

    status = Status.JOURNAL


class TransactionFailedError(Error):
    """An earlier call of this transaction failed; abort it."""

    status = Status.TXN_FAILED


class HardLinksError(Error):
    """The file has other names, which would keep the old bytes; see `break_links`."""

    status = Status.HARD_LINKS


class IncompleteError(Error, ValueError):
    """Bytes of a declared tensor were not written."""

    status = Status.INCOMPLETE


_BY_STATUS: dict[int, type[Error]] = {
    int(kind.status): kind
    for kind in (
        InvalidArgumentError,
        OutOfMemoryError,
        InternalError,
        UnsupportedError,
        CancelledError,
        InterruptedCallError,
        NotFoundError,
        OutOfRangeError,
        BufferSizeError,
        ReadOnlyError,
        BusyError,
        ForkedError,
        StorageError,
        NoFileError,
        AccessError,
        NoSpaceError,
        NotRegularError,
        FileChangedError,
        LockUnsupportedError,
        PoisonedError,
        DeltaError,
        DeltaBaseError,
        DtypeMismatchError,
        ShapeMismatchError,
        NbytesMismatchError,
        NeedsRecoveryError,
        JournalError,
        TransactionFailedError,
        HardLinksError,
        IncompleteError,
    )
}
_BY_STATUS.update(dict.fromkeys(range(Status.HEADER_TOO_SMALL, Status.SHARD_PATH + 1), FormatError))


def known_status(status: int) -> int:
    """A `Status`, or the bare number of one that only a newer library knows."""
    try:
        return Status(status)
    except ValueError:
        return status


def known_offset(offset: int) -> Optional[int]:
    """C writes UINT64_MAX for no offset."""
    return None if offset == 2**64 - 1 else offset


def error(status: int) -> Error:
    """The exception for a call that just answered `status` on this thread."""
    kind = _BY_STATUS.get(status, Error)
    info = _abi.ErrorInfo()
    _abi.st_error_info_init(info, ctypes.sizeof(info))
    if _abi.st_last_error_info(info) or info.status != status:
        return kind(_abi.st_status_name(status).decode(), known_status(status))
    tensor = None
    if info.tensor is not None:
        tensor = ctypes.string_at(info.tensor, info.tensor_len).decode("utf-8", "replace")
    return kind(
        (info.message or b"").decode("utf-8", "replace"),
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
