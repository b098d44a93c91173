"""A filesystem on a loop device over disk_recorder, which logs all that reaches the disk; and that log."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

import disk


class Recorder:
    def __init__(self, scratch, kind, programs):
        self.image = disk.make_image(scratch / "recorded.img", kind)
        self.log = scratch / "recorded.log"
        self.fuse = scratch / "recorded.fuse"
        self.fuse.mkdir()
        self._disk = None
        self._daemon = programs.mount_fuse("disk_recorder", self.image, self.log, mountpoint=self.fuse)
        try:
            self._disk = disk.Disk(scratch, kind, backing=self.fuse / "disk")
        except BaseException:
            self.close()
            raise

    @property
    def mark(self):
        """What is written there goes into the log."""
        return self.fuse / "mark"

    def command(self, text):
        fd = os.open(self.mark, os.O_WRONLY)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def mount(self):
        return self._disk.mount()

    def umount(self):
        self._disk.umount()

    def forget_cache(self):
        """What is cached of the disk was perhaps never written: read it from there."""
        self._disk.loop.forget_cache()
        fd = os.open(self.fuse / "disk", os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)

    def close(self):
        if self._disk:
            self._disk.close()
        disk.umount(self.fuse)
        self._daemon.wait(disk.LONGEST_WAIT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@dataclass
class Record:
    kind: str  # W rite, Z eros, F lush, M ark
    offset: int
    length: int
    data: bytes


def read_log(path):
    blob = Path(path).read_bytes()
    records, at = [], 0
    while at < len(blob):
        kind, length, offset = struct.unpack_from("<c3xIQ", blob, at)
        at += 16
        data = b""
        if kind in b"WM":
            data = blob[at : at + length]
            at += length
        records.append(Record(kind.decode(), offset, length, data))
    return records
