"""Mounts that have one mode for all files. On disks of Windows, as FUSE programs show them, anybody may write to each
file, as a rule. A folder that rclone mounts has no attributes of files, either, and writes back later."""

from contextlib import contextmanager

import disk
import model
import pytest
import st_abi
from clients import Client, Rclone, lacking, program
from model import OLD, new, put_model

MKFS = {"ntfs-3g": ["mkntfs", "-F", "-q"], "mount.exfat-fuse": ["mkfs.exfat"]}
FOREGROUND = {"ntfs-3g": ["-o", "no_detach"], "mount.exfat-fuse": ["-d"]}


@contextmanager
def windows_disk(kind, scratch):
    """Mounted with the options that the program has by itself."""
    disk.MKFS[kind] = MKFS[kind]
    image = disk.make_image(scratch / "windows.img", kind, 64 << 20)
    with (
        disk.Loop(image) as loop,
        Client(scratch / "mnt", [program(kind), *FOREGROUND[kind], loop.device, scratch / "mnt"]) as client,
    ):
        yield client


def rclone(scratch):
    source = scratch / "source"
    source.mkdir()
    how = ["--vfs-cache-mode", "writes", "--cache-dir", scratch / "cache"]
    return Rclone(source, scratch / "mnt", how)


@pytest.fixture(params=[*sorted(MKFS), "rclone"])
def mounted(request, scratch):
    """Where, its type, and the mode of all files."""
    kind = request.param
    if missing := lacking(kind, *MKFS.get(kind, [])[:1]):
        pytest.skip(missing)
    of_windows = kind in MKFS
    with windows_disk(kind, scratch) if of_windows else rclone(scratch) as client:
        yield client.mountpoint, b"fuseblk" if of_windows else b"fuse.rclone", 0o777 if of_windows else 0o644


def test_is_changed_in_place_and_recovered(mounted, programs):
    folder, filesystem, mode = mounted
    path = put_model(folder)
    assert path.stat().st_mode & 0o777 == mode
    with st_abi.File(path) as f:
        assert f.io_info().filesystem == filesystem
        f.update("t1", new(1))
        f.update_all({"t0": new(0), "t4": new(4)})
        assert f.read("t4") == f.view("t4") == new(4)
    model.check_file(path, {(1, 1, 0, 0, 1, 0)})
    state = programs.crash_while_applying(path, (1, 1, 0, 0, 1, 0), 2)
    model.check_file(path, {state})
    assert state != OLD and sorted(p.name for p in folder.glob("*")) == [path.name]


def test_is_published(mounted):
    folder, filesystem, _ = mounted
    path = put_model(folder)
    inode = path.stat().st_ino
    with st_abi.File(path) as f:
        f.update_all({"t0": new(0)}, publish=True)
        assert f.read("t0") == new(0)
    # rclone may give the new file the old one's number, once it has written it back.
    assert path.stat().st_ino != inode or filesystem == b"fuse.rclone"
    model.check_file(path, {(1, 0, 0, 0, 0, 0)})
