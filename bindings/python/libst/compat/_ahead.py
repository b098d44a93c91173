"""Work ahead of the reader of a whole file that is mapped, in a thread: bring a cold file into the page cache, and map
the pages of a warm one.

A mapping is read from the disk where it is touched, in small pieces, one at a time: the disk waits for the reader, and
the reader for the disk. Of a warm file each sixteen pages cost a fault, in which the other processors are idle.
"""

import ctypes
import mmap
import os
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Callable

import numpy as np

from .._rows import address

NAME = "libst-read-ahead"  # of the thread

WORTH_IT = 16 << 20  # bytes of a file
_READERS, _READ = 4, 2 << 20  # threads, and bytes of each of their reads
_FAR = 2 << 20  # bytes that the kernel reads ahead of a sequence; from then on it is left to it, by
_FOLLOWERS, _STRETCH = 2, 32 << 20  # threads, and bytes of each of their sequences
_PAUSE = 0.001  # seconds; who maps holds a lock that the opening of the next file waits for
_STEP = 8 << 20  # bytes that are mapped by a call; between two the thread may end with the process
_LOOKS = 8
_MANY = 64  # pieces that may wait before those that nobody wants any more are dropped

# What has descriptors. A forked child closes them: the stacks of the threads that it has not would keep them for good.
_opened: "weakref.WeakSet[Any]" = weakref.WeakSet()


class Wanted:
    """Whether pieces of work are: as long as `by`'s buffer is there. Until that is called they are."""

    __slots__ = ("gone", "_buffer")

    def __init__(self) -> None:
        self.gone: list[Any] = []  # empty as long as they are wanted
        self._buffer: Callable[[], Any] = lambda: None

    def by(self, buffer: Any) -> None:
        self._buffer = weakref.ref(buffer, self.gone.append)

    def by_nobody(self) -> None:
        self.gone.append(None)

    def buffer(self) -> Any:
        """None: it is not there."""
        return self._buffer()


def read_ahead(path: str, size: int, wanted: Wanted) -> bool:
    """If most of the file is not in memory, and there is room for it. What cannot be done is left out. False: nothing
    is left to read."""
    if size < WORTH_IT or not hasattr(os, "RWF_NOWAIT"):
        return False
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not _is_cold(fd, size):
                return False
            if size > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2:
                return True
            path = os.path.abspath(path)
            if _populates and _is_read_far_ahead(fd):
                _followers.add([partial(_follow, path, at, wanted) for at in range(0, size, _STRETCH)], wanted)
            else:
                file = _File(path)
                _readers.add([partial(file.read, at) for at in range(0, size, _READ)], wanted)
        finally:
            os.close(fd)
    except OSError:
        pass
    return True


def map_ahead(address: int, size: int, wanted: Wanted) -> None:
    """A mapping whose file is in memory, as long as it is `wanted` by the buffer that keeps it. Its reader begins at
    its first byte, so this begins in the middle; of several files the reader begins with the first, and this goes on
    with the last. While it waits for its turn, nothing here keeps the mapping."""
    if _populates and size >= WORTH_IT and (os.cpu_count() or 1) > 1:
        middle = size // 2 // _STEP * _STEP
        steps = (*range(middle, size, _STEP), *range(0, middle, _STEP))
        _mapper.add([partial(_map, address + at, min(_STEP, size - at), wanted) for at in steps], wanted, True)


