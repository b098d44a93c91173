"""Hold a file as another worker would: an exclusive open-file-description lock on all of it. And see who waits."""

import contextlib
import fcntl
import os
import struct
import time
from pathlib import Path

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


def _sleeps(process):
    """How often its main thread has gone to sleep."""
    told = Path(f"/proc/{process.pid}/status").read_text()
    return int(told.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def until_it_waits(process):
    """A wait for a lock is sleep after sleep; nothing else that a small test does sleeps so often."""
    before = _sleeps(process)
    while _sleeps(process) < before + 40:
        assert process.poll() is None, f"ended with {process.returncode}"
        time.sleep(0.002)
