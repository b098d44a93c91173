"""Work ahead of the reader of a whole file that is mapped, in a thread: bring a cold file into the page cache, and map
the pages of a warm one.

A mapping is read from the disk where it is touched, in small pieces, one at a time: the disk waits for the reader, and
the reader for the disk. Of a warm file each sixteen pages cost a fault, in which the other processors are idle.
"""

import ctypes
import os
import threading
from typing import Any

NAME = "libst-read-ahead"  # of the thread

_WORTH_IT = 16 << 20  # bytes of a file
_STEP = 8 << 20  # bytes a call; between two the thread may end with the process
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
                _start(_read, os.dup(fd), size)
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


def _start(work: Any, *arguments: Any) -> None:
    try:
        threading.Thread(target=work, args=arguments, name=NAME, daemon=True).start()
    except RuntimeError:  # no more threads
        pass


def _is_cold(fd: int, size: int) -> bool:
    missing = 0
    for i in range(_LOOKS):
        try:
            os.preadv(fd, [bytearray(1)], size // _LOOKS * i, os.RWF_NOWAIT)
        except BlockingIOError:
            missing += 1
    return missing > _LOOKS // 2


def _read(fd: int, size: int) -> None:
    try:
        for at in range(0, size, _STEP):
            os.posix_fadvise(fd, at, _STEP, os.POSIX_FADV_WILLNEED)
    except OSError:
        pass
    finally:
        os.close(fd)


_POPULATE_READ = 22  # MADV_POPULATE_READ; before Linux 5.14 an error, which nobody looks at
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _map(address: int, size: int, _buffer: Any) -> None:
    middle = size // 2 // _STEP * _STEP
    for at in (*range(middle, size, _STEP), *range(0, middle, _STEP)):
        if _madvise(address + at, min(_STEP, size - at), _POPULATE_READ):
            return
