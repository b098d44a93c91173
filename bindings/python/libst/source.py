"""A safetensors file that is no file of this system: `libst.open_source`."""

import ctypes
import errno
import operator
import os
import threading
from functools import partial
from typing import Any, Callable, Literal, Optional, Protocol, Union

from . import _abi
from ._arguments import number
from ._callbacks import Callbacks, Log, Progress, called_by_c
from ._handle import opened
from ._sized import sized
from .file import File, source_options

#: `read(offset, buffer)` fills the whole buffer, a writable memoryview of bytes, with what lies from `offset` on.
Read = Callable[[int, memoryview], object]


class BinaryFile(Protocol):
    """What file objects have in common; `readinto` is taken where it is there."""

    def seek(self, offset: int, whence: Literal[0, 1, 2] = 0, /) -> Any: ...
    def tell(self) -> int: ...
    def read(self, size: int = -1, /) -> Optional[bytes]: ...


def open_source(
    source: Union[BinaryFile, Read],
    *,
    size: Optional[int] = None,
    name: "Union[str, os.PathLike[str], None]" = None,
    identity: Optional[str] = None,
    most_reads: int = 1,
    io_threads: int = 0,
    block_size: int = 0,
    progress: Optional[Progress] = None,
    log: Optional[Log] = None,
) -> File:
    """Open a safetensors file that lies in a Python file object, or behind a function: a member of a zip archive, an
    object of fsspec's or of another client of a store, a stream that is decrypted as it is read. For reading only.

    Nothing is mapped: `f[name]` is memory that is read when it is first looked at, `read_many` and `load` read in the
    order of the file. The bytes must not change while the file is open.

    Args:
        source: a binary file object that can seek (with `readinto`, else `read`), or a function
            `read(offset, buffer)` that fills the whole buffer, a memoryview. If it returns another whole number than
            `len(buffer)`, as `os.preadv` may, OSError is raised; True and False are no numbers. It is kept while the
            file or a view of it lives: an object that has the file and whose method this is must close the file, as
            the cycle collector frees neither. The function must not read the file, which may wait for this call. A
            file object is not closed, and nobody else may seek in it meanwhile.
        size: bytes; None: a file object is asked.
        name: a str or a path, for messages; None: the file object's own.
        identity: the version of the bytes, as an ETag, for messages.
        most_reads: how many calls of the function may run at once, from threads of libst. Only 1 for a file object.
        io_threads: readers of a bulk read, of most_reads at most; 0: all of them.
        block_size: bytes of a read of theirs; 0: 8 MiB.
        progress: as of `open`.
        log: as of `open`.

    To tell that the bytes are no longer those that were opened, raise OSError with errno ESTALE. What the source
    raises comes out of the call that was running. A file object that ends early is an EOFError.

    A forked child sees what was in memory before, and reads nothing (`Status.UNSUPPORTED`); the file is not pickled.

    Raises FormatError; what the source raises.
    """
    read: Read
    if callable(source):
        if size is None:
            raise ValueError("a function does not tell how many bytes there are; give size")
        read = source
    else:
        if most_reads != 1:
            raise ValueError("a file object has one position, so one read at a time; give most_reads to a function")
        if not hasattr(source, "seek"):
            found = type(source).__name__
            raise TypeError(f"a path, a binary file object that can seek, or a function is wanted, not {found}")
        if size is None:
            size = _end_of(source)
        own_name = getattr(source, "name", None)
        name = own_name if name is None and isinstance(own_name, str) else name
        read = partial(_read_at, source)
    callbacks = SourceCallbacks(read, progress, log)
    given = sized(
        _abi.Source,
        most_reads=number("most_reads", most_reads),
        size=number("size", size, 2**63 - 1),
        name=_text("name", os.fspath(name) if isinstance(name, os.PathLike) else name),
        identity=_text("identity", identity),
        read=callbacks.read,
    )
    options = source_options(callbacks, io_threads, block_size)
    handle = opened(partial(callbacks.call, _abi.st_open_source, given, options), callbacks.faces)
    return File._of(handle, callbacks, True, None, "r")


def _text(what: str, text: Optional[str]) -> Optional[bytes]:
    """For messages, as C takes it."""
    if text is not None and not isinstance(text, str):
        raise TypeError(f"{what} is a str, not {type(text).__name__}")
    return None if text is None else text.encode("utf-8", "backslashreplace")


def _end_of(source: BinaryFile) -> int:
    end: Optional[int] = source.seek(0, 2)
    return source.tell() if end is None else end  # some tell nothing there, as an mmap before Python 3.13


def _read_at(source: BinaryFile, offset: int, buffer: memoryview) -> None:
    source.seek(offset)
    readinto = getattr(source, "readinto", None)
    while len(buffer):
        if readinto is not None:
            got = readinto(buffer)
        else:
            chunk: Any = source.read(len(buffer))
            got = len(chunk)
            if got <= len(buffer):
                buffer[:got] = chunk
        if not got:
            raise EOFError(f"the source ends {len(buffer)} bytes before it should")
        if not 0 < got <= len(buffer):
            raise OSError(errno.EIO, f"the source says that it read {got} bytes, of {len(buffer)}")
        buffer = buffer[got:]


def _check_count(said: object, wanted: int) -> None:
    """What a function of a source returns, if it is a number, is how many bytes it read, as `os.preadv` says it."""
    try:
        count = wanted if isinstance(said, bool) else operator.index(said)  # type: ignore[arg-type]
    except TypeError:  # no number; it says so itself, as an array has `__index__`, too
        return
    if count != wanted:
        raise OSError(errno.EIO, f"the source says that it read {count} bytes, of {wanted}")


class SourceCallbacks(Callbacks):
    """Those of a source: what `read` raises in a thread of libst comes out of the call that this thread works for."""

    __slots__ = ("read", "running", "of_workers")

    def __init__(self, read: Read, progress: Optional[Progress], log: Optional[Log]) -> None:
        super().__init__(progress, log)
        self.running: set[int] = set()  # threads that are in a call
        #: What was raised in threads of libst. One that is still here when no call runs concerns nobody.
        self.of_workers: list[BaseException] = []
        self.read = _abi.source_read_fn(_reader(read, self.raised, self.running, self.of_workers))

    @property
    def faces(self) -> tuple[Any, ...]:
        return (*super().faces, self.read)  # with the source: threads of libst read when no call runs, too

    def call(self, function: Callable[..., int], *args: Any) -> int:
        thread = threading.get_ident()
        if not self.running:
            self.of_workers.clear()
        outer = thread in self.running
        self.running.add(thread)
        try:
            status = super().call(function, *args)
        finally:
            del args  # not in the traceback of an error, where a handle would keep the file open
            if not outer:
                self.running.discard(thread)
        if status != _abi.ST_OK and self.of_workers:
            raise self.of_workers.pop(0)
        return status


# Closes over the parts and not over the callbacks, which would be a cycle.
def _reader(read: Read, raised: dict[int, BaseException], running: set[int], of_workers: list[BaseException]) -> Any:
    def on_read(user: Any, ranges: Any, n: int) -> int:
        thread = threading.get_ident()
        if thread in raised:
            return errno.ECANCELED
        try:
            for i in range(n):
                part = ranges[i]
                room = (ctypes.c_char * part.nbytes).from_address(part.dst)
                _check_count(read(part.offset, memoryview(room).cast("B")), part.nbytes)
        except BaseException as error:
            if thread in running:
                raised[thread] = error
            else:
                of_workers.append(error)
            return errno.EIO
        return errno.ECANCELED if thread in raised else 0

    called_by_c(on_read)
    return on_read
