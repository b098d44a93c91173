"""A filesystem on which any call may fail: the answer is never a lie.

ST_OK means the new bytes, durably; ST_E_NEEDS_RECOVERY that the next open decides, all or nothing; any other
status that nothing has changed.
"""

import errno
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import faults
import model
import pytest
import st_abi
from disk import as_user, lock_range
from model import SIZES, new, payloads
from st_abi import refused


@pytest.fixture
def fault_fs(scratch, programs):
    """fault_fs(option, …): a mounted one with a model in it."""
    made = []

    def make(*options):
        folder = scratch / f"fuse{len(made)}"
        folder.mkdir()
        made.append(faults.FaultFs(folder, programs, *options))
        (made[-1].source / "m.safetensors").write_bytes(model.file_bytes())
        return made[-1]

    yield make
    for fs in made:
        fs.close()


CHANGES = {"one small": [2], "one large": [4], "a transaction": [0, 1, 5], "all": range(len(SIZES))}

# What may fail, how, and which statuses may tell of it.
FAULTS = {
    "EIO at a sync": ("sync", errno.EIO, False, {"ST_E_IO"}),
    "EIO at a sync that loses what was written": ("sync", errno.EIO, True, {"ST_E_IO"}),
    "ENOSPC at a sync": ("sync", errno.ENOSPC, True, {"ST_E_NO_SPACE"}),
    "EDQUOT at a sync": ("sync", errno.EDQUOT, True, {"ST_E_NO_SPACE"}),
    "EIO at a write": ("write", errno.EIO, False, {"ST_E_IO"}),
    "ENOSPC at a write": ("write", errno.ENOSPC, False, {"ST_E_NO_SPACE"}),
    "a short write": ("write", 0, False, set()),
    "EIO at a read": ("read", errno.EIO, False, {"ST_E_IO"}),
    "EIO at a create": ("create", errno.EIO, False, {"ST_E_IO"}),
    "ENOSPC at a create": ("create", errno.ENOSPC, False, {"ST_E_NO_SPACE"}),
    "EROFS at a create": ("create", errno.EROFS, False, {"ST_E_PERMISSION"}),
    "ENOSPC at fallocate": ("fallocate", errno.ENOSPC, False, {"ST_E_NO_SPACE"}),
    "no fallocate": ("fallocate", errno.EOPNOTSUPP, False, set()),
}


def check_answer(fs, path, answer, old, new, tensors, expected):
    """The promise behind a status, by what is on the disk below, and by opening again. Answers the version there."""
    before = model.file_bytes(versions=old)
    changed = [new if t in tensors else v for t, v in enumerate(old)]
    on_disk = (fs.source / "m.safetensors").read_bytes()
    if answer == "ST_OK":
        assert on_disk == model.file_bytes(versions=changed), "ST_OK, but the new bytes are not on the disk"
        allowed = {tuple(changed)}
    elif answer == "ST_E_NEEDS_RECOVERY":
        allowed = {tuple(old), tuple(changed)}
    else:
        assert answer in expected, f"{answer}, not one of {expected}"
        assert on_disk == before, f"{answer}, but the file has changed"
        allowed = {tuple(old)}
    return list(model.check_file(path, allowed))


