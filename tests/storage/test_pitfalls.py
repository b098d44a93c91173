"""What befalls real files: read-only places, links, other users, files changed from behind, journals that are not ours."""

import ctypes
import mmap
import os
import shutil
import socket
import stat

import disk
import model
import pytest
import st_abi
from disk import as_user, in_child
from st_abi import refused

SIZES = [model.nbytes(t) for t in model.SMALL]
OLD = (0,) * len(SIZES)
OWNER, OTHER = 1000, 1001


def put_model(directory, name="m.safetensors", versions=None):
    path = directory / name
    path.write_bytes(model.file_bytes(versions=versions))
    return path


def new(t, version=1):
    return model.pattern(t, version, SIZES[t])


def folder_of(path):
    return path.with_name(path.name + ".st-journal")


@pytest.fixture
def ext4(make_disk):
    return make_disk("ext4")


@pytest.fixture
def place(scratch):
    """A folder that any user may enter."""
    return scratch


# ------------------------------------------------------ places that cannot be written


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
    crash_while_staging(programs, path)
    ext4.umount()
    ext4.mount(disk.MS_RDONLY)
    with st_abi.File(path, writable=False) as f:
        assert f.read("t1") == new(1, 0)
    ext4.umount()
    ext4.mount()
    model.check_file(path, {OLD})


def crash_while_staging(programs, path):
    """A writer dies with a journal that is not committed."""
    # Its calls: the folder, its parent's sync, the journal, its allocation, the header's zeros…
    code, said = programs.write(path, {"CRASH_AT": "5", "CRASH_DO": "exit-after"}, tensors="0,1,2,3,4,5", seed=1)
    assert code == 9, said
    assert len(model.journals(path)) == 1
    assert path.read_bytes() == model.file_bytes()


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
    crash_while_staging(programs, path)

    def go_on():
        with st_abi.File(path) as f:
            return f.read("t1") == new(1, 0)

    assert as_user(OWNER, go_on) is True


# ------------------------------------------------------------------------------ links


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
    with st_abi.File(second, lock_timeout_ms=0) as g, open(path, "r+b") as other:
        t1 = g.describe("t1")
        disk.lock_range(other, t1.file_offset, t1.nbytes)
        with refused("ST_E_BUSY"):
            g.update("t1", new(1))
    model.check_file(path, {OLD})


# ------------------------------------------------- files that change under a handle


@pytest.fixture(params=["ext4", "xfs", "btrfs", "tmpfs"])
def any_disk(request, make_disk, scratch):
    if request.param != "tmpfs":
        yield make_disk(request.param).mount()
        return
    (scratch / "tmpfs").mkdir()
    with disk.mounted("none", scratch / "tmpfs", "tmpfs") as directory:
        yield directory


@pytest.mark.parametrize("map", [st_abi.MAP_AUTO, st_abi.MAP_NONE])
def test_truncated_under_open_handle(map, any_disk):
    """An error, and no SIGBUS: were there one, this process would die of it."""
    path = put_model(any_disk)
    for size in (len(model.file_bytes()) - 1, 70000, 100, 4, 0):
        path.write_bytes(model.file_bytes())
        with st_abi.File(path, map=map) as f:
            whole_from = f.describe("t5").file_offset
            os.truncate(path, size)
            for t in range(len(SIZES)):
                end = f.describe(f"t{t}").file_offset + SIZES[t]
                if end <= size:
                    assert f.read(f"t{t}") == new(t, 0)
                    continue
                with refused("ST_E_FILE_CHANGED"):
                    f.read(f"t{t}")
                if map == st_abi.MAP_NONE:
                    with refused("ST_E_FILE_CHANGED"):
                        f.view(f"t{t}")
            assert size <= whole_from
            left = path.read_bytes()
            answer = st_abi.status_of(f.update, "t1", new(1))
            assert answer in ("ST_E_FILE_CHANGED", "ST_E_TRUNCATED", "ST_E_HEADER_TRUNCATED", "ST_E_HEADER_TOO_SMALL"), answer
            assert path.read_bytes() == left
        assert model.journals(path) is None


