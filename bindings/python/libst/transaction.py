"""Several changes that become durable together, or not at all."""

import ctypes
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Optional

from . import _abi
from ._callbacks import Callbacks
from ._names import encoded
from ._payload import may_be_packed, payload, take_form
from ._waiting import Waiting
from .errors import ClosedError, NotFoundError, check, error
from .info import Plan, plan_of
from .status import Status

if TYPE_CHECKING:
    from .file import File

_BUSY = int(Status.BUSY)


class Layout(NamedTuple):
    """The options of a publish, as st_txn_options has them."""

    flags: int = 0
    layout: int = 0
    alignment: int = 0
    header_reserve: int = 0
    shard_grace: int = 3600


class Transaction:
    """Changes staged on a file; see `File.transaction`.

    Belongs to one thread at a time. One that is neither committed nor aborted is
    aborted when its file is closed or it is no longer referenced.
    """

    __slots__ = ("_file", "_callbacks", "_waiting", "_address", "_borrowed", "_copy", "_lost", "__weakref__")

    _file: "Optional[File]"  # kept while the transaction lives, as an st_txn dies with its st_file
    _callbacks: Callbacks
    _waiting: Waiting
    _address: Optional[int]  # None: finished
    _borrowed: list[Any]  # arrays that the library points into
    _copy: bool
    _lost: bool  # its file was closed while it lived

    def __init__(self) -> None:
        raise TypeError("use File.transaction()")

    @classmethod
    def _begin(cls, file: "File", callbacks: Callbacks, waiting: Waiting, copy: bool, layout: Layout) -> "Transaction":
        self = cls.__new__(cls)
        self._file = file
        self._callbacks = callbacks
        self._waiting = waiting
        self._address = None
        self._borrowed = []
        self._copy = copy
        self._lost = False
        options = _abi.TxnOptions()
        _abi.st_txn_options_init(options, ctypes.sizeof(options))
        options.flags = layout.flags | (_abi.ST_TXN_COPY if copy else 0)
        options.layout = layout.layout
        options.alignment = layout.alignment
        options.header_reserve = layout.header_reserve
        options.shard_grace_s = layout.shard_grace
        options.lock_timeout_ms = waiting.turn_ms
        options.progress = callbacks.progress
        out = ctypes.c_void_p()
        try:
            status = callbacks.call(_abi.st_begin, file._live(), options, out)
        finally:  # a callback may have raised although the transaction has begun
            self._address = out.value
        if status:
            self._file = None
            raise error(status)
        return self

    def update(self, name: str, array: Any) -> None:
        """Stage a tensor's new bytes, as `File.update` takes them. The last value of a name counts.

        They go to the journal during the call. Without `copy` the array must not
        change until the transaction ends, and what had to be copied, as `File.update` says, is kept until then.

        NotFoundError, DtypeMismatchError, ShapeMismatchError and NbytesMismatchError leave
        the transaction as it was; after any other error (NoSpaceError, AccessError,
        StorageError, what a progress callback raised) it can only be aborted.
        """
        address = self._live()
        raw = encoded(name)
        tensor, kept = payload(array)
        if may_be_packed(array, tensor):
            self._take_form(name, tensor)
        if not self._copy:
            self._borrowed.append(kept)
        check(self._callbacks.call(_abi.st_txn_update_n, address, raw, len(raw), tensor))

    def _take_form(self, name: str, tensor: _abi.Tensor) -> None:
        assert self._file is not None
        try:
            take_form(tensor, self._file._pin().describe(name))
        except NotFoundError:
            pass  # perhaps this transaction put it, or gave it that name

    def put(self, name: str, array: Any) -> None:
        """Add a tensor, or replace one by any dtype and shape: given as to `libst.save`.

        One that is replaced keeps its place in the file, others come last. This, and `delete`, `rename` and
        `metadata`, make a publish of the commit: a new file, which shares with the old one what the filesystem
        can share, takes its name. Every reader sees the old file or the new one, whole.

        Raises FormatError and NbytesMismatchError, which leave the transaction as it was, and with
        `copy` what `update` raises.
        """
        address = self._live()
        raw = encoded(name)
        tensor, kept = payload(array)
        if not self._copy:
            self._borrowed.append(kept)
        check(self._callbacks.call(_abi.st_txn_put_n, address, raw, len(raw), tensor))

    def delete(self, name: str) -> None:
        """Remove a tensor. Raises NotFoundError."""
        raw = encoded(name)
        check(_abi.st_txn_delete_n(self._live(), raw, len(raw)))

    def rename(self, name: str, new_name: str) -> None:
        """Raises NotFoundError, and FormatError if the new name is taken."""
        raw, new = encoded(name), encoded(new_name)
        check(_abi.st_txn_rename_n(self._live(), raw, len(raw), new, len(new)))

    def metadata(self, key: str, value: Optional[str]) -> None:
        """Set a key of the metadata, or with None remove it (NotFoundError)."""
        raw = key.encode()
        text = None if value is None else value.encode()
        check(_abi.st_txn_set_metadata_n(self._live(), raw, len(raw), text, len(text or b"")))

    def plan(self) -> Plan:
        """What the commit would do, as far as can be told beforehand. Touches nothing."""
        plan = _abi.Plan()
        _abi.st_plan_init(plan, ctypes.sizeof(plan))
        check(_abi.st_txn_plan(self._live(), plan))
        return plan_of(plan)

    def commit(self) -> None:
        """Make all staged changes durable, or none. The transaction is finished then,
        except after BusyError, when it may be committed again or aborted.

        Raises BusyError (whose `tensor` could not be locked in time), FileChangedError,
        LockUnsupportedError, NoSpaceError, StorageError, PoisonedError, TransactionFailedError:
        nothing changed. NeedsRecoveryError: it failed after, or at, the point of no return, and
        recovery decides; close the file and open it anew.
        """
        self._live()
        check(self._waiting.run(lambda: self._callbacks.call(self._commit_once)))

    def _commit_once(self) -> int:
        assert self._file is not None
        answers: list[int] = []
        try:
            # In one step: a signal's handler that raised after the call would leave an address that is no more.
            answers.extend(map(_abi.st_commit, [self._live()]))
        finally:
            if answers and answers[0] != _BUSY:
                self._address = None
            self._file._moved()  # also where it failed: it may have followed a file that was replaced
        if self._address is None:
            self._finish()
        return answers[0]

    def _finish(self) -> None:
        self._address = None
        self._borrowed = []
        self._file = None

    def abort(self) -> None:
        """Drop all staged changes. May be repeated, and called after a commit."""
        address, self._address = self._address, None
        if address is not None:
            _abi.st_abort(address)
            self._finish()

    def _lose(self) -> None:
        self._lost = self._address is not None
        self.abort()

    def __enter__(self) -> "Transaction":
        self._live()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            if kind is None and (self._address is not None or self._lost):
                self.commit()
        finally:
            self.abort()

    def __del__(self) -> None:
        if getattr(self, "_address", None) is not None:
            self.abort()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a transaction cannot be copied or pickled")

    def _live(self) -> int:
        if self._address is None:
            why = "was aborted, as its file was closed" if self._lost else "is finished"
            raise ClosedError(f"the transaction {why}")
        return self._address
