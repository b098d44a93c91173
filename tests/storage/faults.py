"""A mounted fault_fs, and the control file that tells it what to do."""

from __future__ import annotations

import ctypes
import mmap
import os
from ctypes import c_uint32

import disk

CUT_BYTES, CUT_NAMES = 1, 2
LOCK_REAL, LOCK_GRANT_ALL, LOCK_ENOSYS, LOCK_ENOLCK = range(4)


class Fault(ctypes.Structure):
    _fields_ = [("count", c_uint32), ("at", c_uint32), ("error", c_uint32), ("sticky", c_uint32)]


class Control(ctypes.Structure):
    """As in fault_fs.c."""

    _fields_ = [
        ("sync", Fault),
        ("write", Fault),
        ("read", Fault),
        ("create", Fault),
        ("fallocate", Fault),
        ("lose", c_uint32),
        ("lock_answer", c_uint32),
        ("delay_us", c_uint32),
        ("cut", c_uint32),
    ]


CALLS = ("sync", "write", "read", "create", "fallocate")


class FaultFs:
    """`source` is what is on its disk; `mountpoint` is how programs see it."""

    def __init__(self, folder, programs, *options):
        self.source, self.mountpoint = folder / "below", folder / "mnt"
        self.source.mkdir(exist_ok=True)
        self.mountpoint.mkdir(exist_ok=True)
        self.programs, self.options = programs, options
        fd = os.open(folder / "control", os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(fd, ctypes.sizeof(Control))
        self._map = mmap.mmap(fd, ctypes.sizeof(Control))
        os.close(fd)
        self.control = Control.from_buffer(self._map)
        self._control_path = folder / "control"
        self._daemon = None
        self.mount()

    def mount(self):
        arguments = [*self.options, self.source, self._control_path]
        self._daemon = self.programs.mount_fuse("fault_fs", *arguments, mountpoint=self.mountpoint)

    def umount(self):
        if self._daemon:
            disk.umount(self.mountpoint)
            self._daemon.wait(disk.LONGEST_WAIT)
        self._daemon = None

    def arm(self, call, at, error, sticky=False, lose=False):
        """From now on count these calls; the `at`-th fails."""
        self.disarm()
        self.control.lose = lose
        fault = getattr(self.control, call)
        fault.error, fault.sticky = error, sticky
        fault.at = at

    def disarm(self):
        """Work well, and count from zero."""
        for call in CALLS:
            fault = getattr(self.control, call)
            fault.at = fault.count = fault.error = fault.sticky = 0
        self.control.lose = 0

    def cut_power(self, what=CUT_BYTES | CUT_NAMES):
        """Lose what was not synced, since lose was set."""
        assert self.control.lose
        self.control.cut = what
        self.umount()
        self.control.cut = 0
        self.disarm()
        self.mount()

    def happened(self, call):
        """Has it come to the call that was to fail?"""
        fault = getattr(self.control, call)
        return fault.at and fault.count >= fault.at

    def close(self):
        self.umount()
        self.control = None  # it points into the mapping, which has a descriptor of its own
        self._map.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