def test_grown_under_open_handle(any_disk):
    path = put_model(any_disk)
    with st_abi.File(path) as f:
        with open(path, "ab") as file:
            file.write(b"more")
        assert f.read("t1") == new(1, 0)
        answer = st_abi.status_of(f.update, "t1", new(1))
        assert answer in ("ST_E_FILE_CHANGED", "ST_E_TRAILING_DATA"), answer
    assert path.read_bytes() == model.file_bytes() + b"more"


def test_replaced_under_open_handle(any_disk):
    """As save_file does it: by a rename. What is open stays readable; a change goes to the file of that name."""
    path = put_model(any_disk)
    with st_abi.File(path) as f:
        kept = os.open(path, os.O_RDONLY)
        os.replace(put_model(any_disk, "new", versions=[9] * len(SIZES)), path)
        assert f.read("t1") == f.view("t1") == new(1, 0)
        f.update("t1", new(1, 1))
        assert os.pread(kept, 1 << 20, 0) == model.file_bytes(), "the old file was changed"
        os.close(kept)
    model.check_file(path, {(9, 1, 9, 9, 9, 9)})


def test_replaced_by_one_of_another_form_under_open_handle(any_disk):
    path = put_model(any_disk)
    other = model.file_bytes([("U8", [70000])], [5])
    with st_abi.File(path) as f:
        (any_disk / "new").write_bytes(other)
        os.replace(any_disk / "new", path)
        with refused("ST_E_FILE_CHANGED"):
            f.update("t1", new(1))
        assert f.read("t1") == new(1, 0)
    assert path.read_bytes() == other
    assert model.journals(path) is None


def test_removed_under_open_handle(any_disk):
    path = put_model(any_disk)
    with st_abi.File(path) as f:
        path.unlink()
        assert f.read("t1") == new(1, 0)
        with refused("ST_E_NO_FILE", "ST_E_FILE_CHANGED"):
            f.update("t1", new(1))
        assert not path.exists()
    assert list(any_disk.glob("m.safetensors*")) == []


# -------------------------------------------------------------------- other kernels' corners


def test_tmpfs(scratch, programs):
    (scratch / "tmpfs").mkdir()
    with disk.mounted("none", scratch / "tmpfs", "tmpfs", data="size=16m") as directory:
        path = put_model(directory)
        with st_abi.File(path) as f:
            assert f.io_info().filesystem == b"tmpfs"
            f.update("t4", new(4))
        state = programs.crash_while_applying(path, (0, 0, 0, 0, 1, 0), 2)
        model.check_file(path, {state})


@pytest.mark.parametrize("upper", ["tmpfs", "ext4"])
def test_overlay(upper, scratch, make_disk, programs):
    """A container's filesystem: a change copies the file up from the image, which stays as it is."""
    lower = scratch / "lower"
    lower.mkdir()
    below = put_model(lower)
    top = make_disk("ext4").mount() if upper == "ext4" else scratch
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
        model.check_file(path, {(1, 1, 0, 0, 1, 0)})
        state = programs.crash_while_applying(path, (1, 1, 0, 0, 1, 0), 2)
    with disk.mounted("overlay", top / "merged", "overlay", data=options):
        model.check_file(path, {state})
        assert sorted(p.name for p in merged.iterdir()) == ["m.safetensors"]
    assert below.read_bytes() == model.file_bytes()


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


@pytest.mark.parametrize("kind", ["fifo", "socket", "folder", "/dev/zero", "/dev/full", "/dev/tty", "/dev/loop-control"])
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


# --------------------------------------------------------------- journals that are not ours


def refuse_and_leave(path, expected):
    """Nothing is applied; it is said once; then the file opens as it is."""
    before = path.read_bytes()
    with refused("ST_E_JOURNAL") as e:
        st_abi.File(path)
    assert "moved aside" in e.message
    assert path.read_bytes() == before == expected
    assert all(name.endswith(".bad") for name in model.journals(path))
    with st_abi.File(path) as f:
        f.update("t2", new(2, 77))
        assert f.read("t2") == new(2, 77)


def test_journal_beside_another_file(tmp_path, programs):
    """Copied with its folder beside a copy of the file that it was for."""
    path = put_model(tmp_path)
    state = programs.crash_while_applying(path, OLD, 1, tear=False)
    copy = tmp_path / "copy.safetensors"
    shutil.copy(path, copy)
    shutil.copytree(folder_of(path), folder_of(copy))
    refuse_and_leave(copy, model.file_bytes())
    model.check_file(path, {state})


