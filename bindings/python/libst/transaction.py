"""Several changes that become durable together, or not at all."""

from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Optional, Union

from . import _abi
from ._arguments import number
from ._block import EndsWithBlock
from ._callbacks import Callbacks
from ._handle import Handle, opened
from ._index import outside, part_of
from ._names import encoded, to_write
from ._payload import fit, may_be_packed, payload, take_form
from ._rows import address
from ._sized import sized
from .errors import ClosedError, NotFoundError, check
from .info import Plan, plan_of
from .status import Status

if TYPE_CHECKING:
    from .file import File


class Layout(NamedTuple):
    """The options of a publish, as st_txn_options has them."""

    flags: int = 0
    layout: int = 0
    alignment: int = 0
    header_reserve: int = 0
    shard_grace_s: int = 0


def apply_options(
    reverse: Optional[bytes],
    publish: bool,
    break_links: bool,
    journal_only: bool,
    lock_timeout_ms: int,
    callbacks: Callbacks,
) -> _abi.DeltaApplyOptions:
    """The options of `libst.patch` and of `File.patch`."""
    flags = _abi.ST_TXN_PUBLISH if publish else 0
    flags |= _abi.ST_TXN_BREAK_LINKS if break_links else 0
    flags |= _abi.ST_TXN_JOURNAL_ONLY if journal_only else 0
    return sized(
        _abi.DeltaApplyOptions,
        flags=flags,
        reverse=reverse,
        lock_timeout_ms=lock_timeout_ms,
        progress=callbacks.progress,
    )


