"""A safetensors file, open: `libst.open`, `libst.open_memory` and `File`."""

import ctypes
import os
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from contextlib import contextmanager
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, Optional, Union, overload

from . import _abi, bulk
from ._arguments import number
from ._callbacks import Callbacks, Log, Progress, callbacks_for
from ._handle import Handle, opened
from ._hub import warn_of_blob
from ._layout import layout_number
from ._memory import opened_memory
from ._names import several
from ._pin import Array, Pin
from ._sized import sized
from ._torch import torch_tensor
from ._url import absolute, shown
from ._waiting import timeout_ms
from ._writable import Copy, Writable
from .dtypes import NAMES
from .errors import ClosedError, Error, check
from .info import (
    IoInfo,
    Metadata,
    Plan,
    Stats,
    TensorInfo,
    map_name,
    map_number,
    plan_of,
    prefetch_name,
    prefetch_number,
    storage_name,
)
from .slices import TensorSlice
from .status import Status
from .transaction import Layout, Transaction, apply_options

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

_INHERIT: Any = object()  # "as the file has it", where None means something else


def open(
    path: Path,
    mode: str = "r",
    mapping: str = "auto",
    *,
    deltas: Sequence[Path] = (),
    prefetch: str = "auto",
    direct: Optional[bool] = None,
    io_threads: int = 0,
    block_size: int = 0,
    worker: tuple[int, int] = (0, 1),
    memory_limit: int = 0,
    lock_timeout: Optional[float] = 10.0,
    progress: Optional[Progress] = None,
    log: Optional[Log] = None,
) -> "File":
    """Open a safetensors file; first of all, finish what a crashed writer had committed.

    Cost: the header is read and indexed; data is not touched.

    Args:
        path: the file, an index of shards, a folder that has one, or a URL (for reading); symbolic links are followed.
        mode: "r", or "r+" to allow changes.
        mapping: how the data is reached. "auto" as the storage asks (the environment's
            ST_MAP overrides it), "shared", "private", or "none": no mapping, a
            tensor is read into memory of its own when first viewed. What others patch shows in such a view after
            `refresh`, beside rows that were patched through this object before. With "copy-on-write" views may be
            written; that never reaches the file. A page that was not written shows what others patch in place; one
            that was written never does, nor what this process patches itself. A truncation is SIGBUS in all pages
            behind the new end. On storage where mappings are slow that is as "none". What was chosen, and why, is in
            `File.io_info`.
        deltas: paths of deltas, the oldest first, that lie on the file, or on shards: what is shown, for reading
            only, is what `libst.patch` with each of them in turn would make of it. `TensorInfo.shard` is the number
            of the file that has a tensor: 0 the file, 1 the first delta; or first the shards, then the deltas.
        prefetch: how bulk reads (`prefetch`, `read_many`, `libst.load`) go. "auto" as the
            storage asks, "none": `prefetch` does nothing, "sequential": one reader,
            "parallel": several.
        direct: whether bulk reads into memory go past the page cache; None: as ST_DIRECT says, or else on a local disk
            the first load of a file that is not in memory.
        io_threads: readers of a bulk read; 0 as the storage asks (or ST_IO_THREADS).
        block_size: bytes of a request of theirs; 0 as the storage asks (or ST_BLOCK_SIZE).
        worker: (i, n): this is worker i, from 0, of n that share the warming of the file:
            `prefetch()` takes the i-th contiguous part of it.
        memory_limit: bytes of page cache that bulk reads may leave behind; 0 no limit.
        lock_timeout: seconds to wait for other workers' locks, when changing and
            recovering; 0 not at all, None for ever.
        progress: `progress(done_bytes, total_bytes)`, called now and then during
            long calls; total is 0 if it is not known. Staging and `commit` are two calls, so `File.update` tells
            two counts, one after the other. To cancel, raise: the exception
            comes out of the call that was running, and nothing has changed. What it
            returns is ignored. It must not use the same file, nor wait for a thread that does.
        log: `log(level, sentence)` with level "info" or "warning", for what a user may
            want to know: a mapping fell back, a journal was recovered. It must not use the
            same file. What it raises comes out of the running call.

    Raises:
        StorageError (FileNotFoundError, PermissionError), FormatError; NeedsRecoveryError, BusyError and Error with
        `Status.JOURNAL` from recovery; DeltaError.
    """
    if mode not in ("r", "r+"):
        raise ValueError(f"mode is 'r' or 'r+', not {mode!r}")
    callbacks = callbacks_for(progress, log)
    guarded = progress is not None or log is not None
    bulk_reads = (prefetch, direct, io_threads, block_size, worker, memory_limit)
    if guarded or deltas or bulk_reads != _AS_THE_STORAGE_ASKS:
        options = _basic_options(mode, map_number(mapping), timeout_ms(lock_timeout), callbacks)
        options.log = callbacks.log
        options.deltas = layers = c_paths(deltas)
        options.delta_count = len(layers)
        _ask_for(options, *bulk_reads)
    else:
        options = _usual_options(mode, map_number(mapping), timeout_ms(lock_timeout))
    raw = fs_path(path)
    if mode == "r+":
        warn_of_blob(raw, stacklevel=2)
    handle = opened(partial(callbacks.call, _abi.st_open, raw, options), callbacks.faces)
    text = path if isinstance(path, str) else os.fsdecode(raw)
    file = File._of(handle, callbacks, guarded, text, mode)
    file._options = {
        "path": absolute(text),
        "mode": mode,
        "mapping": mapping,
        "deltas": [absolute(os.fsdecode(fs_path(delta))) for delta in deltas] if deltas else [],
        "prefetch": prefetch,
        "direct": direct,
        "io_threads": io_threads,
        "block_size": block_size,
        "worker": worker,
        "memory_limit": memory_limit,
        "lock_timeout": lock_timeout,
    }
    return file


