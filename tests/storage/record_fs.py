"""A mounted record_fs, and what it was asked."""

from __future__ import annotations

import ctypes
import mmap
import os
from ctypes import c_uint32, c_uint64
from typing import NamedTuple

import disk

OPEN, READ, RELEASE = 1, 2, 3
CAPACITY = 1 << 17


class Record(NamedTuple):
    """As in record_fs.c."""

    kind: int
    thread: int
    handle: int
    offset: int
    size: int

    @property
    def end(self):
        return self.offset + self.size


class _Record(ctypes.Structure):
    _fields_ = [(name, c_uint32 if name in ("kind", "thread") else c_uint64) for name in Record._fields]


class _Log(ctypes.Structure):
    _fields_ = [
        ("latency_us", c_uint32),
        ("capacity", c_uint32),
        ("count", c_uint64),
        ("records", _Record * CAPACITY),
    ]


class RecordFs:
    """`source` is what is on its disk; `mountpoint` is how programs see it, as a filesystem of type `kind`."""

    def __init__(self, folder, programs, *options, kind="fuse.record_fs", latency_us=0, max_read=0, read_ahead=0):
        self.source, self.mountpoint = folder / "below", folder / "mnt"
        self.source.mkdir(exist_ok=True)
        self.mountpoint.mkdir(exist_ok=True)
        self._programs, self._kind, self._log_path = programs, kind, folder / "log"
        self._options = [*options, *(["--max-read", max_read] if max_read else [])]
        self._max_read, self._read_ahead = max_read, read_ahead
        fd = os.open(self._log_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.ftruncate(fd, ctypes.sizeof(_Log))
        self._map = mmap.mmap(fd, ctypes.sizeof(_Log))
        os.close(fd)
        self._log = _Log.from_buffer(self._map)
        self._log.latency_us = latency_us
        self._daemon = None
        self.mount()

    def mount(self):
        self._daemon = self._programs.mount_fuse(
            "record_fs",
            *self._options,
            self.source,
            self._log_path,
            mountpoint=self.mountpoint,
            kind=self._kind,
            options=f"max_read={self._max_read}" if self._max_read else "",
        )
        device = os.stat(self.mountpoint).st_dev
        if self._read_ahead:
            disk.set_read_ahead(device, self._read_ahead)

    def umount(self):
        if self._daemon:
            disk.umount(self.mountpoint)
            self._daemon.wait(disk.LONGEST_WAIT)
        self._daemon = None

    def remount(self):
        """Forget all that is cached, and the record."""
        self.umount()
        self.clear()
        self.mount()

    def clear(self):
        """Begin a new record; what the kernel still reads ahead belongs to the old one."""
        if self._daemon:
            os.statvfs(self.mountpoint)
        self._log.count = 0

    def records(self):
        """All requests so far; with --in-order, in the order of their coming."""
        if self._daemon:
            os.statvfs(self.mountpoint)
        n = self._log.count
        assert n <= CAPACITY, "the record is full"
        return [Record(*(getattr(r, f) for f in Record._fields)) for r in self._log.records[:n]]

    def opens(self):
        return [r.handle for r in self.records() if r.kind == OPEN]

    def reads(self):
        """handle → its reads, in order; handles that read nothing are not in it."""
        result = {}
        for r in self.records():
            if r.kind == READ:
                result.setdefault(r.handle, []).append(r)
        return result

    def close(self):
        self.umount()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
