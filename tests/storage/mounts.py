"""The model of the reading tests, on every kind of mount that this machine can make.

Names stand in another order than the data, sizes are odd, so that nothing is aligned; the bytes of every tensor
differ from those of every other.
"""

from __future__ import annotations

import json
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import clients
import disk
import numpy as np
import st_abi
from object_store import Gcsfuse, ObjectStore
from record_fs import RecordFs

MIB = 1 << 20


class Model:
    """`count` tensors of `size` bytes between a small, odd one and a tiny one; in all a bit more than count * size."""

    def __init__(self, count=12, size=2 * MIB):
        sizes = {"first": 3005}
        sizes |= {f"w{i * 7 % count:04}": size for i in range(count)}  # 7: prime to every count used
        sizes |= {"empty": 0, "last": 1}
        assert len(sizes) == count + 3
        self.sizes = sizes
        header, self.offsets, offset = {}, {}, 0
        for name, n in sizes.items():
            header[name] = {"dtype": "U8", "shape": [n], "data_offsets": [offset, offset + n]}
            offset += n
        text = json.dumps(dict(sorted(header.items()))).encode()
        self._head = struct.pack("<Q", len(text)) + text
        self.size = len(self._head) + offset
        self.data_offset = len(self._head)
        offset = self.data_offset
        for name, n in sizes.items():
            self.offsets[name] = offset
            offset += n

    def bytes_of(self, name):
        n = self.sizes[name]
        words = np.arange(n // 8 + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        words ^= np.uint64(self.offsets[name] * 0xC2B2AE3D % (1 << 64))
        return words.tobytes()[:n]

    def write(self, path):
        with open(path, "wb") as f:
            f.write(self._head)
            for name in self.sizes:
                f.write(self.bytes_of(name))
        return path

    def content(self):
        return self._head + b"".join(self.bytes_of(name) for name in self.sizes)


NAME = "model.safetensors"


class Mounted(NamedTuple):
    """A file, and what libst is to say of where it is."""

    path: Path
    storage: str  # of st_abi.STORAGE
    filesystem: str  # the type in the mount table
    is_shareable: bool = True  # or MAP_SHARED answers ENODEV

    @property
    def map(self):
        """What is mapped unless asked otherwise."""
        return st_abi.MAP_SHARED if self.storage in ("local", "memory") else st_abi.MAP_PRIVATE


class Mounts:
    """Makes them; unmounts all at the end, the last first."""

    def __init__(self, folder, programs, model):
        self._folder, self._programs, self._model = folder, programs, model
        self._stack = ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _new_folder(self, name):
        folder = self._folder / name
        folder.mkdir()
        return folder

    def _place(self, folder):
        self._model.write(folder / NAME)
        return folder

    def _disk(self, kind):
        made = self._stack.enter_context(disk.Disk(self._new_folder(f"on-{kind}"), kind))
        return made.mount()

    def _tmpfs(self):
        return self._stack.enter_context(disk.mounted("none", self._new_folder("tmpfs"), "tmpfs"))

    def _overlay(self, below, upper):
        """`below` is read, `upper` (a folder of its filesystem) would take changes."""
        (upper / "up").mkdir()
        (upper / "work").mkdir()
        data = f"lowerdir={below},upperdir={upper}/up,workdir={upper}/work"
        return self._stack.enter_context(disk.mounted("overlay", self._new_folder("overlay"), "overlay", data=data))

    def record_fs(self, *options, **more):
        fs = RecordFs(self._new_folder("recorded"), self._programs, *options, **more)
        self._stack.enter_context(fs)
        self._place(fs.source)
        return fs

    def _gcsfuse(self, *options):
        store = self._stack.enter_context(ObjectStore(self._folder))
        store.put(NAME, self._model.content())
        return self._stack.enter_context(Gcsfuse(store, self._folder / "gcsfuse", *options)).mountpoint

    def _client(self, kind):
        source = self._place(self._new_folder("source"))
        return self._stack.enter_context(kind(source, self._folder / "client")).mountpoint

    # One function a kind of mount; `make` finds it by its name.

    def ext4(self):
        return Mounted(self._place(self._disk("ext4")), "local", "ext4")

    def xfs(self):
        return Mounted(self._place(self._disk("xfs")), "local", "xfs")

    def btrfs(self):
        return Mounted(self._place(self._disk("btrfs")), "local", "btrfs")

    def tmpfs(self):
        return Mounted(self._place(self._tmpfs()), "memory", "tmpfs")

    def ext4_read_only(self):
        directory = self._place(self._disk("ext4"))
        disk.mount("none", directory, None, disk.MS_REMOUNT | disk.MS_RDONLY)
        return Mounted(directory, "local", "ext4")

    def bind_read_only(self):
        source, target = self._place(self._disk("ext4")), self._new_folder("bound")
        self._stack.enter_context(disk.mounted(source, target, None, disk.MS_BIND))
        disk.mount("none", target, None, disk.MS_REMOUNT | disk.MS_BIND | disk.MS_RDONLY)
        return Mounted(target, "local", "ext4")

    def overlay_of_disks(self):
        below = self._place(self._disk("ext4"))
        return Mounted(self._overlay(below, self._disk("xfs")), "local", "overlay")

    def overlay_of_memory(self):
        memory = self._tmpfs()
        (memory / "below").mkdir()
        self._place(memory / "below")
        return Mounted(self._overlay(memory / "below", memory), "memory", "overlay")

    def overlay_of_fuse(self):
        """As a container sees it whose image lies on a network; the folder that takes changes is local."""
        fs = self.record_fs()
        return Mounted(self._overlay(fs.mountpoint, self._tmpfs()), "fuse", "overlay")

    def record_fs_cached(self):
        return Mounted(self.record_fs().mountpoint, "fuse", "fuse.record_fs")

    def record_fs_direct(self):
        return Mounted(self.record_fs("--direct-io").mountpoint, "fuse", "fuse.record_fs", is_shareable=False)

    def sshfs(self):
        return Mounted(self._client(clients.Sshfs), "fuse", "fuse.sshfs")

    def rclone(self):
        return Mounted(self._client(clients.Rclone), "object store", "fuse.rclone")

    def gcsfuse(self):
        return Mounted(self._gcsfuse(), "object store", "fuse.gcsfuse")

    def gcsfuse_direct(self):
        return Mounted(self._gcsfuse("--o-direct"), "object store", "fuse.gcsfuse", is_shareable=False)

    def make(self, kind):
        self._folder = self._folder / kind
        self._folder.mkdir()
        mounted = getattr(self, kind)()
        return mounted._replace(path=mounted.path / NAME)


KINDS = (
    "ext4", "xfs", "btrfs", "tmpfs", "ext4_read_only", "bind_read_only", "overlay_of_disks", "overlay_of_memory",
    "overlay_of_fuse", "record_fs_cached", "record_fs_direct", "sshfs", "rclone", "gcsfuse", "gcsfuse_direct",
)  # fmt: skip
NEEDS = {
    "sshfs": ["sshfs"],
    "rclone": ["rclone"],
    "gcsfuse": ["gcsfuse", "fake-gcs-server", "toxiproxy"],
    "gcsfuse_direct": ["gcsfuse", "fake-gcs-server", "toxiproxy"],
}
