"""Forbid this process system calls, as the sandbox of a container does: by a filter, before libst is loaded."""

from __future__ import annotations

import ctypes
import platform
import struct

# The numbers of each machine.
MACHINES = ("x86_64", "aarch64")
NUMBERS = {
    "copy_file_range": (326, 285), "fallocate": (285, 47), "getrandom": (318, 278), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "mincore": (27, 232), "openat2": (437, 437),
    "process_vm_readv": (310, 270), "statx": (332, 291), "sync_file_range": (277, 84),
}  # fmt: skip

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000  # answers of a filter; an errno is added to the second
LOAD, IF_EQUAL, ANSWER = 0x20, 0x15, 0x06  # steps of one
SET_SECCOMP, NO_NEW_PRIVILEGES, A_FILTER = 22, 38, 2


def forbid(answers: dict[str, int]) -> None:
    """Each named call answers as said from now on: ERRNO + errno, or KILL."""
    machine = MACHINES.index(platform.machine())
    steps = [(LOAD, 0, 0, 0)]  # the number of the call
    for name, answer in answers.items():
        steps += [(IF_EQUAL, 0, 1, NUMBERS[name][machine]), (ANSWER, 0, 0, answer)]
    steps += [(ANSWER, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((NO_NEW_PRIVILEGES, 1, 0, 0, 0), (SET_SECCOMP, A_FILTER, program, 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "this system takes no filter of system calls")
