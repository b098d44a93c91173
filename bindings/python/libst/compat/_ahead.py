"""Bring a file that is mapped into the page cache while its reader goes on.

A mapping is read from the disk where it is touched, in small pieces, one at a time: the disk waits for the reader, and
the reader for the disk. Pages that nobody touches are not mapped, so they are not memory of this process.
"""

import os
import threading

NAME = "libst-read-ahead"  # of the thread

_WORTH_IT = 16 << 20  # bytes of a file
_STEP = 8 << 20  # bytes a call; between two the thread may end with the process
_LOOKS = 8


def read_ahead(path: str, size: int) -> None:
    """In a thread, if most of the file is not in memory, and there is room for it. What cannot be done is left out."""
    if size < _WORTH_IT:
        return
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
            if size > room or not _is_cold(fd, size):
                return
            threading.Thread(target=_read, args=(os.dup(fd), size), name=NAME, daemon=True).start()
        finally:
            os.close(fd)
    except (OSError, RuntimeError):
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
