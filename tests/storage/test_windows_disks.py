"""Disks of Windows, as FUSE programs show them: all files are one user's, and as a rule anybody may write to each."""

import disk
import model
import pytest
import st_abi
from clients import Client, lacking, program
from model import OLD, new, put_model

MKFS = {"ntfs-3g": ["mkntfs", "-F", "-q"], "mount.exfat-fuse": ["mkfs.exfat"]}
FOREGROUND = {"ntfs-3g": ["-o", "no_detach"], "mount.exfat-fuse": ["-d"]}


@pytest.fixture(params=sorted(MKFS))
def windows_disk(request, scratch):
    """Mounted with the options that the program has by itself."""
    kind = request.param
    if missing := lacking(kind, MKFS[kind][0]):
        pytest.skip(missing)
    disk.MKFS[kind] = MKFS[kind]
    image = disk.make_image(scratch / "windows.img", kind, 64 << 20)
    with (
        disk.Loop(image) as loop,
        Client(scratch / "mnt", [program(kind), *FOREGROUND[kind], loop.device, scratch / "mnt"]) as client,
    ):
        yield client.mountpoint


def test_is_changed_in_place_and_recovered(windows_disk, programs):
    path = put_model(windows_disk)
    assert path.stat().st_mode & 0o777 == 0o777
    with st_abi.File(path) as f:
        assert f.io_info().filesystem == b"fuseblk"
        f.update("t1", new(1))
        f.update_all({"t0": new(0), "t4": new(4)})
        assert f.read("t4") == f.view("t4") == new(4)
    model.check_file(path, {(1, 1, 0, 0, 1, 0)})
    state = programs.crash_while_applying(path, (1, 1, 0, 0, 1, 0), 2)
    model.check_file(path, {state})
    assert state != OLD and sorted(p.name for p in windows_disk.glob("*")) == [path.name]


def test_is_published(windows_disk):
    path = put_model(windows_disk)
    inode = path.stat().st_ino
    with st_abi.File(path) as f:
        f.update_all({"t0": new(0)}, publish=True)
    assert path.stat().st_ino != inode
    model.check_file(path, {(1, 0, 0, 0, 0, 0)})