class Transaction(EndsWithBlock):
    """Changes staged on a file; see `File.transaction`.

    Belongs to one thread at a time. One that is neither committed nor aborted is
    aborted when its file is closed or it is no longer referenced. It cannot be
    copied, pickled or used in a forked child.
    """

    __slots__ = ("_file", "_callbacks", "_handle", "_borrowed", "_forms", "_patched", "__weakref__")

    _file: "Optional[File]"  # None: finished. Kept until then, as the transaction ends when it is closed
    _callbacks: Callbacks
    _handle: Optional[Handle]  # None: finished
    _borrowed: Optional[list[Any]]  # arrays that the library points into, until the handle is freed; None: it copies
    #: What was put here: dtype and shape. What got its name here: the name that it has in the file.
    _forms: dict[str, Union[tuple[int, tuple[int, ...]], str]]
    _patched: Optional[set[str]]  # of what tensors bytes were staged; None: something else was, too

    def __init__(self) -> None:
        raise TypeError("use File.transaction()")

    @classmethod
    def _begin(cls, file: "File", callbacks: Callbacks, timeout_ms: int, copy: bool, layout: Layout) -> "Transaction":
        self = cls.__new__(cls)
        self._file = file
        self._callbacks = callbacks
        self._borrowed = None if copy else []
        self._forms = {}
        self._patched = set()
        options = sized(
            _abi.TxnOptions,
            flags=layout.flags | (_abi.ST_TXN_COPY if copy else 0),
            lock_timeout_ms=timeout_ms,
            shard_grace_s=layout.shard_grace_s,
            progress=callbacks.progress,
            layout=layout.layout,
            alignment=number("alignment", layout.alignment),
            header_reserve=number("header_reserve", layout.header_reserve, 2**64 - 1),
        )
        self._handle = opened(
            lambda out: callbacks.call(_abi.st_txn_begin, file._live(), options, out),
            (callbacks.faces, self._borrowed),
            _abi.st_txn_free,
        )
        return self

    def update(self, name: str, array: Any, *, at: Any = None) -> None:
        """Stage a tensor's new bytes, or those of a part of it, as `File.update` takes them. The last value counts.

        A part may lie over another, over the whole tensor that was staged before, and in a tensor that this transaction
        put. Its bytes are taken during the call.

        They go to the journal during the call. Without `copy` the array must not
        change until the transaction ends, and what had to be copied, as `File.update` says, is kept until then.

        NotFoundError, and TypeError and ValueError for a dtype or shape that does not fit (`Status.DTYPE_MISMATCH`,
        `SHAPE_MISMATCH`, `NBYTES_MISMATCH`), leave the transaction as it was; after any other error (StorageError,
        what a progress callback raised) it can only be aborted.
        """
        self._live()
        raw = encoded(name)
        tensor, kept = payload(name, array)
        if at is not None:
            self._update_part(name, raw, array, tensor, at)
        else:
            if may_be_packed(array, tensor):
                self._take_form(name, tensor)
            self._stage(_abi.st_txn_update, raw, tensor, kept)
        if self._patched is not None:
            self._patched.add(name)

    def _update_part(self, name: str, raw: bytes, array: Any, tensor: _abi.Tensor, at: Any) -> None:
        wanted = self._form(name)
        try:
            part = part_of(at, wanted[1])
        except IndexError as problem:
            raise outside(problem, name, wanted[1]) from None
        fit(name, tensor, array, wanted, part)
        rows, count = (None, 0) if part.rows is None else (address(part.rows), len(part.rows))
        self._call(_abi.st_txn_update_slice, raw, len(raw), part.ranges, part.range_count, rows, count, tensor)

    def _form(self, name: str) -> tuple[int, tuple[int, ...]]:
        """As the calls before left it."""
        form = self._forms.get(name, name)
        if not isinstance(form, str):
            return form
        described = self._live()._pin().describe(form)
        return described.dtype, described.shape

    def _stage(self, function: Any, raw: bytes, tensor: _abi.Tensor, kept: Any) -> None:
        if self._borrowed is not None:
            self._borrowed.append(kept)
        self._call(function, raw, len(raw), tensor)

    def _take_form(self, name: str, tensor: _abi.Tensor) -> None:
        try:
            take_form(tensor, self._form(name))
        except NotFoundError:
            pass  # C says it

    def put(self, name: str, array: Any) -> None:
        """Add a tensor, or replace one by any dtype and shape: given as to `libst.save`.

        One that is replaced keeps its place in the file, others come last. This, and `delete`, `rename` and
        `metadata`, make a publish of the commit: a new file, which shares with the old one what the filesystem
        can share, takes its name. Every reader sees the old file or the new one, whole.

        These leave the transaction as it was: TypeError (`Status.DTYPE_MISMATCH`) for an element type that the format
        has not, FormatError for a name or shape that no file can have, and ValueError for a payload of another size
        (`NBYTES_MISMATCH`) and for the name "__metadata__" (`INVALID_ARGUMENT`). With `copy` it also raises what
        `update` raises.
        """
        self._live()
        raw = to_write(name)
        tensor, kept = payload(name, array)
        self._stage(_abi.st_txn_put, raw, tensor, kept)
        self._forms[name] = tensor.dtype, tuple(tensor.shape[: tensor.rank])
        self._patched = None

    def delete(self, name: str) -> None:
        """Remove a tensor. Raises NotFoundError."""
        raw = encoded(name)
        self._call(_abi.st_txn_delete, raw, len(raw))
        self._patched = None

    def rename(self, name: str, new_name: str) -> None:
        """Raises NotFoundError, and FormatError if the new name is taken."""
        raw, new = encoded(name), to_write(new_name)
        self._call(_abi.st_txn_rename, raw, len(raw), new, len(new))
        self._forms[new_name] = self._forms.get(name, name)
        self._patched = None

    def metadata(self, key: str, value: Optional[str]) -> None:
        """Set a key of the metadata, or with None remove it (NotFoundError)."""
        if not isinstance(key, str) or not isinstance(value, (str, type(None))):
            raise TypeError(f"metadata maps str to str; {key!r} maps to {value!r}")
        raw = to_write(key)
        if value is None:
            self._call(_abi.st_txn_set_metadata, raw, len(raw), None, _abi.ST_NTS)
        else:
            text = to_write(value)
            self._call(_abi.st_txn_set_metadata, raw, len(raw), text, len(text))
        self._patched = None

    def plan(self) -> Plan:
        """What the commit would do, as far as can be told beforehand. Touches nothing."""
        plan = sized(_abi.Plan)
        self._call(_abi.st_txn_plan, plan)
        return plan_of(plan)

    def commit(self) -> None:
        """Make all staged changes durable, or none. The transaction is finished then,
        except after BusyError, when it may be committed again or aborted.

        After these nothing has changed:

        - BusyError: `tensor` could not be locked in time;
        - StorageError, whose `status` says why: no space, the file was removed, or replaced by one that the change does
          not fit, or it cannot be locked;
        - FormatError: the file was truncated, or replaced by one that is no model, or the new header would be too long;
        - ValueError (`Status.INVALID_ARGUMENT`): an array changed that was staged without `copy`, or the alignment;
        - NotImplementedError (`UNSUPPORTED`): the file is mounted by itself, or see `new_names`;
        - RuntimeError (`FORKED`): the transaction was begun by the parent process;
        - Error with `HARD_LINKS`: other names would keep the old bytes, see `break_links`; with `JOURNAL`: a journal
          is damaged or another user's; with `TXN_FAILED`: an earlier call failed; with `INTERRUPTED`.

        NeedsRecoveryError: it failed after, or at, the point of no return, and recovery decides; close the file and
        open it anew.
        """
        status = int(Status.BUSY)
        answers: list[int] = []  # known also where a callback, or a signal's handler, raises

        def commit(transaction: Handle) -> int:
            try:
                answers.append(_abi.st_txn_commit(transaction))
                return answers[0]
            finally:
                del transaction

        try:
            status = self._answer(commit)
            check(status)
        finally:
            if self._file is not None:  # also where it failed: it may have followed a file that was replaced
                self._file._moved(self._changed(answers))
            if status != Status.BUSY:
                self.abort()

    def _changed(self, answers: list[int]) -> Optional[frozenset[str]]:
        """What a commit may have patched that answered so, or nobody knows what; None: it may be anything."""
        if answers and answers[0] not in (Status.OK, Status.NEEDS_RECOVERY):
            return frozenset()
        return None if self._patched is None else frozenset(self._patched)

    def abort(self) -> None:
        """Drop all staged changes. May be repeated, and called after a commit."""
        self._handle = self._borrowed = self._file = None

    def _complete(self) -> None:
        self.commit()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a transaction belongs to its process: open the file in the worker and begin one there")

    def _live(self) -> "File":
        if self._file is None:
            raise ClosedError("the transaction is finished")
        if self._file.closed:
            raise ClosedError("the transaction was aborted, as its file was closed")
        return self._file

    def _answer(self, function: Any, *args: Any) -> int:
        """What C answers. The file stays open meanwhile, also if another thread closes it."""
        file = self._live()._live()
        try:
            return self._callbacks.call(function, self._handle, *args)
        finally:
            del file  # not in the traceback of an error

    def _call(self, function: Any, *args: Any) -> None:
        check(self._answer(function, *args))