@pytest.mark.parametrize("sticky", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("fault", FAULTS)
def test_any_call_may_fail(fault, sticky, fault_fs, tell):
    """The n-th of its kind, for n = 1, 2, 3… until the change is made without its coming to that."""
    call, error, lose, expected = FAULTS[fault]
    fs = fault_fs()
    path = fs.mountpoint / "m.safetensors"
    versions, version, answers = [0] * len(SIZES), 0, {}
    for change, tensors in CHANGES.items():
        for n in range(1, 200):
            version += 1
            f = st_abi.File(path)
            fs.arm(call, n, error, sticky, lose)
            answer = st_abi.status_of(f.update_all, payloads(version, tensors))
            happened = fs.happened(call)
            if answer == "ST_E_NEEDS_RECOVERY":
                with refused("ST_E_POISONED"):  # also when the fault is over
                    f.update_all(payloads(version + 500_000, tensors))
            f.close()
            if lose:
                fs.cut_power()
            else:
                fs.disarm()
                fs.umount()
                fs.mount()
            versions = check_answer(fs, path, answer, versions, version, tensors, expected)
            answers[answer] = answers.get(answer, 0) + 1
            if not happened:
                assert answer == "ST_OK"
                break
        else:
            pytest.fail(f"{change}: it never ends")
    detail = f"{fault}, {'from then on' if sticky else 'once'}: {answers}"
    tell(sum(answers.values()), "failing calls under FUSE", detail)
    assert answers["ST_OK"] >= len(CHANGES)


@pytest.mark.parametrize("lost", ["bytes", "names", "both"])
@pytest.mark.parametrize("how", ["exit", "exit-after", "tear"])
def test_power_cut_that_loses_what_was_not_synced(how, lost, fault_fs, programs, bound, tell):
    """At each call of a writer: unsynced bytes are gone, or new names whose folder was not synced, or both."""
    what = {"bytes": faults.CUT_BYTES, "names": faults.CUT_NAMES, "both": faults.CUT_BYTES | faults.CUT_NAMES}[lost]
    fs = fault_fs()
    path = fs.mountpoint / "m.safetensors"
    state, version, count = [0] * len(SIZES), 1, bound(4, 12)
    for n in range(1, 10_000):
        fs.control.lose = 1
        crash = {"CRASH_AT": str(n), "CRASH_DO": how}
        code, said = programs.write(path, crash, tensors="0,1,2,3,4,5", first=version, count=count, seed=n, reopen=2)
        assert code in (0, 9), (code, said)
        fs.cut_power(what)
        state = model.check_file(path, model.History.of(said).allowed(state))
        version += count
        if code == 0:
            break
    tell(n, "power cuts under FUSE", f"{how}, {lost}")
    assert n > 20


def test_sync_failure_before_commit_poisons_handle_and_loses_nothing(fault_fs):
    fs = fault_fs()
    path = fs.mountpoint / "m.safetensors"
    with st_abi.File(path) as f:
        f.update("t1", new(1, 1))
        fs.arm("sync", 1, errno.EIO, lose=True)
        with refused("ST_E_IO") as e:
            f.update("t1", new(1, 2))
        assert e.os_errno == errno.EIO
        fs.disarm()
        with refused("ST_E_POISONED"):
            f.update("t1", new(1, 3))
        assert f.read("t1") == new(1, 1)
    model.check_file(path, {(0, 1, 0, 0, 0, 0)})


def test_recovery_that_fails_is_tried_again(fault_fs, programs, tell):
    """Each sync of a recovery fails once, each write and read from then on; the next recovery ends the work."""
    fs = fault_fs()
    path = fs.mountpoint / "m.safetensors"
    state, version, tried = (0,) * len(SIZES), 0, 0
    for call in ("sync", "write", "read"):
        for n in range(1, 100):
            version += 1
            state = programs.crash_while_applying(path, state, version)
            # A read that fails once is tried again by the kernel. A write whose second half fails is a short one, and
            # libst tries it again.
            fs.arm(call, n, errno.EIO, sticky=call != "sync", lose=call == "sync")
            answer = st_abi.status_of(st_abi.recover, path)
            happened = fs.happened(call)
            fs.disarm()
            fs.umount()
            fs.mount()
            assert answer == ("ST_E_IO" if happened else "ST_OK"), answer
            model.check_file(path, {state})
            tried += happened
            if not happened:
                break
    tell(tried, "failing calls of a recovery under FUSE")
    assert tried > 5


@pytest.mark.parametrize(
    "answer", [faults.LOCK_GRANT_ALL, faults.LOCK_ENOSYS, faults.LOCK_ENOLCK], ids=["grants all", "ENOSYS", "ENOLCK"]
)
def test_filesystem_that_cannot_lock_is_refused(answer, fault_fs):
    """Reading works; changing says why not, and leaves nothing behind."""
    fs = fault_fs("--locks")
    fs.control.lock_answer = answer
    path = fs.mountpoint / "m.safetensors"
    with st_abi.File(path) as f:
        assert f.read("t1") == new(1, 0)
        with refused("ST_E_LOCK_UNSUPPORTED") as e:
            f.update("t1", new(1, 1))
        assert "lock" in e.message
        with refused("ST_E_LOCK_UNSUPPORTED"):  # and again
            f.update_all(payloads(2, [0, 1]))
    assert model.journals(path) is None
    assert (fs.source / "m.safetensors").read_bytes() == model.file_bytes()
    with st_abi.File(path, writable=False) as f:
        assert f.view("t4") == new(4, 0)


@pytest.mark.parametrize("options", [(), ("--locks",)], ids=["locks by the kernel", "locks by the daemon"])
def test_filesystem_that_locks_works(options, fault_fs):
    """And two handles on one tensor exclude each other, on tensors in other pages they do not."""
    fs = fault_fs(*options)
    path = fs.mountpoint / "m.safetensors"
    with st_abi.File(path) as f, open(path, "r+b") as other:
        f.update("t1", new(1, 1))
        t1 = f.describe("t1")
        lock_range(other, t1.file_offset, t1.nbytes)
        with st_abi.File(path, lock_timeout_ms=st_abi.st_h.ST_TIMEOUT_NONE) as second:
            with refused("ST_E_BUSY"):
                second.update("t1", new(1, 2))
            second.update("t4", new(4, 2))
    model.check_file(path, {(0, 1, 0, 0, 2, 0)})


def test_no_shared_mapping_falls_back_to_private_and_says_so(fault_fs):
    fs = fault_fs("--direct-io")
    path = fs.mountpoint / "m.safetensors"
    with st_abi.File(path, map=st_abi.MAP_SHARED) as f:
        info = f.io_info()
        assert (info.map, info.map_fallbacks) == (st_abi.MAP_PRIVATE, 1)
        assert info.filesystem == b"fuse.fault_fs"
        assert "private" in " ".join(f.log)
        assert info.reason
        assert f.view("t4") == new(4, 0)
        for version in (1, 2):  # what was seen before is seen anew
            f.update("t4", new(4, version))
            assert f.view("t4") == f.read("t4") == new(4, version)
    model.check_file(path, {(0, 0, 0, 0, 2, 0)})


def test_fuse_is_mapped_private_without_being_asked(fault_fs):
    fs = fault_fs("--direct-io")
    with st_abi.File(fs.mountpoint / "m.safetensors", writable=False) as f:
        info = f.io_info()
        assert (info.map, info.map_fallbacks) == (st_abi.MAP_PRIVATE, 0)
        assert f.view("t1") == new(1, 0)


def test_journal_folder_goes_where_open_files_are_hidden_when_unlinked(fault_fs):
    """libfuse's default: an open file that is unlinked lives on as .fuse_hidden…, in its folder."""
    fs = fault_fs("--hide")
    path = fs.mountpoint / "m.safetensors"
    for version in (1, 2):
        with st_abi.File(path) as f:
            f.update("t1", new(1, version))
            f.update_all(payloads(version, [0, 4]))
    model.check_file(path, {(2, 2, 0, 0, 2, 0)})


def test_a_journal_that_is_hidden_until_it_is_closed_is_in_nobodys_way(fault_fs):
    """Its writer has removed it, and has it open still, when another opens the file."""
    fs = fault_fs("--hide")
    path = fs.mountpoint / "m.safetensors"
    with st_abi.File(path) as f:
        f.update("t1", new(1, 1))
        (name,) = (fs.mountpoint / "m.safetensors.st-journal").iterdir()
        with name.open("rb"):
            name.unlink()
            (hidden,) = (fs.source / "m.safetensors.st-journal").iterdir()
            assert hidden.name.startswith(".fuse_hidden")
            for writable in (False, True):
                with st_abi.File(path, writable=writable) as other:
                    assert other.view("t1") == new(1, 1)
    model.check_file(path, {(0, 1, 0, 0, 0, 0)})


def test_committed_journal_survives_new_inode_numbers(fault_fs, programs):
    """Many FUSE filesystems number their inodes anew at each mount; a crash there must be recovered all the same."""
    fs = fault_fs("--own-inodes")
    path = fs.mountpoint / "m.safetensors"
    state = programs.crash_while_applying(path, (0,) * len(SIZES), 1)
    fs.umount()
    for i in range(5):  # other files take the first numbers
        (fs.source / f"other{i}").write_bytes(b"")
    fs.mount()
    for i in range(5):
        (fs.mountpoint / f"other{i}").stat()
    model.check_file(path, {state})


def test_slow_filesystem(fault_fs):
    """A millisecond for each call: nothing times out that is not a lock."""
    fs = fault_fs()
    path = fs.mountpoint / "m.safetensors"
    fs.control.delay_us = 1000
    with st_abi.File(path) as a, st_abi.File(path) as b:

        def change(f, tensors):
            for version in range(1, 6):
                f.update_all(payloads(version, tensors))

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(change, (a, b), ([0, 1, 2], [2, 3, 4])))
    fs.control.delay_us = 0
    model.check_file(path, {(5, 5, 5, 5, 5, 0)})


def test_a_storm_kills_no_faster_than_slow_storage_lets_commit(fault_fs, programs):
    """A change takes seconds here. Killed ten times a second, no writer would live to commit, and the storm would call
    that a deadlock."""
    storm = st_abi.BUILD / "tests" / "storm" / "storm"
    if not storm.exists():
        pytest.skip("needs tests/storm/storm of the build tree")
    fs = fault_fs()
    fs.control.delay_us = 10_000
    command = [storm, "--kills", "12", "--writers", "4", "--seed", "1", "--dir", fs.mountpoint]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=programs.environment, timeout=400
    )
    fs.control.delay_us = 0
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) commits", done.stdout)[1]) > 0, done.stdout


def test_unprivileged_user_reads_and_is_refused_changes(fault_fs):
    """The file is root's: another user reads it, and is told what is forbidden."""
    fs = fault_fs()
    path = fs.mountpoint / "m.safetensors"
    os.chmod(path, 0o644)

    def look():
        with st_abi.File(path, writable=False) as f:
            size = len(f.read("t1"))
        return [size, st_abi.status_of(st_abi.File, path)]

    assert as_user(65534, look) == [SIZES[1], "ST_E_PERMISSION"]