# What `open` leaves to the storage, unless it is told.
_AS_THE_STORAGE_ASKS: tuple[Any, ...] = ("auto", None, 0, 0, (0, 1), 0)


def open_pin(path: Path, mapping: str = "none") -> Pin:
    """What `open(path, mapping=mapping)` shows, to read once: no File goes with it. Not for a local variable; see
    _pin.py."""
    raw = fs_path(path)
    callbacks = callbacks_for(None)
    options = _usual_options("r", map_number(mapping), 10_000)  # as `open` waits for locks, in milliseconds
    handle = opened(partial(callbacks.call, _abi.st_open, raw, options), callbacks.faces)
    try:
        text = path if isinstance(path, str) else os.fsdecode(raw)
        given = {"path": absolute(text), "mode": "r", "mapping": mapping, "deltas": []}
        return Pin(handle, callbacks, False, given, is_still=True)
    finally:
        del handle


def _basic_options(mode: str, map_: int, lock_timeout_ms: int, callbacks: Callbacks) -> _abi.OpenOptions:
    return sized(
        _abi.OpenOptions,
        flags=_abi.ST_OPEN_READ_WRITE if mode == "r+" else 0,
        map=map_,
        lock_timeout_ms=lock_timeout_ms,
        progress=callbacks.progress,
    )


@lru_cache(maxsize=16)
def _usual_options(mode: str, map_: int, lock_timeout_ms: int) -> _abi.OpenOptions:
    """Made once, as C only reads them."""
    return _basic_options(mode, map_, lock_timeout_ms, callbacks_for(None))


def _ask_for(
    options: _abi.OpenOptions,
    prefetch: str,
    direct: Optional[bool],
    io_threads: int,
    block_size: int,
    worker: tuple[int, int],
    memory_limit: int,
) -> None:
    options.prefetch = prefetch_number(prefetch)
    if direct is not None:
        options.direct = _abi.ST_DIRECT_ON if direct else _abi.ST_DIRECT_OFF
    options.io_threads = number("io_threads", io_threads)
    options.block_size = number("block_size", block_size)
    try:
        index, count = worker
    except (TypeError, ValueError):
        raise TypeError(f"worker is a pair of numbers, (i, n), not {worker!r}") from None
    options.worker_index, options.worker_count = number("worker[0]", index), number("worker[1]", count)
    options.memory_limit = number("memory_limit", memory_limit, 2**64 - 1)


