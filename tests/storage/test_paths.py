"""What a path may lead to: links, other kinds of filesystem, one file of a container, and what is no file at all."""

import os
import socket

import disk
import model
import pytest
import st_abi
from disk import in_child
from model import OLD, SIZES, folder_of, new, put_model
from st_abi import refused


def test_journal_lies_beside_the_target_of_a_symlink(tmp_path, programs):
    """As in a download cache: the name points to a blob elsewhere, by two steps."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    blob = put_model(tmp_path / "blobs", "0123abcd")
    (tmp_path / "middle").symlink_to(blob)
    link = tmp_path / "snapshot" / "model.safetensors"
    link.symlink_to("../middle")
    state = programs.crash_while_applying(link, OLD, 1)
    assert model.journals(link) is None
    assert len(model.journals(blob)) == 1
    model.check_file(link, {state})
    assert model.journals(blob) is None
    assert link.is_symlink()
    state = programs.crash_while_applying(link, state, 2)
    model.check_file(blob, {state})  # by the other name


def test_hard_links_see_the_new_bytes(tmp_path):
    path = put_model(tmp_path)
    second = tmp_path / "second.safetensors"
    os.link(path, second)
    inode = path.stat().st_ino
    with st_abi.File(path) as f, st_abi.File(second) as g:
        f.update("t1", new(1, 1))
        assert g.view("t1") == g.read("t1") == new(1, 1)
        g.update("t3", new(3, 2))
        assert f.read("t3") == new(3, 2)
    assert path.stat().st_ino == second.stat().st_ino == inode
    assert path.stat().st_nlink == 2
    for name in (path, second):
        model.check_file(name, {(0, 1, 0, 2, 0, 0)})


def test_hard_links_exclude_each_other(tmp_path):
    path = put_model(tmp_path)
    second = tmp_path / "second.safetensors"
    os.link(path, second)
    with st_abi.File(second, lock_timeout_ms=st_abi.st_h.ST_TIMEOUT_NONE) as g, open(path, "r+b") as other:
        t1 = g.describe("t1")
        disk.lock_range(other, t1.file_offset, t1.nbytes)
        with refused("ST_E_BUSY"):
            g.update("t1", new(1))
    model.check_file(path, {OLD})


def test_tmpfs(memory, programs):
    path = put_model(memory)
    with st_abi.File(path) as f:
        assert f.io_info().filesystem == b"tmpfs"
        f.update("t4", new(4))
    state = programs.crash_while_applying(path, (0, 0, 0, 0, 1, 0), 2)
    model.check_file(path, {state})


@pytest.mark.parametrize("upper", ["tmpfs", "ext4"])
def test_overlay(upper, memory, make_disk, programs):
    """A container's filesystem: a change copies the file up from the image, which stays as it is."""
    lower = memory / "lower"
    lower.mkdir()
    below = put_model(lower)
    top = make_disk("ext4").mount() if upper == "ext4" else memory
    for name in ("upper", "work", "merged"):
        (top / name).mkdir()
    options = f"lowerdir={lower},upperdir={top}/upper,workdir={top}/work"
    with disk.mounted("overlay", top / "merged", "overlay", data=options) as merged:
        path = merged / "m.safetensors"
        with st_abi.File(path, writable=False) as reader:
            assert reader.io_info().filesystem == b"overlay"
            with st_abi.File(path) as f:
                f.update("t1", new(1))
                f.update_all({"t0": new(0), "t4": new(4)})
                assert f.read("t4") == f.view("t4") == new(4)
            assert reader.read("t2") == new(2, 0)
            reader.refresh()  # what it mapped is still the image's
            assert reader.read("t4") == reader.view("t4") == new(4)
            with st_abi.File(path) as f:
                with st_abi.File(path, writable=False, map=st_abi.MAP_NONE) as owner:
                    place = owner.shown("t4").data
                    f.update("t4", new(4, 2))
                    owner.refresh()
                    assert owner.shown("t4").data == place and owner.view("t4") == new(4, 2)
                mapped = reader.shown("t4").data
                reader.refresh()
                assert reader.read("t4") == reader.view("t4") == new(4, 2) and reader.shown("t4").data == mapped
                f.update("t4", new(4))
        model.check_file(path, {(1, 1, 0, 0, 1, 0)})
        state = programs.crash_while_applying(path, (1, 1, 0, 0, 1, 0), 2)
    with disk.mounted("overlay", top / "merged", "overlay", data=options):
        model.check_file(path, {state})
        assert sorted(p.name for p in merged.iterdir()) == ["m.safetensors"]
    assert below.read_bytes() == model.file_bytes()


