"""The tensors of a file, read in the background and handed out one by one: what safetensors 0.9 adds to `safe_open`.

Stock does so on CUDA devices only. Here they come to the CPU, and go on from there to any device of torch.
"""

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, as_completed
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Callable, NoReturn, Optional

from ..file import File
from ._errors import SafetensorError, missing, translated
from ._frameworks import Device, check_dtype, tensor_of

#: Names, with None for a whole tensor or a slice of its first dimension, of step 1.
PrefetchPlan = dict[str, Optional[slice]]


@dataclass(frozen=True)
class TensorMeta:
    """What a header says of a tensor."""

    __slots__ = ("dtype", "shape", "data_offsets")

    dtype: str  # as in the header: "F32"
    shape: list[int]
    data_offsets: tuple[int, int]  # begin and end, after the header

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorMeta, (self.dtype, self.shape, self.data_offsets)

    def __repr__(self) -> str:
        return f'TensorMeta {{ dtype: "{self.dtype}", shape: {self.shape}, data_offsets: {self.data_offsets} }}'


class PrefetchLoader:
    """Tensors on their way. Each is handed out once, by `take` or by iterating."""

    __slots__ = ("_waiting", "_left", "_threads", "_names", "_lock", "_closed", "_process", "__weakref__")

    def __init__(self, reads: dict[str, Callable[[], Any]], threads: Optional[int]) -> None:
        if threads is None:
            threads = _MOST_THREADS
        if threads <= 0:
            raise ValueError("threads must be greater than 0")
        self._process = os.getpid()
        self._names = list(reads)
        self._lock = threading.Lock()
        self._closed = False
        self._waiting: dict[str, Future[Any]] = {name: Future() for name in reads}
        self._left: _Left = deque(zip(self._waiting.values(), reads.values()))
        weakref.finalize(self, _give_up, self._left, self._process).atexit = False  # _end does so
        self._threads: list[_Reader] = []
        for _ in range(min(threads, len(reads))):
            try:
                self._threads.append(_started(self._left))
            except RuntimeError:  # no more threads; one does it, too
                if not self._threads:
                    raise
                break

    def __reduce__(self) -> NoReturn:
        raise TypeError(_OF_ITS_PROCESS)

    def _check_process(self) -> None:
        if os.getpid() != self._process:  # which has the threads
            raise SafetensorError(_OF_ITS_PROCESS)

    def names(self) -> list[str]:
        """What this loader hands out, in the order of the file."""
        return list(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def take(self, name: str) -> Any:
        """A tensor, once it is read. Asked for a second time it raises."""
        self._check_process()
        with self._lock:
            future = self._waiting.pop(name, None)
        if future is None:
            if name not in self._names:
                raise SafetensorError(f"tensor {name} is not in the prefetch plan")
            why = _CLOSED if self._closed else _DELIVERED
            raise SafetensorError(f"{name}: {why}")
        return _result(name, future)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Names and tensors as they come; those that were taken are left out."""
        self._check_process()
        with self._lock:
            waiting = {future: name for name, future in self._waiting.items()}
        for future in as_completed(waiting):
            name = waiting.pop(future)
            with self._lock:
                taken = self._waiting.pop(name, None) is None
            if not taken:
                yield name, _result(name, future)
            del future
            self._check_process()  # which may be another by now

    def close(self) -> None:
        """Stop reading, and let go of all that was not taken."""
        self._closed = True
        is_own = os.getpid() == self._process  # else a thread of the parent may have held the lock
        with self._lock if is_own else nullcontext():
            self._waiting.clear()
        _give_up(self._left, self._process)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> "PrefetchLoader":
        return self

    def __exit__(
        self,
        _exc_type: Optional[type[BaseException]],
        _exc_value: Optional[BaseException],
        _traceback: Optional[TracebackType],
    ) -> None:
        self.close()


_MOST_THREADS = 8
_OF_ITS_PROCESS = "a PrefetchLoader belongs to its process: open the file in the worker and prefetch there"
_CLOSED = "prefetch loader closed"
_DELIVERED = "tensor already delivered (prefetch hands each tensor out once, via take or iteration)"


_Left = deque[tuple["Future[Any]", Callable[[], Any]]]


class _Reader(threading.Thread):
    """Makes the calls that are left. It knows nothing of the loader, which may be dropped meanwhile.

    A thread of ThreadPoolExecutor would keep the process alive until all calls are made. This one is a daemon, and the
    end of the process stops it.
    """

    def __init__(self, left: _Left) -> None:
        super().__init__(name="libst-prefetch", daemon=True)
        self.left = left

    def run(self) -> None:
        while True:
            try:
                future, read = self.left.popleft()
            except IndexError:
                return
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(read())
                except BaseException as error:
                    future.set_exception(error)
            del future, read  # and the tensor


_readers: "weakref.WeakSet[_Reader]" = weakref.WeakSet()
_readers_lock = threading.Lock()


def _started(left: _Left) -> _Reader:
    reader = _Reader(left)
    with _readers_lock:  # whoever ends them all sees none that begins later
        reader.start()
        _readers.add(reader)
    return reader


def _result(name: str, future: "Future[Any]") -> Any:
    try:
        return future.result()
    except CancelledError:
        raise SafetensorError(f"{name}: {_CLOSED}") from None


def _give_up(left: _Left, process: int) -> None:
    """Make none of these calls; who waits for them is told. In a forked child nobody waits, and a thread of the parent
    may have held their locks."""
    if os.getpid() != process:
        left.clear()
    while left:
        with suppress(IndexError):  # a reader was faster
            future, _ = left.popleft()
            if future.cancel():
                future.set_running_or_notify_cancel()


def _end() -> None:
    """At the exit of the process, before the interpreter would end daemon threads wherever they are."""
    with _readers_lock:
        readers = list(_readers)
    for reader in readers:
        _give_up(reader.left, os.getpid())
    for reader in readers:
        reader.join()


_threading: Any = threading


def _begin_anew() -> None:
    global _readers, _readers_lock
    _readers, _readers_lock = weakref.WeakSet(), threading.Lock()


def _register() -> None:
    """Called when the main thread has ended: `_end` runs before all other handlers, which may end what the readers use.
    Threads that are no daemons are waited for first; they may still take tensors."""
    atexit.register(_end)


try:
    _threading._register_atexit(_register)
except (AttributeError, RuntimeError):  # another Python; the main thread has ended
    _register()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)  # the threads of the parent are not in the child


def tensor_meta(file: File, name: str) -> TensorMeta:
    if name not in file:
        raise missing(name)
    tensor = file.info(name)
    begin = tensor.file_offset - file.info(next(iter(file))).file_offset  # there are no holes, so the first is at 0
    return TensorMeta(tensor.dtype, list(tensor.shape), (begin, begin + tensor.nbytes))


def start(file: File, framework: str, plan: Optional[PrefetchPlan], device: Device, threads: int) -> PrefetchLoader:
    if framework != "torch":
        raise SafetensorError('prefetch is only compatible with framework="pt"')
    rows = None if plan is None else _checked(file, plan)
    chosen = [name for name in file if rows is None or name in rows]
    for name in chosen:
        dtype = file.info(name).dtype
        try:
            check_dtype(dtype, framework)
        except SafetensorError:
            raise SafetensorError(f"prefetch cannot hand out dtype {dtype}: torch has no matching dtype") from None
    if rows is not None and not chosen:
        raise SafetensorError("prefetch plan selects no tensors")

    def read(name: str) -> Any:
        part = None if rows is None else rows[name]
        tensor = file.info(name)
        shape = tensor.shape
        with translated("Error while reading"):
            if part:
                shape = part.stop - part.start, *shape[1:]  # not the array's, which is flat where elements are packed
            array = file.slice(name)[part] if part else file.read(name)
            return tensor_of(array, tensor.dtype, shape, framework, device)

    return PrefetchLoader({name: partial(read, name) for name in chosen}, threads)


def _checked(file: File, plan: PrefetchPlan) -> dict[str, Optional[slice]]:
    rows: dict[str, Optional[slice]] = {}
    for name, part in plan.items():
        if not isinstance(name, str):
            raise SafetensorError("prefetch plan keys must be tensor names")
        if name not in file:
            raise missing(name)
        rows[name] = None if part is None else _rows(name, part, file)
    return rows


def _rows(name: str, part: Any, file: File) -> slice:
    if not isinstance(part, slice):
        raise SafetensorError(f"prefetch plan values must be None or a slice, got {type(part)} for {name}")
    tensor = file.info(name)
    if not tensor.shape:
        raise SafetensorError(f"cannot slice rows of the 0-d tensor {name}")
    extent = tensor.shape[0]
    for which, bound in (("start", part.start), ("stop", part.stop)):
        if bound is None:
            continue
        if not isinstance(bound, int):
            raise SafetensorError(f"prefetch plan slice bounds for {name} must be integers or None")
        if not -extent <= bound <= extent:
            raise SafetensorError(f"prefetch plan slice {which} {bound} for {name} is out of range for {extent} rows")
    try:
        begin, end, step = part.indices(extent)
    except (TypeError, ValueError) as error:
        raise SafetensorError(f"invalid prefetch plan slice for {name}: {type(error).__name__}: {error}") from None
    if step != 1:
        raise SafetensorError(f"prefetch plan slices must have step 1, got {step} for {name}")
    if extent and tensor.nbytes % extent:
        raise SafetensorError(f"cannot slice rows of {name}: a row is not a whole number of bytes")
    return slice(begin, max(begin, end))