def source_options(callbacks: Callbacks, io_threads: int, block_size: int) -> _abi.OpenOptions:
    """Those that a source can use."""
    options = _basic_options("r", _abi.ST_MAP_NONE, _abi.ST_TIMEOUT_FOREVER, callbacks)
    options.log = callbacks.log
    _ask_for(options, "auto", None, io_threads, block_size, (0, 1), 0)
    return options


def open_memory(data: Any) -> "File":
    """Open a safetensors file that lies in memory, for reading.

    `data` is anything with a C-contiguous buffer: bytes, a bytearray, an mmap, an array. It is
    not copied, is kept alive by the file and its views, and must not change
    meanwhile. Raises FormatError.
    """
    return File._of(opened_memory(data), callbacks_for(None), False, None, "r")


class File(Mapping[str, Array]):
    """An open safetensors file: a read-only mapping of names to zero-copy arrays.

    `f["w"]` is a numpy view of the file's bytes. Use it in a `with` block or
    call `close()`. Views stay valid after that: the file is really closed when the last
    of them dies.

    Every call shows one state of the file, whole. What is committed through this object shows to
    the next call, what other workers add or remove after `refresh`. A view, a slice or an iterator
    keeps the state that it was taken from, and no other. New values that somebody patches in
    place, this object included, show through mapped views at once, and so may change under the reader;
    `read` copies.
    A mapped view of a file that somebody truncates is a hazard (SIGBUS on
    touching it); where that can happen use `read`, or `mapping="none"`.

    Threads: a file may be used from many at once. Processes: a file that is pickled, as for a
    worker of multiprocessing, is opened anew where it is unpickled; one that a fork handed on
    reopens itself.
    """

    __slots__ = (
        "_handle", "_pins", "_writable", "_callbacks", "_guarded", "_path", "_mode", "_options",
        "__weakref__",
    )  # fmt: skip

    _handle: Optional[Handle]  # None: closed
    _pins: list[Pin]  # the first is of the present state; none: not taken yet
    _writable: Writable  # one for ever
    _callbacks: Callbacks
    _guarded: bool  # whether a callback may run when a view is taken
    _path: Optional[str]
    _mode: str
    _options: Optional[dict[str, Any]]  # of `open`, for another process; None for a file in memory

    def __init__(self) -> None:
        raise TypeError("use libst.open(path), libst.open_memory(data) or libst.open_source(source)")

    @classmethod
    def _of(
        cls,
        handle: Handle,
        callbacks: Callbacks,
        guarded: bool,
        path: Optional[str],
        mode: str,
    ) -> "File":
        self = cls.__new__(cls)
        self._handle = handle
        self._pins = []
        self._writable = Writable()
        self._callbacks = callbacks
        self._guarded = guarded
        self._path = path
        self._mode = mode
        self._options = None
        return self

    # ---------------------------------------------------------- open and close

    @property
    def path(self) -> Optional[str]:
        """As it was opened, with all that a URL has, which may be secrets; None for a file in memory or from a
        source. `repr()` has none of them."""
        return self._path

    @property
    def shards(self) -> "tuple[str, ...]":
        """The absolute paths of the files that this stands for, in the order of `TensorInfo.shard`: one file, or those
        that an index of shards names; and then the deltas that lie on them. () for a file in memory or from a source.
        """
        return shards_of(self._pin().handle)

    @property
    def mode(self) -> str:
        """ "r" or "r+"."""
        return self._mode

    @property
    def closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Abort live transactions and let go of the file; views that live keep it. May be repeated."""
        self._callbacks.call(self._let_go)

    def _let_go(self) -> int:
        self._handle = None
        self._moved()
        return Status.OK

    def __enter__(self) -> "File":
        self._live()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def reopen(self) -> "File":
        """A second file on the same path, with the same options: its own descriptor, its own
        mapping, its own locks. For workers. StorageError (`Status.FILE_CHANGED`) if the path names no file by
        now, or another one, which no commit of this one put there."""
        callbacks = self._callbacks
        handle = opened(lambda out: callbacks.call(_abi.st_reopen, self._live(), 0, out), callbacks.faces)
        file = File._of(handle, self._callbacks, self._guarded, self._path, self._mode)
        file._options = self._options
        return file

    def interrupt(self) -> None:
        """Make the calls that now run on this file, in any thread, give up waiting for locks
        and stop long reads; they raise Error with `Status.INTERRUPTED`. Call it from another thread."""
        _abi.st_interrupt(self._live())

    def __reduce__(self) -> tuple[Any, ...]:
        """As its path and options: unpickling opens it anew, and raises what `open` raises. Callbacks stay here.
        So does `copy.copy`; `reopen` keeps the callbacks."""
        self._live()
        if self._options is None:
            raise TypeError(
                "a file in memory or from a source is not pickled or copied: send its bytes, and open those"
            )
        return _open_with, (self._options,)

    def __repr__(self) -> str:
        what = "closed" if self._handle is None else f"tensors={len(self)}"
        return f"<libst.File {shown(self._path or 'without a path')!r} mode={self._mode!r} {what}>"

    # --------------------------------------------------------------- a mapping

    def __getitem__(self, name: str) -> Array:
        """A read-only view of a tensor, without a copy, in the file's shape and dtype.

        BF16 and F8 arrays have the dtypes of the package ml_dtypes. A tensor of F4 or
        F6 is a flat uint8 array of its packed bytes. The view may be unaligned. It
        keeps the mapping of this state while it lives, and where there is none the
        file. What is patched in place shows in it, also by `update` of this file. `read`
        copies.

        Raises NotFoundError (a KeyError), ClosedError; without a mapping also
        StorageError, as the tensor is then read at its first view.
        """
        return (self._pins or self._anew())[0].view(name)

    def torch(self, name: str, *, device: Any = None, copy: bool = False) -> Any:
        """A tensor as torch has it, bf16 and float8 included; of a packed F4 its pairs.

        On the CPU it is a view like `f[name]`, but one that may be written, as by an optimiser: what is written
        stays in this process, in a copy of the page that is made then, and further views of this name show it. They
        show the file again

        - after `refresh`;
        - in a forked child;
        - after a commit of this file that patches this tensor (the view may then be a copy);
        - after a commit of this file that publishes, or follows another process to a file that it published;
        - after `patch`.

        It is of a copy-on-write mapping (see `mapping` of `open`), which the first call makes. Where there can be none
        it is a copy: of several files that were not opened with `mapping="copy-on-write"`, of a file that was replaced
        meanwhile or lies in memory, on storage where mappings are slow, and where the tensor does not begin at a
        multiple of its element size, as files that were padded by nobody have it.

        While the mapping is there, a change by any handle of this process first copies the pages that it patches. The
        mapping stays while views live, and until `refresh`, `close`, or commits of this file that patch a quarter of
        the tensors and all that were viewed. A loop that reads and updates all weights takes `read` instead.

        Args:
            device: where to, as in `tensor.to`: a transfer, so a copy.
            copy: whether to read it into memory of its own.

        Raises what `f[name]` raises, ImportError without torch, NotImplementedError for an element type that
        this torch has not.
        """
        tensor = None if copy else self._writable.tensor(name, self._pin, _copy)
        if tensor is None:
            tensor = torch_tensor(*_copy(self._pin(), name))
        return tensor if device is None else tensor.to(device=device)

    def jax(self, name: str, *, device: Any = None) -> Any:
        """A tensor as a jax array. On the CPU, and where the tensor begins at a multiple of 64, it is a view, like
        `f[name]`; else jax copies.

        jax takes its arrays to be immutable. But what is patched in place shows in a view, also by `update` of this
        file. Where the file changes while the array lives, `jax.numpy.array(f.read(name))` is a copy.

        jax makes 64-bit types 32-bit, unless `jax_enable_x64` is set. Raises what `f[name]` raises, and
        ImportError without jax.
        """
        import jax

        return jax.device_put(self[name], device)

    def __iter__(self) -> Iterator[str]:
        """The names, in the order of their places in the file."""
        return self._pin().names()

    def keys(self) -> KeysView[str]:
        """The names, as of a dict."""
        return _Names(self)

    def items(self) -> ItemsView[str, Array]:
        """Names with views, as of a dict; all of one state of the file."""
        return _Items(self)

    def values(self) -> ValuesView[Array]:
        return _Values(self)

    def __len__(self) -> int:
        return int(_abi.st_count(self._pin().handle))

    def __contains__(self, name: object) -> bool:
        try:
            raw = name.encode()  # type: ignore[attr-defined]
        except (AttributeError, UnicodeEncodeError):
            self._live()
            return False
        status = _abi.st_find(self._pin().handle, raw, len(raw), ctypes.c_size_t())
        if status and status != Status.NOT_FOUND:
            check(status)  # such as a shard that is missing: nobody knows what it has
        return not status

    # Two files are equal if they are the same object: comparing all their arrays is not what
    # `==` should start.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return object.__hash__(self)

    @property
    def metadata(self) -> Metadata:
        """The pairs of `__metadata__`, a read-only dict, in the order of the header."""
        return Metadata(metadata_of(self._pin().handle))

    def info(self, name: str) -> TensorInfo:
        """A tensor's dtype, shape, size and place. Reads no data. Raises NotFoundError."""
        tensor = self._pin().describe(name)
        return TensorInfo(
            name=name,
            dtype=NAMES.get(tensor.dtype) or _abi.st_dtype_name(tensor.dtype).decode(),
            shape=tensor.shape,
            nbytes=tensor.nbytes,
            file_offset=tensor.file_offset,
            shard=tensor.shard,
        )

    # ----------------------------------------------------------------- reading

    def read(self, name: str, out: Optional[Array] = None) -> Array:
        """Copy a tensor, with reads and not through a mapping.

        Args:
            out: where to: a writable C-contiguous array of the dtype and shape that `f[name]`
                has. None: a new array.
        Returns: `out`, or the new array, which is the caller's.

        A file truncated meanwhile raises StorageError (`Status.FILE_CHANGED`), where touching a mapped view would be a
        signal. Raises also NotFoundError; where `out` does not fit TypeError (`Status.DTYPE_MISMATCH`) or ValueError
        (`SHAPE_MISMATCH`).
        """
        return bulk.read((self._pins or self._anew())[0], name, out)

    @overload
    def read_many(
        self, names: Union[Mapping[str, Array], Iterable[str]], *, progress: Optional[Progress] = None
    ) -> dict[str, Array]: ...

    @overload
    def read_many(self, names: "Iterable[tuple[str, Any]]", *, progress: Optional[Progress] = None) -> list[Array]: ...

    def read_many(self, names: Any, *, progress: Optional[Progress] = None) -> Any:
        """Copy many tensors, or parts of tensors, in the order of the file whatever order they are named in:
        neighbours in one request, by as many readers as the storage likes. Parts of more than 1024 short rows follow
        all others, again in the order of the file.

            f.read_many(["a", "b"])                        # {"a": ..., "b": ...}
            f.read_many([("a", 7), ("a", slice(0, 2))])    # [f["a"][7], f["a"][0:2]], copied
            f.read_many([("a", [7, 3, 5])])                # [f["a"][[7, 3, 5]]]

        Args:
            names: which; or a mapping of names to arrays to read into, each as `out` of `read`; or pairs of a name and
                an index, as `slice` takes.
            progress: as in `open`; by default the file's.
        Returns: names to arrays, of pairs a list of arrays in their order; the caller's. New ones share one block of
            memory.

        Raises what `read` raises, of pairs what `slice` raises, and KeyError's NotFoundError before anything is read.
        """
        if not isinstance(names, Mapping):
            names = several(names)
            if names and isinstance(names[0], tuple):
                return bulk.read_parts(self._pin(), names, progress)
            if tuple in map(type, names):
                raise TypeError("give names alone, or pairs of a name and an index alone, such as ('w', slice(None))")
        return bulk.read_many(self._pin(), names, progress)

    def prefetch(self, names: Optional[Iterable[str]] = None, *, progress: Optional[Progress] = None) -> None:
        """Bring tensors into memory, in the order of the file, so that views of them do not wait
        for the storage. All of them, or with `worker=(i, n)` of `open` this worker's part of the
        file, if none are named. Raises NotFoundError, StorageError."""
        bulk.prefetch(self._pin(), names, progress)

    def slice(self, name: str) -> TensorSlice:
        """A tensor to read parts of: `f.slice("w")[1:3, ::2, ..., 0]`, `f.slice("w")[[7, 3, 5]]`.

        A row of an array of indices takes about half a kilobyte besides the result. More than 1024 short rows take 40
        bytes each. They are read by way of a buffer, by at most 32768 requests at once, which take half a kilobyte
        each. The buffer has 8 MiB, and a short row at most 4 KiB; where the storage is far 64 MiB and 64 KiB. A row of
        a packed dtype is never short.

        For rows of a mapped file that is in memory `f["w"][rows]` is quicker. Raises NotFoundError."""
        return TensorSlice._of(self._pin(), name)

    # ---------------------------------------------------------------- changing

    def update(self, name: str, array: Any, *, at: Any = None) -> None:
        """Replace the bytes of one tensor, or of a part of it, in place: checked, locked, journalled, and durable on
        return.

            f.update("emb", rows, at=np.s_[10:20])
            f.update("emb", rows, at=[7, 3, 5])

        Views `f[name]`, and of `jax`, that were taken before may show the new values; those of `torch` do not.

        at: what numpy's basic indexing takes; and for the first dimension an array of indices, of which the last counts
        where one comes twice. Then only these bytes are locked and written. Nothing is broadcast. For more than about a
        tenth of the rows, and of short rows for fewer, an update of the whole tensor is quicker.

        Dtype and shape must be those in the file, or of the part. A tensor of torch may be a Parameter, a view, on any
        device. In numpy BF16 and F8 are the ml_dtypes types, F4 and F6 a flat uint8 array of packed bytes. What is
        not C-contiguous, or not in this machine's memory, is copied; a big-endian array is refused.

        Raises io.UnsupportedOperation (`Status.READ_ONLY`), NotFoundError, TypeError (`DTYPE_MISMATCH`), ValueError
        (`SHAPE_MISMATCH`, `NBYTES_MISMATCH`), IndexError and FormatError (`SUBBYTE`) for a part that is not there or
        is cut inside a byte, and what `Transaction.commit` raises; then the file is as it was, unless
        it is NeedsRecoveryError.
        """
        with self.transaction(copy=False) as transaction:
            transaction.update(name, array, at=at)

    def refresh(self) -> None:
        """See the file as it is now: what others have committed, replaced files included. Views that live
        show the file that they were taken from. Raises what `open` raises."""
        callbacks = self._callbacks
        with self._moving():
            check(callbacks.call(_abi.st_refresh, self._live()))

    def transaction(
        self,
        *,
        lock_timeout: Optional[float] = _INHERIT,
        progress: Optional[Progress] = None,
        copy: bool = True,
        publish: bool = False,
        break_links: bool = False,
        layout: str = "keep",
        alignment: int = 0,
        header_reserve: int = 0,
        new_names: bool = False,
        shard_grace: int = 3600,
        journal_only: bool = False,
    ) -> Transaction:
        """Change a file, all or none: tensors updated, put, deleted, renamed, and metadata.

            with f.transaction() as t:
                t.update("a", a)
                t.update("b", b)

        The block's end commits; an exception in it aborts. No lock is held before the commit.

        Args:
            lock_timeout: as in `open`; by default the file's.
            progress: as in `open`; by default the file's.
            copy: whether an array may change as soon as `update` or `put` has taken it. False spares reading its
                bytes back from the journal, but then it must not change until the block's end. If it does, the commit
                writes what was staged, or what the array holds then; or it raises ValueError
                (`Status.INVALID_ARGUMENT`) and changes nothing.
            publish: make a new file also where all could be patched in place, so that no reader sees a mix.
            break_links: publish a file that has other hard links, which keep the old bytes.
            layout: "keep" the order of the file, or "canonical".
            alignment: of the first data byte of a new file, a multiple of 8; 0: so that most is shared with the old
                one.
            header_reserve: spare bytes in the header of a new file, at least.
            new_names: of a sharded checkpoint, give shards that are rewritten new names, as in
                `model-00001-of-00004.g1.safetensors`. A stock reader of the old index then still finds all that it
                names, and the change takes one copy. A `File` that has the old index must be refreshed before it
                opens another shard, or changes one that has a new name (`Status.FILE_CHANGED`): refresh, and stage the
                changes anew. Without this, others follow a publish by themselves. Until the old shards are removed,
                what takes files by a pattern such as `*.safetensors`, and not by the index, takes old and new ones.
            shard_grace: for how many seconds, with `new_names`, the old shards of each commit stay; 0 not at all. The
                first such commit after that time removes them, or `libst.recover` at any time.
            journal_only: the commit is durable, as ever, but by its journal alone, and takes one sync. The file has
                the new bytes at once, and they are durable in it later: see `sync`. It helps only where commits that
                follow one another change different bytes: the same bytes are synced before they change again. On
                shards, on storage that is not local, and where the commit publishes it changes nothing.

        Raises io.UnsupportedOperation (`Status.READ_ONLY`); StorageError (`POISONED`).
        """
        grace = number("shard_grace", shard_grace, _abi.ST_GRACE_NONE - 1)
        timeout = _abi.ST_TIMEOUT_DEFAULT if lock_timeout is _INHERIT else timeout_ms(lock_timeout)
        callbacks = self._callbacks if progress is None else callbacks_for(progress)
        flags = _abi.ST_TXN_PUBLISH if publish else 0
        flags |= _abi.ST_TXN_BREAK_LINKS if break_links else 0
        flags |= _abi.ST_TXN_NEW_NAMES if new_names else 0
        flags |= _abi.ST_TXN_JOURNAL_ONLY if journal_only else 0
        order = layout_number(layout, ("keep", "canonical"))
        form = Layout(flags, order, alignment, header_reserve, grace or _abi.ST_GRACE_NONE)
        return Transaction._begin(self, callbacks, timeout, copy, form)

    def patch(
        self,
        delta: Path,
        *,
        reverse: Optional[Path] = None,
        publish: bool = False,
        break_links: bool = False,
        journal_only: bool = False,
        lock_timeout: Optional[float] = _INHERIT,
        progress: Optional[Progress] = None,
    ) -> Plan:
        """Apply a delta, as `libst.patch` does, through this file, which shows the result then.

        `journal_only` as in `transaction`, `lock_timeout` and `progress` as in `open`, by default the file's.
        Raises what `libst.patch` raises; io.UnsupportedOperation (`Status.READ_ONLY`).
        """
        timeout = _abi.ST_TIMEOUT_DEFAULT if lock_timeout is _INHERIT else timeout_ms(lock_timeout)
        callbacks = self._callbacks if progress is None else callbacks_for(progress)
        back = None if reverse is None else fs_path(reverse)
        options = apply_options(back, publish, break_links, journal_only, timeout, callbacks)
        done = sized(_abi.Plan)
        with self._moving():
            check(callbacks.call(_abi.st_apply_delta, self._live(), fs_path(delta), options, done))
        return plan_of(done)

    def sync(self) -> None:
        """Make durable in the file what was committed with `journal_only`; closing does so, too, and the next commit
        of the same bytes.

        Raises BusyError while another process recovers or publishes the file; NeedsRecoveryError if a sync fails:
        nothing is lost, and the next `open` finishes it.
        """
        check(self._callbacks.call(_abi.st_sync, self._live()))

    # ------------------------------------------------------------- observation

    def io_info(self) -> IoInfo:
        """What storage lies behind the file, how its data is reached, and why."""
        raw = self._pin().io_info()
        return IoInfo(
            storage=storage_name(raw.storage),
            mapping=map_name(raw.map),
            map_fallbacks=raw.map_fallbacks,
            file_size=raw.file_size,
            header_size=raw.header_size,
            data_offset=raw.data_offset,
            filesystem=raw.filesystem.decode("utf-8", "replace"),
            reason=raw.reason.decode("utf-8", "replace"),
            prefetch=prefetch_name(raw.prefetch),
            direct=None if raw.direct == _abi.ST_DIRECT_AUTO else raw.direct == _abi.ST_DIRECT_ON,
            io_threads=raw.io_threads,
            block_size=raw.block_size,
            prefetch_reason=raw.prefetch_reason.decode("utf-8", "replace"),
        )

    def stats(self) -> Stats:
        """What this handle has read, mapped, written and waited for so far."""
        raw = sized(_abi.Stats)
        check(_abi.st_file_stats(self._live(), raw))
        return Stats(**{name: getattr(raw, name) for name in Stats.__dataclass_fields__})

    # ------------------------------------------------------------------ inside

    def _closed(self) -> Error:
        return ClosedError(f"the file {shown(self._path or 'in memory')!r} is closed")

    def _live(self) -> Handle:
        handle = self._handle
        if handle is None:
            raise self._closed()
        return handle

    def _pin(self) -> Pin:
        """The present state, to read from in several steps. Not for a local variable; see _pin.py."""
        return (self._pins or self._anew())[0]

    def _anew(self) -> list[Pin]:
        """Take the pin of the present state.

        No lock: `_moved` does not empty the list, but leaves it to those who took it up before, as this may. Of
        several who pin at the same time, the first counts for all, so that nobody sees a state and then one before it.
        """
        pins = self._pins
        pins.append(Pin(self._live(), self._callbacks, self._guarded, self._options))
        del pins[1:]
        return pins

    def _keep_still(self) -> None:
        """Of a file that is only read: nothing will move it, so that its pin needs no handle of its own."""
        self._pins = [Pin(self._live(), self._callbacks, self._guarded, self._options, is_still=True)]

    def _moved(self, patched: Optional[frozenset[str]] = None) -> None:
        """The handle may show another state by now: the next call pins it. patched: all that a commit through it did;
        None: it may be anything."""
        self._pins = []
        self._writable.note(patched)

    @contextmanager
    def _moving(self) -> Iterator[None]:
        """A call that leads to another state, unless it fails."""
        patched: Optional[frozenset[str]] = None
        try:
            yield
        except Error as problem:
            if problem.status != Status.NEEDS_RECOVERY:
                patched = frozenset()
            raise
        finally:
            self._moved(patched)


