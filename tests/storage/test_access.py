"""Places that cannot be written, and users who may not: never stale bytes, never a journal applied in vain."""

import errno
import os
import signal
import stat

import disk
import model
import pytest
import st_abi
from disk import as_user
from model import OLD, folder_of, new, put_model
from st_abi import refused

OWNER, OTHER, THIRD, GROUP = 1000, 1001, 1002, 5151


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


def become(uid, gid=GROUP):
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


@pytest.fixture
def shared(place):
    """A file and its folder that a group shares."""
    place.chmod(0o755)
    folder = place / "team"
    folder.mkdir()
    path = put_model(folder)
    for entry, mode in ((folder, 0o2775), (path, 0o664)):
        os.chown(entry, OWNER, GROUP)
        entry.chmod(mode)
    return path


def while_open(uid, path, others):
    """What `others` answers while a user, who has changed the file, has it open."""
    ready, done = path.parent / "ready", path.parent / "done"

    def hold():
        become(uid)
        with st_abi.File(path) as f:
            f.update("t1", new(1))
            ready.touch()
            disk.wait_until(done.exists, "the others")
        return []

    def meanwhile():
        disk.wait_until(ready.exists, "the writer")
        try:
            return others()
        finally:
            done.touch()

    held, found = disk.in_children(2, lambda i: (hold, meanwhile)[i]())
    assert held == []
    return found


def test_an_idle_writer_of_the_group_keeps_no_reader_out(shared):
    """Nor root's change. Another writer is told who finishes what is begun, and nothing of removing it."""

    def look_as(uid):
        become(uid)
        with st_abi.File(shared, writable=False) as f:
            same = f.read("t1") == new(1)
        with refused("ST_E_JOURNAL") as e:
            st_abi.File(shared)
        return same and f"user {OTHER} finishes it" in e.message and "remove" not in e.message

    def others():
        return [disk.in_child(lambda uid=uid: look_as(uid)) for uid in (OWNER, THIRD, 0)]

    assert while_open(OTHER, shared, others) == [True] * 3
    assert not folder_of(shared).exists()


def killed(uid, path):
    """Has changed the file, and dies with its handle open."""
    pid = os.fork()
    if pid == 0:
        try:
            become(uid)
            writer = st_abi.File(path)
            writer.update("t1", new(1))
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert list(folder_of(path).iterdir())


def change_and_recover(uid, path):
    """What they answer, and what they say."""
    become(uid)
    with st_abi.File(path) as f:
        with refused("ST_E_JOURNAL") as e:
            f.update("t1", new(1, 3))
        same = f.read("t1") == new(1)
    st_abi.recover(path)
    return [same, e.os_errno, e.message]


def test_what_the_files_owner_left_is_no_error_of_anothers_recovery(shared):
    """A journal without a change. Another of the group is told whose it is, and the owner's next open removes it."""
    killed(OWNER, shared)
    same, error, message = disk.in_child(lambda: change_and_recover(OTHER, shared))
    assert same and error == errno.EACCES
    assert f"belongs to user {OWNER}, and you may not write to it" in message and f"user {OWNER} finishes it" in message
    assert list(folder_of(shared).iterdir())

    def open_as_owner():
        become(OWNER)
        st_abi.File(shared).close()

    disk.in_child(open_as_owner)
    assert not folder_of(shared).exists()

    def change():
        become(OTHER)
        with st_abi.File(shared) as f:
            f.update("t1", new(1, 3))

    disk.in_child(change)
    assert not folder_of(shared).exists()


def test_while_the_files_owner_has_it_open_another_of_the_group_may_recover(shared):
    same, error, message = while_open(OWNER, shared, lambda: change_and_recover(OTHER, shared))
    assert same and error == errno.EACCES and f"user {OWNER} finishes it" in message


def test_a_strangers_empty_journal_is_no_error_of_recovery(shared):
    """The file is a third user's, so the journal is not believed; but nothing waits in it."""
    killed(OTHER, shared)

    def recover_as(uid):
        become(uid)
        st_abi.recover(shared)

    for uid in (OWNER, THIRD, 0):
        disk.in_child(lambda uid=uid: recover_as(uid))
        assert list(folder_of(shared).iterdir())
    disk.in_child(lambda: recover_as(OTHER))
    assert not folder_of(shared).exists()


def test_recovery_through_a_read_only_mount_beside_a_writer(shared, place):
    """Its parked journal promises nothing."""
    there = place / "there"
    there.mkdir()
    with st_abi.File(shared) as f, disk.mounted(shared.parent, there, None, disk.MS_BIND):
        disk.mount("none", there, None, disk.MS_BIND | disk.MS_REMOUNT | disk.MS_RDONLY)
        f.update("t1", new(1))
        st_abi.recover(there / shared.name)
        st_abi.verify(there / shared.name)
    assert not folder_of(shared).exists()


def test_readers_of_the_writers_own_group_may_read_its_journals(shared):
    """The writer is no member of the file's group, and cannot give it the journals."""
    shared.chmod(0o644)
    ready, done = shared.parent / "ready", shared.parent / "done"

    def hold():
        become(OWNER, 100)
        with st_abi.File(shared) as f:
            f.update("t1", new(1))
            ready.touch()
            disk.wait_until(done.exists, "the reader")
        return True

    def read():
        disk.wait_until(ready.exists, "the writer")
        try:
            become(THIRD, 100)
            with st_abi.File(shared, writable=False) as f:
                return f.read("t1") == new(1)
        finally:
            done.touch()

    shared.parent.chmod(0o2777)
    assert disk.in_children(2, lambda i: (hold, read)[i]()) == [True, True]


def test_a_strangers_idle_folder_keeps_no_reader_out(shared):
    """Who is not of the group has left it there: nothing of it is believed, and nobody is told to remove it."""
    shared.chmod(0o644)
    folder_of(shared).mkdir(0o755)
    (folder_of(shared) / "0123456789abcdef").touch()
    os.chown(folder_of(shared), THIRD, THIRD)
    with st_abi.File(shared, writable=False) as f:
        assert f.read("t1") == new(1, 0)
    with refused("ST_E_JOURNAL") as e:
        st_abi.File(shared)
    assert f"user {THIRD} finishes it" in e.message and "remove" not in e.message
