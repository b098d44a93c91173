"""Places that cannot be written, and users who may not: never stale bytes, never a journal applied in vain."""

import os
import stat

import disk
import model
import pytest
import st_abi
from disk import as_user
from model import OLD, folder_of, new, put_model
from st_abi import refused

OWNER, OTHER = 1000, 1001


@pytest.fixture
def ext4(make_disk):
    return make_disk("ext4")


def test_immutable_file_is_read_and_not_changed(ext4):
    path = put_model(ext4.mount())
    with disk.immutable(path):
        with refused("ST_E_PERMISSION"):
            st_abi.File(path)
        with st_abi.File(path, writable=False) as f:
            assert f.read("t1") == new(1, 0)
    with st_abi.File(path) as f, disk.immutable(path):  # under an open handle
        with refused("ST_E_PERMISSION"):
            f.update("t1", new(1))
    model.check_file(path, {OLD})


def test_immutable_file_with_committed_journal_is_never_stale(ext4, programs):
    path = put_model(ext4.mount())
    state = programs.crash_while_applying(path, OLD, 1)
    with disk.immutable(path):
        with refused("ST_E_NEEDS_RECOVERY"):
            st_abi.File(path, writable=False)
        with refused("ST_E_NEEDS_RECOVERY"):
            st_abi.recover(path)
        with refused("ST_E_NEEDS_RECOVERY", "ST_E_PERMISSION"):
            st_abi.File(path)
    model.check_file(path, {state})


@pytest.mark.parametrize("kind", disk.KINDS)
def test_read_only_mount(kind, make_disk):
    d = make_disk(kind)
    path = put_model(d.mount())
    d.umount()
    d.mount(disk.MS_RDONLY)
    with st_abi.File(path, writable=False) as f:
        assert f.read("t4") == f.view("t4") == new(4, 0)
    with refused("ST_E_PERMISSION") as e:
        st_abi.File(path)
    assert e.os_errno == 30  # EROFS
    st_abi.recover(path)
    st_abi.verify(path)


@pytest.mark.parametrize("kind", disk.KINDS)
def test_read_only_mount_with_committed_journal_is_never_stale(kind, make_disk, programs):
    d = make_disk(kind)
    path = put_model(d.mount())
    state = programs.crash_while_applying(path, OLD, 1)
    d.umount()
    d.mount(disk.MS_RDONLY)
    before = path.read_bytes()
    for _ in range(2):
        with refused("ST_E_NEEDS_RECOVERY") as e:
            st_abi.File(path, writable=False)
        assert "journal" in e.message
        with refused("ST_E_NEEDS_RECOVERY"):
            st_abi.recover(path)
        with refused("ST_E_NEEDS_RECOVERY", "ST_E_PERMISSION"):
            st_abi.File(path)
    assert path.read_bytes() == before
    d.umount()
    d.mount()
    model.check_file(path, {state})


def test_read_only_mount_with_uncommitted_journal_is_read(ext4, programs):
    """It promised nothing."""
    path = put_model(ext4.mount())
    programs.crash_while_staging(path)
    ext4.umount()
    ext4.mount(disk.MS_RDONLY)
    with st_abi.File(path, writable=False) as f:
        assert f.read("t1") == new(1, 0)
    ext4.umount()
    ext4.mount()
    model.check_file(path, {OLD})


def test_file_without_write_permission(place):
    """For its user; and a committed journal beside it is not passed over."""
    path = put_model(place)
    path.chmod(0o444)

    def look():
        with st_abi.File(path, writable=False) as f:
            same = f.read("t1") == new(1, 0)
        return [same, st_abi.status_of(st_abi.File, path)]

    assert as_user(OTHER, look) == [True, "ST_E_PERMISSION"]


def test_reader_who_may_not_write_is_told_of_a_committed_journal(place, programs):
    path = put_model(place)
    path.chmod(0o644)
    state = programs.crash_while_applying(path, OLD, 1)

    def look():
        return [st_abi.status_of(st_abi.File, path, writable=False), st_abi.status_of(st_abi.recover, path)]

    assert as_user(OTHER, look) == ["ST_E_NEEDS_RECOVERY"] * 2
    model.check_file(path, {state})
    assert as_user(OTHER, look) == ["ST_OK", "ST_OK"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_journal_is_no_more_readable_than_the_file(mode, place, programs):
    path = put_model(place)
    path.chmod(mode)
    state = programs.crash_while_applying(path, OLD, 1)
    for entry in (folder_of(path), *folder_of(path).iterdir()):
        extra = stat.S_IMODE(entry.stat().st_mode) & ~(mode | 0o700) & 0o666
        assert not extra, f"{entry.name} has mode {entry.stat().st_mode:o}, the file {mode:o}"
        assert not entry.stat().st_mode & 0o022
    model.check_file(path, {state})
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_owner_is_not_locked_out_by_journal_that_root_left(place, programs):
    """Root's writer died while staging, in the owner's folder: nothing was promised, and the owner goes on."""
    place.chmod(0o755)
    os.chown(place, OWNER, OWNER)
    path = put_model(place)
    os.chown(path, OWNER, OWNER)
    programs.crash_while_staging(path)

    def go_on():
        with st_abi.File(path) as f:
            return f.read("t1") == new(1, 0)

    assert as_user(OWNER, go_on) is True
