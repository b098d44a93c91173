"""Work ahead of the reader of a whole file that is mapped, in a thread: bring a cold file into the page cache, and map
the pages of a warm one.

A mapping is read from the disk where it is touched, in small pieces, one at a time: the disk waits for the reader, and
the reader for the disk. Of a warm file each sixteen pages cost a fault, in which the other processors are idle.
"""

import ctypes
import mmap
import os
import threading
from collections import deque
from typing import Any

NAME = "libst-read-ahead"  # of the thread

_WORTH_IT = 16 << 20  # bytes of a file
_READERS, _READ = 4, 2 << 20  # threads, and bytes of each of their reads
_STEP = 8 << 20  # bytes that are mapped by a call; between two the thread may end with the process
_LOOKS = 8


def read_ahead(path: str, size: int) -> bool:
    """If most of the file is not in memory, and there is room for it. What cannot be done is left out. False: nothing
    is left to read."""
    if size < _WORTH_IT:
        return False
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not _is_cold(fd, size):
                return False
            if size <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2:
                _reader.add(os.dup(fd), size)
        finally:
            os.close(fd)
    except OSError:
        pass
    return True


def map_ahead(address: int, size: int, buffer: Any) -> None:
    """A mapping whose file is in memory, and which `buffer` keeps. Its reader begins at its first byte, so this begins
    in the middle."""
    if size >= _WORTH_IT and (os.cpu_count() or 1) > 1:
        _start(_map, address, size, buffer)


def _start(work: Any, *arguments: Any) -> bool:
    try:
        threading.Thread(target=work, args=arguments, name=NAME, daemon=True).start()
    except RuntimeError:  # no more threads
        return False
    return True


def _is_cold(fd: int, size: int) -> bool:
    missing = 0
    for i in range(_LOOKS):
        try:
            os.preadv(fd, [bytearray(1)], size // _LOOKS * i, os.RWF_NOWAIT)
        except BlockingIOError:
            missing += 1
    return missing > _LOOKS // 2


class _Reader:
    """Reads files into the page cache, one after the other, by a few threads. Several files that were asked for at once
    would keep the disk from the first, with which their reader begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: deque[tuple[int, int, list[int]]] = deque()  # descriptor, offset, how many are left of this file
        self._threads = 0

    def add(self, fd: int, size: int) -> None:
        """`fd` is closed when all is read."""
        offsets = range(0, size, _READ)
        left = [len(offsets)]
        with self._lock:
            self._pieces.extend((fd, at, left) for at in offsets)
            missing, self._threads = _READERS - self._threads, _READERS
        failed = missing - sum(_start(self._work) for _ in range(missing))
        with self._lock:
            self._threads -= failed  # another file may have more luck

    def _work(self) -> None:
        with mmap.mmap(-1, _READ) as memory:  # no memory is kept by malloc for the next thread
            while True:
                with self._lock:
                    if not self._pieces:
                        self._threads -= 1
                        return
                    fd, at, left = self._pieces.popleft()
                try:
                    os.preadv(fd, [memory], at)
                except OSError:
                    pass  # its reader will see
                with self._lock:
                    left[0] -= 1
                    if not left[0]:
                        os.close(fd)


_reader = _Reader()


def _forget() -> None:
    global _reader
    _reader = _Reader()  # the threads of the other are not in a forked child


os.register_at_fork(after_in_child=_forget)


_POPULATE_READ = 22  # MADV_POPULATE_READ; before Linux 5.14 an error, which nobody looks at
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _map(address: int, size: int, _buffer: Any) -> None:
    middle = size // 2 // _STEP * _STEP
    for at in (*range(middle, size, _STEP), *range(0, middle, _STEP)):
        if _madvise(address + at, min(_STEP, size - at), _POPULATE_READ):
            return
