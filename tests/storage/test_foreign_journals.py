"""Journals that are of another file, damaged, or planted: none is applied, and none is an obstacle for long."""

import os
import shutil

import model
import pytest
import st_abi
from disk import as_user
from model import OLD, SIZES, folder_of, new, put_model
from st_abi import refused

OWNER, OTHER = 1000, 1001


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


def test_every_sector_of_a_journal_tampered(place, programs, bound, tell):
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
    tell(len(offsets), "damaged journals", f"{applied} of them in padding")
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
    """By another user, with a journal that would fit: never applied, and no obstacle to reading."""
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
