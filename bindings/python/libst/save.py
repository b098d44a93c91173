"""Write a file: `libst.save` at once, `libst.writer` tensor by tensor."""

import ctypes
import errno
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, Optional

from . import _abi
from ._arguments import function
from ._block import EndsWithBlock
from ._callbacks import Callbacks, Progress, callbacks_for
from ._forms import all_forms
from ._handle import Handle, opened
from ._hub import warn_of_blob
from ._layout import save_options
from ._names import to_write
from ._payload import Packed, as_it_is_now, columns_of, payload
from ._pin import Pin
from ._rows import Columns, address
from ._url import shown
from ._waiting import timeout_ms
from .dtypes import NAMES, PACKED
from .errors import ClosedError, StorageError, check
from .file import File, Path, fs_path, metadata_of, open, shards_of
from .status import Status

#: How an index of shards is called; what is called so is opened as one.
_INDEX = re.compile(r"\.safetensors\.index\.(?:[^./]*\.)?json\Z")
#: Metadata of an index, of no file.
_TOTALS = ("total_size", "total_parameters")
#: After these a writer may be finished again.
_GOES_ON = (Status.BUSY, Status.INCOMPLETE)


def save(
    path: Path,
    tensors: "Mapping[str, Any]",
    metadata: Optional[Mapping[str, str]] = None,
    *,
    layout: str = "keep",
    alignment: int = 0,
    header_reserve: int = 0,
    lock_timeout: Optional[float] = 10.0,
    progress: Optional[Progress] = None,
) -> None:
    """Write a dict of arrays to a file, durably: until it returns the path leads to the old file, or to none.

    Args:
        tensors: names to arrays of numpy or tensors of torch, on any device, or to `Packed` for types that these have
            not. What does not lie in memory as the file has it is copied, one tensor at a time. Tied weights are
            written under each of their names; `compat.torch.save_model` writes them once.
            A mapping that makes its arrays when they are looked at has all of them in memory at once; see `writer`.
            A `libst.File` keeps its F4 and F6.
        metadata: strings to strings. None: that of the `libst.File` that is saved, or of a dict none; {}: none. Of
            shards it is that of their index, without the totals; `libst.join` also hands on their own.
        layout: "keep", in the order of the dict, or, if a tensor would lie unaligned then, wide elements before narrow
            ones; "canonical", descending dtype then name; "stock", canonical and byte for byte what safetensors 0.8
            writes.
        alignment: of the first data byte; 0: 64 (with "stock" 8).
        header_reserve: spare bytes in the header, for later growth.
        lock_timeout, progress: as in `libst.open`.

    A file that is replaced hands on its mode, owner, ACL and attributes.

    After these nothing has changed: TypeError (`Status.DTYPE_MISMATCH`) for an element type that the format has not,
    FormatError (nobody could read it), ValueError (`INVALID_ARGUMENT`: the path has the name of an index of shards, or
    a tensor is named "__metadata__"), BusyError, StorageError (no space, no such folder, forbidden).
    """
    if not hasattr(tensors, "items"):
        raise TypeError(f"tensors maps names to arrays; it is a {type(tensors).__name__}")
    if isinstance(tensors, File):
        tensors, its_metadata = _as_they_are(tensors._pin())
        metadata = its_metadata if metadata is None else metadata
    else:
        tensors = as_it_is_now(tensors)
    columns, kept = columns_of(tensors)
    sizes = None if kept is not None else columns.sizes
    given = _Given(tensors, columns, metadata)
    steps = _Steps(function("progress", progress), sum(sizes or ()))
    callbacks = callbacks_for(steps if sizes and progress else progress)
    options = save_options(layout, alignment, header_reserve, timeout_ms(lock_timeout), callbacks)
    raw = fs_path(path)
    warn_of_blob(raw, stacklevel=2)
    if sizes is None:
        check(callbacks.call(_abi.st_save, raw, *given.arguments, options))
        del kept  # until here
        return
    with Writer._open(raw, given, options, callbacks) as w:
        for (name, value), nbytes in zip(tensors.items(), sizes):
            w.add(name, value)
            steps.before += nbytes


def save_stock(path: str, names: Iterable[str], columns: Columns, metadata: Optional[Mapping[str, str]]) -> None:
    """Write a file byte for byte as stock does."""
    callbacks = callbacks_for(None)
    raw = fs_path(path)
    warn_of_blob(raw, stacklevel=2)
    given = _Given(names, columns, metadata)
    options = save_options("stock", 0, 0, _abi.ST_TIMEOUT_DEFAULT, callbacks)
    check(callbacks.call(_abi.st_save, raw, *given.arguments, options))


def _as_they_are(pin: Pin) -> tuple[dict[str, Any], dict[str, str]]:
    """All tensors of a file, with the element types that numpy has not; and its metadata."""
    try:
        forms, _, _ = all_forms(pin)
        tensors = {
            name: Packed(NAMES[dtype], shape, array) if dtype in PACKED else array
            for (name, array), (dtype, shape) in zip(pin.items(), forms)
        }
        metadata = metadata_of(pin.handle)
        if not metadata.keys().isdisjoint(_TOTALS) and _is_index(pin):
            metadata = {key: text for key, text in metadata.items() if key not in _TOTALS}
        return tensors, metadata
    finally:
        del pin


