"""Where files can share blocks, large tensors are changed by an undo record: what is written, and what becomes of a
change that fails in the middle."""

import mmap
import os
import subprocess

import disk
import model
import numpy as np
import pytest
import st_abi

MIB = 1 << 20
TENSORS = [("U8", [3001]), ("U8", [2 * MIB + 77]), ("U8", [70001])]
SIZES = [model.nbytes(t) for t in TENSORS]
SHARING = ["xfs", "btrfs"]


def put(directory):
    path = directory / "m.safetensors"
    path.write_bytes(model.file_bytes(TENSORS))
    disk.sync_filesystem(directory)
    return path


def payload(version, tensors=(0, 1, 2)):
    return {f"t{t}": model.pattern(t, version, SIZES[t]) for t in tensors}


def journalled(path, journal=None):
    """What the change of the large tensor wrote to the journal, in bytes."""

    def change():
        if journal:
            os.environ["ST_JOURNAL"] = journal
        with st_abi.File(path) as f:
            for version in (1, 2, 3):
                f.update_all(payload(version))
            return f.stats().journal_bytes // 3

    return disk.in_child(change)


@pytest.mark.parametrize("kind", disk.KINDS)
def test_large_tensors_are_not_written_twice(kind, make_disk):
    path = put(make_disk(kind).mount())
    by_default = journalled(path)
    assert journalled(path, "redo") > sum(SIZES)
    if kind in SHARING:
        assert by_default < sum(SIZES) / 8
        assert journalled(path, "undo") < sum(SIZES) / 16
    else:
        assert by_default > sum(SIZES)
        assert journalled(path, "undo") > sum(SIZES)
    assert path.read_bytes() == model.file_bytes(TENSORS, [3, 3, 3])
    assert model.journals(path) is None


@pytest.mark.parametrize("by", ["this handle", "another handle", "a plain mapping"])
@pytest.mark.parametrize("nbytes", [4096, 300_000, 4 * MIB])
@pytest.mark.parametrize("kind", SHARING)
def test_tensors_are_rotated_by_their_views(kind, nbytes, by, make_disk):
    """A payload that changes with the file when the first tensor is written: it is rolled back, and tried again."""
    directory = make_disk(kind, size=400 * MIB).mount()  # idle journals keep old blocks, and new ones of a redo record
    path = directory / "m.safetensors"
    tensors = [("U8", [nbytes])] * 3
    old = model.file_bytes(tensors)
    path.write_bytes(old)
    was = [old[-3 * nbytes : -2 * nbytes], old[-2 * nbytes : -nbytes], old[-nbytes:]]

    def rotate():
        os.environ["ST_JOURNAL"] = "undo"
        with (
            st_abi.File(path) as f,
            st_abi.File(path) as other,
            open(path, "rb") as plain,
            mmap.mmap(plain.fileno(), 0, prot=mmap.PROT_READ) as mapping,
        ):
            first = np.frombuffer(mapping, np.uint8).ctypes.data
            payloads = {}
            for target, source in (("t0", "t1"), ("t1", "t2"), ("t2", "t0")):
                t = (f if by == "this handle" else other).shown(source)
                if by == "a plain mapping":
                    t.data = first + t.file_offset
                payloads[target] = t
            f.update_from(payloads)
            f.update_from(payloads)

    disk.in_child(rotate)
    assert path.read_bytes() == old[: -3 * nbytes] + was[2] + was[0] + was[1]
    assert model.journals(path) is None


def test_without_reflinks_the_journal_is_a_redo_record(make_disk):
    path = put(make_disk("xfs", options=["-m", "reflink=0"]).mount())
    assert journalled(path) > sum(SIZES)
    assert path.read_bytes() == model.file_bytes(TENSORS, [3, 3, 3])


def test_file_without_copy_on_write_on_btrfs(make_disk):
    """Its blocks cannot be shared with a journal that has it."""
    directory = make_disk("btrfs").mount()
    path = directory / "m.safetensors"
    path.touch()
    subprocess.run(["chattr", "+C", path], check=True)
    path.write_bytes(model.file_bytes(TENSORS))
    journalled(path)
    assert path.read_bytes() == model.file_bytes(TENSORS, [3, 3, 3])


@pytest.mark.parametrize("kind", SHARING)
def test_disk_that_fills_up_amid_the_change(kind, make_disk, programs):
    """Each write to the file itself finds it full, and the old bytes are there again at once."""
    path = model.put_model(make_disk(kind).mount())
    programs = programs.with_journals("undo")
    before, full = (0,) * 6, 0
    for n in range(1, 30):
        crash = {"CRASH_AT": str(n), "CRASH_DO": "error", "CRASH_ERRNO": "28", "CRASH_FILE": os.path.realpath(path)}
        before = model.check_file(path, {before})
        said = programs.write(path, crash, tensors="0,1,2,3,4,5", first=100 * n, count=6, seed=n, after_failure=9)[1]
        history = model.History.of(said)
        assert history.closed
        # A redo record (of a transaction with ST_TXN_COPY) is beyond return by then.
        assert history.results() <= {"ack", "ST_E_NO_SPACE", "ST_E_NEEDS_RECOVERY", "ST_E_POISONED"}, said
        if "ST_E_NO_SPACE" in history.results():
            full += 1
            assert [o.result for o in history.operations].count("ST_E_NO_SPACE") == 1, "the handle does not go on"
        before = model.check_file(path, history.allowed(before))
    assert full > 0, "no write found the disk full"


def test_rolling_back_on_a_full_disk(make_disk, programs):
    """Recovery gives back the old blocks, for which no room is needed. (On btrfs any write needs some.)"""
    d = make_disk("xfs")
    path = model.put_model(d.mount())
    programs = programs.with_journals("undo")
    old = path.read_bytes()
    for version in range(1, 100):
        held = programs.crash_while_applying(path, model.OLD, version)
        if model.waiting(path) == ["undo"]:
            break
        model.check_file(path, {held})
        path.write_bytes(old)
    else:
        pytest.fail("no writer left an undo record")
    with open(d.mountpoint / "ballast", "wb", buffering=0) as f:
        for size in (4 * MIB, 65536, 4096):
            try:
                while True:
                    f.write(bytes(size))
            except OSError:
                pass
    model.check_file(path, {model.OLD})
