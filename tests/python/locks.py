"""Hold a file as another worker would: an exclusive open-file-description lock on all of it."""

import contextlib
import fcntl
import os
import struct

F_OFD_SETLK = 37
_FLOCK = "hhqqixxxx"  # short l_type, l_whence; off_t l_start, l_len; pid_t l_pid


@contextlib.contextmanager
def exclusive(path, begin=0, length=0):
    """`length` 0: to the end. Released at the block's end."""
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.fcntl(fd, F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, begin, length, 0))
        yield
    finally:
        os.close(fd)