@pytest.mark.parametrize("options", ["metacopy=off", "metacopy=on"])
def test_on_an_overlay_a_change_may_keep_the_time(options, tmp_path, memory):
    """As rsync -t and cp -p do it. Before it another mode, which may copy the file up without its bytes (metacopy)."""
    lower = tmp_path / "lower"
    for folder in (lower, memory / "upper", memory / "work", memory / "merged"):
        folder.mkdir()
    put_model(lower)
    options = f"lowerdir={lower},upperdir={memory}/upper,workdir={memory}/work,{options}"
    with disk.mounted("overlay", memory / "merged", "overlay", data=options) as merged:
        path = merged / "m.safetensors"
        with st_abi.File(path, writable=False) as reader:
            assert reader.view("t4") == new(4, 0)
            path.chmod(0o640)
            reader.refresh()
            place = reader.describe("t4").file_offset
            for version in (1, 2):
                times = path.stat()
                with open(path, "r+b") as file:
                    os.pwrite(file.fileno(), new(4, version), place)
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
                reader.refresh()
                assert reader.read("t4") == reader.view("t4") == new(4, version)


def test_bind_mount_of_the_file_alone(scratch, programs):
    """As containers do with one file: its journal lies beside the name that was opened."""
    (scratch / "a").mkdir()
    (scratch / "b").mkdir()
    path = put_model(scratch / "a")
    mounted = scratch / "b" / "m.safetensors"
    mounted.touch()
    with disk.mounted(path, mounted, None, disk.MS_BIND):
        with st_abi.File(mounted) as f:
            f.update("t1", new(1))
        state = programs.crash_while_applying(mounted, (0, 1, 0, 0, 0, 0), 2)
        model.check_file(mounted, {state})
    model.check_file(path, {state})


def make_special(directory, kind):
    path = directory / "special.safetensors"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        s = socket.socket(socket.AF_UNIX)
        old = os.open(".", os.O_RDONLY)
        os.chdir(directory)  # its path must be short
        s.bind(path.name)
        os.fchdir(old)
        os.close(old)
        s.close()
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(kind)
    return path


SPECIAL = ["fifo", "socket", "folder", "/dev/zero", "/dev/full", "/dev/tty", "/dev/loop-control"]


@pytest.mark.parametrize("kind", SPECIAL)
def test_no_plain_file_is_refused_at_once(kind, tmp_path):
    path = make_special(tmp_path, kind)

    def look():
        answers = [st_abi.status_of(st_abi.File, path, writable=writable) for writable in (False, True)]
        return [*answers, st_abi.status_of(st_abi.verify, path)]

    # A socket cannot be opened at all, nor a terminal without one.
    expected = {"ST_E_NOT_REGULAR", "ST_E_IO"} if kind in ("socket", "/dev/tty") else {"ST_E_NOT_REGULAR"}
    assert set(in_child(look)) <= expected
    assert model.journals(path) is None


def test_recover_of_fifo_with_journal_folder_does_not_hang(tmp_path, programs):
    path = put_model(tmp_path)
    programs.crash_while_applying(path, OLD, 1)
    path.unlink()
    os.mkfifo(path)
    assert in_child(lambda: st_abi.status_of(st_abi.recover, path)) != "ST_OK"
    assert in_child(lambda: st_abi.status_of(st_abi.File, path)) == "ST_E_NOT_REGULAR"


def test_fifo_and_folder_among_the_journals(tmp_path, programs):
    """Neither hangs nor is believed, and the true journal is applied."""
    path = put_model(tmp_path)
    state = programs.crash_while_applying(path, OLD, 1)
    os.mkfifo(folder_of(path) / "0000000000000000")
    (folder_of(path) / "1111111111111111").mkdir()
    assert in_child(lambda: st_abi.status_of(st_abi.recover, path)) == "ST_E_JOURNAL"
    with st_abi.File(path) as f:
        model.check_bytes([f.read(f"t{t}") for t in range(len(SIZES))], {state})