def _is_cold(fd: int, size: int) -> bool:
    missing = 0
    for i in range(_LOOKS):
        try:
            os.preadv(fd, [bytearray(1)], size // _LOOKS * i, os.RWF_NOWAIT)
        except BlockingIOError:
            missing += 1
    return missing > _LOOKS // 2


def _is_read_far_ahead(fd: int) -> bool:
    """Whether the kernel reads a sequence in large requests, ahead of its reader."""
    device = os.fstat(fd).st_dev
    try:
        kilobytes = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb").read_text()
    except OSError:
        return False
    return int(kilobytes) << 10 >= _FAR


def _follow(path: str, begin: int, wanted: Wanted, _memory: mmap.mmap) -> None:
    """Touch a stretch of a file page by page, through a mapping of its own, as the kernel reads ahead of each sequence
    by its file description."""
    try:
        with open(path, "rb", buffering=0) as file:
            _opened.add(file)
            length = max(0, min(_STRETCH, os.fstat(file.fileno()).st_size - begin))
            with mmap.mmap(file.fileno(), length, prot=mmap.PROT_READ, offset=begin) as pages:
                _opened.add(pages)
                first = address(np.frombuffer(pages, np.uint8))
                for at in range(0, length, _STEP):
                    if wanted.gone or _madvise(first + at, min(_STEP, length - at), _POPULATE_READ):
                        break
    except (OSError, ValueError):
        pass  # its reader will see


class _File:
    """One that is read into the page cache, by several threads. It is open from its first piece to its last: files that
    wait for their turn are many."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._fd = -1

    def read(self, at: int, memory: mmap.mmap) -> None:
        try:
            with self._lock:
                if self._fd < 0:
                    self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                    _opened.add(self)
            os.preadv(self._fd, [memory], at)
        except OSError:
            pass  # its reader will see

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close


class _Threads:
    """Do pieces of work file by file, in the order in which they were asked for, or the file first that was asked for
    last. Several files at once would keep the disk from the first, with which their reader begins. No piece begins
    within `pause` seconds of a file being asked for, nor once nobody wants it."""

    def __init__(self, most: int, pause: float = 0) -> None:
        self._most = most
        self._pause = pause
        self._begin = 0.0
        self._lock = threading.Lock()
        self._pieces: deque[tuple[Wanted, Callable[[mmap.mmap], None]]] = deque()
        self._many = _MANY
        self._running = 0

    def add(self, pieces: list[Callable[[mmap.mmap], None]], wanted: Wanted, next_ones: bool = False) -> None:
        added = [(wanted, piece) for piece in pieces]
        with self._lock:
            self._begin = time.monotonic() + self._pause
            if len(self._pieces) >= self._many:
                self._pieces = deque(each for each in self._pieces if not each[0].gone)
                self._many = max(_MANY, 2 * len(self._pieces))
            if next_ones:
                self._pieces.extendleft(reversed(added))
            else:
                self._pieces.extend(added)
            missing, self._running = self._most - self._running, self._most
        for _ in range(missing):
            try:
                threading.Thread(target=self._work, name=NAME, daemon=True).start()
            except RuntimeError:  # no more threads: another file may have more luck
                with self._lock:
                    self._running -= 1
                    if self._running:
                        continue
                    given_up, self._pieces = self._pieces, deque()
                del given_up  # and what it keeps, without the lock

    def forget(self) -> None:
        """In a forked child, where a thread that is not there may have the lock."""
        self._pieces.clear()

    def _work(self) -> None:
        with mmap.mmap(-1, _READ) as memory:  # no memory is kept by malloc for the next thread
            while True:
                with self._lock:
                    while self._pieces and self._pieces[0][0].gone:
                        self._pieces.popleft()
                    if not self._pieces:
                        self._running -= 1
                        return
                    early = self._begin - time.monotonic()
                    piece = self._pieces.popleft()[1] if early <= 0 else None
                if piece:
                    piece(memory)
                    del piece  # and the file that it keeps
                else:
                    time.sleep(early)


_readers, _followers, _mapper = _Threads(_READERS), _Threads(_FOLLOWERS), _Threads(1, _PAUSE)


def _begin_anew() -> None:
    global _readers, _followers, _mapper
    for opened in list(_opened):
        with suppress(OSError, BufferError):  # a thread was about to take the address of its mapping
            opened.close()
    for threads in (_readers, _followers, _mapper):
        threads.forget()
    _readers, _followers, _mapper = _Threads(_READERS), _Threads(_FOLLOWERS), _Threads(1, _PAUSE)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)  # the threads of the parent are not in the child


_POPULATE_READ = 22  # MADV_POPULATE_READ; before Linux 5.14 an error
_madvise: Any = None
if os.name != "nt":
    _madvise = ctypes.CDLL(None).madvise
    _madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_populates = _madvise is not None and _madvise(None, 0, _POPULATE_READ) == 0


def _map(address: int, size: int, wanted: Wanted, _memory: mmap.mmap) -> None:
    buffer = wanted.buffer()  # until the call has returned
    if buffer is not None:
        _madvise(address, size, _POPULATE_READ)