def test_file_moved_with_its_journal_is_recovered(tmp_path, programs):
    path = put_model(tmp_path)
    state = programs.crash_while_applying(path, OLD, 1)
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / "other name.safetensors"
    path.rename(moved)
    folder_of(path).rename(folder_of(moved))
    model.check_file(moved, {state})


def test_journal_of_file_that_was_saved_anew(tmp_path, programs):
    """The file was replaced since, by a stock save_file: the old journal does not touch it."""
    path = put_model(tmp_path)
    programs.crash_while_applying(path, OLD, 1)
    os.replace(put_model(tmp_path, "new", versions=[5] * len(SIZES)), path)
    refuse_and_leave(path, model.file_bytes(versions=[5] * len(SIZES)))


def test_journal_of_file_that_was_changed_in_place(tmp_path, programs):
    path = put_model(tmp_path)
    programs.crash_while_applying(path, OLD, 1, tear=False)
    data = bytearray(path.read_bytes())
    data[-SIZES[5] - SIZES[4] - SIZES[3] - 100] ^= 1
    with open(path, "r+b") as f:
        f.write(data)
    refuse_and_leave(path, bytes(data))


def test_journal_of_file_whose_header_was_changed(tmp_path, programs):
    """The same inode, size and data, but the tensors have other names: it is another file now."""
    path = put_model(tmp_path)
    programs.crash_while_applying(path, OLD, 1, tear=False)
    renamed = path.read_bytes().replace(b'"t1"', b'"t9"')
    with open(path, "r+b") as f:
        f.write(renamed)
    refuse_and_leave(path, renamed)


def test_half_changed_file_copied_with_its_journal_is_recovered(tmp_path, programs):
    """A backup that was taken after a crash: its inode is another, but its bytes say that the journal is theirs."""
    path = put_model(tmp_path)
    state = programs.crash_while_applying(path, OLD, 1)
    copy = tmp_path / "copy.safetensors"
    shutil.copy(path, copy)
    shutil.copytree(folder_of(path), folder_of(copy))
    for each in (copy, path):
        model.check_file(each, {state})


def test_every_sector_of_a_journal_tampered(place, programs, bound):
    """A flipped bit, anywhere: it is applied whole, or not at all and moved aside."""
    path = put_model(place)
    state = programs.crash_while_applying(path, OLD, 1, tear=False)
    (name,) = model.journals(path)
    journal = (folder_of(path) / name).read_bytes()
    old, applied = path.read_bytes(), 0
    step = bound(2048, 64)
    used = len(journal.rstrip(b"\0"))
    offsets = sorted({*range(0, 96), *range(97, used, step), *range(used - 400, used)})
    for offset in offsets:
        damaged = bytearray(journal)
        damaged[offset] ^= 1 << (offset % 8)
        with open(path, "r+b") as f:  # the same inode
            f.write(old)
        folder_of(path).mkdir(exist_ok=True)
        (folder_of(path) / name).write_bytes(damaged)
        answer = st_abi.status_of(st_abi.recover, path)
        if answer == "ST_OK":  # the bit was in padding
            applied += 1
            assert path.read_bytes() == model.file_bytes(versions=state), f"bit at {offset}: wrongly applied"
        else:
            assert answer == "ST_E_JOURNAL", f"bit at {offset}: {answer}"
            assert path.read_bytes() == old, f"bit at {offset}: refused, but the file has changed"
        shutil.rmtree(folder_of(path), ignore_errors=True)
    print(f"{len(offsets)} damaged journals, {applied} of them in padding")
    assert applied < 10


