"""Run a static program of aarch64 with pages of 64 KiB, by qemu-user.

It pretends such pages, and a program with its own loader (ld-linux-aarch64.so.1) breaks by it. Its mincore tells of
pages of 4 KiB, past the end of what the program has for them: so a filter takes mincore away, as a container does.
"""

import errno
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
from forbid import ERRNO, forbid  # noqa: E402

forbid({"mincore": ERRNO + errno.ENOSYS})
os.execvp("qemu-aarch64-static", ["qemu-aarch64-static", "-p", "65536", *sys.argv[1:]])