def _is_index(pin: Pin) -> bool:
    """Whether a file whose metadata have totals has them from an index of shards."""
    try:
        options = pin.options
        if options is None or options["deltas"]:  # not from a path, or as one file would have them
            return False
        if _abi.st_shard_count(pin.handle) != 1:
            return True
        path = options["path"]
        if not path.endswith("/") and not os.path.isdir(path):
            return _INDEX.search(shown(path)) is not None
        # A folder leads to a file or to an index, and a sole shard may be called model.safetensors, too.
        with open(shards_of(pin.handle)[0]) as alone:
            return alone.metadata.keys().isdisjoint(_TOTALS)
    except StorageError:  # the file was removed
        return False
    finally:
        del pin


class _Given:
    """Tensors and metadata, as C takes them."""

    __slots__ = ("arguments", "_kept")

    def __init__(self, names: Iterable[str], columns: Columns, metadata: Optional[Mapping[str, str]]) -> None:
        rows, within = columns.take_rows(names)
        kept: list[Any] = [rows, within]
        pairs = _pairs(metadata, kept)
        tensors = ctypes.cast(address(rows), ctypes.POINTER(_abi.Tensor))
        self.arguments = (tensors, len(rows), pairs, len(pairs))
        self._kept = kept


def writer(
    path: Path,
    metadata: Optional[Mapping[str, str]] = None,
    *,
    layout: str = "keep",
    alignment: int = 0,
    header_reserve: int = 0,
    lock_timeout: Optional[float] = 10.0,
    progress: Optional[Progress] = None,
) -> "Writer":
    """Write a file tensor by tensor, so that it may be larger than memory:

        with libst.writer("big.safetensors") as w:
            for name, array in produce():
                w.add(name, array)

    The file is there, durably, when the block ends; if it raises, nothing has changed.
    Arguments as `save`. A layout other than "keep", or tensors that would lie unaligned, cost one more copy at the end.
    """
    callbacks = callbacks_for(progress)
    options = save_options(layout, alignment, header_reserve, timeout_ms(lock_timeout), callbacks)
    raw = fs_path(path)
    warn_of_blob(raw, stacklevel=2)
    return Writer._open(raw, _Given((), Columns(), metadata), options, callbacks)


class Writer(EndsWithBlock):
    """A file being written; see `libst.writer`.

    Belongs to one thread at a time. One that is not finished is dropped when it is no longer referenced. It cannot be
    copied, pickled or used in a forked child.
    """

    __slots__ = ("_handle", "_callbacks")

    _handle: Optional[Handle]  # None: finished
    _callbacks: Callbacks

    def __init__(self) -> None:
        raise TypeError("use libst.writer(path)")

    @classmethod
    def _open(cls, path: bytes, given: _Given, options: _abi.SaveOptions, callbacks: Callbacks) -> "Writer":
        self = cls.__new__(cls)
        self._callbacks = callbacks
        self._handle = opened(
            lambda out: callbacks.call(_abi.st_writer_open, path, *given.arguments, options, out),
            callbacks.faces,
            _abi.st_writer_free,
        )
        return self

    def add(self, name: str, array: Any) -> None:
        """Write a tensor, given as to `libst.save`. It may change as soon as this returns.

        FormatError for a name that was added before. After StorageError, or what a progress callback raised, the
        writer can only be aborted.
        """
        raw = ctypes.create_string_buffer(to_write(name))
        tensor, kept = payload(name, array)
        tensor.name, tensor.name_len = ctypes.addressof(raw), len(raw) - 1
        check(self._callbacks.call(_abi.st_writer_put, self._live(), tensor))
        del kept  # until here

    def finish(self) -> None:
        """Make the file durable and give it its name. It may be called again after BusyError, and after StorageError
        where too many files were open (`errno.EMFILE`, `errno.ENFILE`)."""
        status = self._callbacks.call(_abi.st_writer_finish, self._live())
        goes_on = status in _GOES_ON
        try:
            check(status)
        except StorageError as error:
            goes_on = goes_on or error.os_errno in (errno.EMFILE, errno.ENFILE)
            raise
        finally:
            if not goes_on:
                self.abort()

    def abort(self) -> None:
        """Drop what was written. May be repeated, and called after `finish`."""
        self._handle = None

    def _complete(self) -> None:
        self.finish()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a writer belongs to its process: write the file there, or send the tensors")

    def _live(self) -> Handle:
        if self._handle is None:
            raise ClosedError("the writer is finished")
        return self._handle


class _Steps:
    """The progress of a file that is written tensor by tensor."""

    def __init__(self, tell: Optional[Progress], total: int) -> None:
        self.before = 0  # bytes of those that are written
        self._tell = tell
        self._total = total

    def __call__(self, done: int, total: int) -> None:
        if self._tell:
            self._tell(self.before + done, self._total)


def _pairs(metadata: Optional[Mapping[str, str]], kept: list[Any]) -> Any:
    if metadata is not None and not hasattr(metadata, "items"):
        raise TypeError(f"metadata maps str to str; it is a {type(metadata).__name__}")
    pairs = (_abi.Metadata * len(metadata or {}))()
    for pair, (key, value) in zip(pairs, (metadata or {}).items()):
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata maps str to str; {key!r} maps to {value!r}")
        buffers = [ctypes.create_string_buffer(to_write(text)) for text in (key, value)]
        kept += buffers
        pair.key, pair.value = (ctypes.addressof(buffer) for buffer in buffers)
        pair.key_len, pair.value_len = (len(buffer) - 1 for buffer in buffers)
    return pairs