def _open_with(options: dict[str, Any]) -> File:
    return open(**options)


class _Names(KeysView[str]):
    """KeysView goes through the names by a generator, of which each costs a step of Python."""

    __slots__ = ()
    _mapping: File

    def __iter__(self) -> Iterator[str]:
        return self._mapping._pin().names()


class _Items(ItemsView[str, Array]):
    """ItemsView would look each name up in the state of its moment, where it may be gone."""

    __slots__ = ()
    _mapping: File

    def __iter__(self) -> Iterator[tuple[str, Array]]:
        return self._mapping._pin().items()


class _Values(ValuesView[Array]):
    __slots__ = ()
    _mapping: File

    def __iter__(self) -> Iterator[Array]:
        return (array for _, array in self._mapping._pin().items())


def fs_path(path: Path) -> bytes:
    try:
        raw = os.fsencode(path)
    except TypeError as error:
        if not hasattr(path, "read"):
            raise
        raise TypeError(f"{error}; libst.load and libst.open_source take file objects") from None
    if b"\0" in raw:
        hint = "; the bytes of a file are opened by open_memory" if isinstance(path, bytes) else ""
        raise ValueError(f"embedded null byte in the path{hint}")
    return raw


def c_paths(paths: Sequence[Path]) -> Any:
    raw = [fs_path(path) for path in several(paths)]
    return (ctypes.c_char_p * len(raw))(*raw)