def test_journal_cut_short(place, programs):
    path = put_model(place)
    programs.crash_while_applying(path, OLD, 1, tear=False)
    (name,) = model.journals(path)
    journal, old = (folder_of(path) / name).read_bytes(), path.read_bytes()
    used = len(journal.rstrip(b"\0"))
    for size in (1, 16, 100, 511, 512, 4095, 4096, 5000, used // 2, used - 48, used - 1):
        folder_of(path).mkdir(exist_ok=True)
        (folder_of(path) / name).write_bytes(journal[:size])
        assert st_abi.status_of(st_abi.recover, path) == "ST_E_JOURNAL", size
        assert path.read_bytes() == old
        shutil.rmtree(folder_of(path))
    folder_of(path).mkdir()
    (folder_of(path) / name).write_bytes(b"")  # nothing was ever written: nothing promised
    model.check_file(path, {OLD})


@pytest.mark.parametrize("how", ["symlink", "hard link", "world-writable", "another user's"])
def test_journal_that_anybody_may_have_made(how, place, programs):
    path = put_model(place)
    programs.crash_while_applying(path, OLD, 1, tear=False)
    (name,) = model.journals(path)
    journal, elsewhere = folder_of(path) / name, place / "elsewhere"
    if how == "symlink":
        journal.rename(elsewhere)
        journal.symlink_to(elsewhere)
    elif how == "hard link":
        os.link(journal, elsewhere)
    elif how == "world-writable":
        journal.chmod(0o666)
    else:
        os.chown(journal, OTHER, OTHER)
    refuse_and_leave(path, model.file_bytes())


@pytest.mark.parametrize("sticky", [True, False], ids=["sticky", "not sticky"])
@pytest.mark.parametrize("what", ["folder", "symlink", "file", "fifo"])
def test_folder_planted_where_anybody_may_write(what, sticky, place, programs):
    """By another user, with a journal that would fit: never applied, by root or by the owner, and no obstacle to reading."""
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o1777 if sticky else 0o777)
    path = put_model(shared)
    os.chown(path, OWNER, OWNER)
    programs.crash_while_applying(path, OLD, 1, tear=False)
    planted = place / "planted"
    folder_of(path).rename(planted)
    for entry in (planted, *planted.iterdir()):
        os.chown(entry, OTHER, OTHER)
    if what == "folder":
        planted.rename(folder_of(path))
    else:
        planted.chmod(0o755)

        def plant():
            if what == "symlink":
                folder_of(path).symlink_to(planted)
            elif what == "file":
                folder_of(path).touch()
            else:
                os.mkfifo(folder_of(path))

        as_user(OTHER, plant)

    def look():
        answers = [st_abi.status_of(st_abi.recover, path)]
        for writable in (False, True):
            with st_abi.File(path, writable=writable) as f:
                assert f.read("t1") == new(1, 0)
                assert any("trust" in line for line in f.log), f.log
                if writable:
                    answers.append(st_abi.status_of(f.update, "t1", new(1, 3)))
        return answers

    for uid in (0, OWNER):
        assert as_user(uid, look) == ["ST_OK", "ST_E_JOURNAL"]
    assert path.read_bytes() == model.file_bytes()


def test_folder_planted_in_a_folder_of_ones_own_is_an_error(place):
    """Nobody else could have made it by chance: somebody should look."""
    path = put_model(place)
    folder_of(path).mkdir()
    folder_of(path).chmod(0o777)
    for writable in (False, True):
        with refused("ST_E_JOURNAL"):
            st_abi.File(path, writable=writable)


# --------------------------------------------------------------------- the caller's memory


def test_payload_that_vanishes_during_commit(tmp_path):
    """The new bytes lie in a mapped file, and somebody truncates that between staging and commit. The journal has
    them: the change is made, or refused before anything is written; never left half made for good."""
    path = put_model(tmp_path)
    source = tmp_path / "source"
    source.write_bytes(b"x" * 4096 * 3 + new(4))
    with open(source, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + 4096 * 3
        f = st_abi.File(path)
        t = f.describe("t4")
        t.data = address
        txn = ctypes.c_void_p()
        st_abi.check(st_abi.lib.st_begin(f._handle, None, ctypes.byref(txn)))
        st_abi.check(st_abi.lib.st_txn_update_n(txn, b"t4", 2, ctypes.byref(t)))
        os.truncate(source, 4096 * 40)
        answer = st_abi.STATUS[st_abi.lib.st_commit(txn)]
        f.close()
    after = (0, 0, 0, 0, 1, 0)
    if answer == "ST_OK":
        allowed = {after}
    elif answer == "ST_E_NEEDS_RECOVERY":
        allowed = {OLD, after}
    else:
        allowed = {OLD}
    model.check_file(path, allowed)