def _text(pointer: ctypes.c_void_p, length: ctypes.c_size_t) -> str:
    return ctypes.string_at(pointer.value or 0, length.value).decode("utf-8", "replace")


def metadata_of(pin: Handle) -> dict[str, str]:
    pairs: dict[str, str] = {}
    try:
        count = _abi.st_metadata_count(pin)
        if not count:
            return pairs
        key, value = ctypes.c_void_p(), ctypes.c_void_p()
        key_len, value_len = ctypes.c_size_t(), ctypes.c_size_t()
        for i in range(count):
            check(_abi.st_metadata_at(pin, i, key, key_len, value, value_len))
            pairs[_text(key, key_len)] = _text(value, value_len)
        return pairs
    finally:
        del pin


def shards_of(pin: Handle) -> tuple[str, ...]:
    path = ctypes.c_char_p()
    paths = []
    try:
        for i in range(_abi.st_shard_count(pin)):
            status = _abi.st_shard_path(pin, i, path)
            if status == Status.UNSUPPORTED:
                return ()
            check(status)
            paths.append(os.fsdecode(path.value or b""))
        return tuple(paths)
    finally:
        del pin


def _copy(pin: Pin, name: str) -> Copy:
    try:
        tensor = pin.describe(name)
        return bulk.read(pin, name, None), NAMES[tensor.dtype], tensor.shape
    finally:
        del pin
