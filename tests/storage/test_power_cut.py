"""The power is cut under a live writer, on real kernels: FS_IOC_SHUTDOWN on ext4 and xfs, and a disk
that stops answering under btrfs (and the others).

After a new mount and st_open: each transaction whole or not at all, and nothing lost that was acknowledged.
"""

import os
import random
import select
from collections import Counter

import disk
import model
import pytest
from recorder import Recorder

EXIT_FAILED = 3


def put_model(directory):
    path = model.put_model(directory)
    disk.sync_filesystem(directory)
    return path


# Statuses that an operation may have after the power is gone. Others would be a lie.
AFTER_CUT = {"ack", "pending", "ST_E_IO", "ST_E_NEEDS_RECOVERY", "ST_E_POISONED", "ST_E_PERMISSION"}


def check_history(history, code):
    assert code in (0, EXIT_FAILED), f"the writer ended with {code}: {history.other}"
    assert history.results() <= AFTER_CUT, history.results()


# Those whose power can be cut under them.
LIVE = [(kind, journal) for kind, journal in disk.JOURNALS if kind != "btrfs"]


@pytest.mark.parametrize("when", ["cut", "cut-after"])
@pytest.mark.parametrize("kind, journal", LIVE)
def test_cut_at_each_call(kind, journal, when, make_disk, programs, deltas, bound, tell):
    """At the n-th call that changes anything, for n = 1, 2, 3… until the writer is done first."""
    programs = programs.with_journals(journal)
    d = make_disk(kind)
    path = put_model(d.mount())
    state, version, n, acknowledged, in_doubt, count = model.OLD, 1, 1, 0, 0, bound(5, 30)
    found = Counter()
    step = 1 if kind == "ext4" else bound(2, 1)
    while True:
        crash = {
            "CRASH_AT": str(n),
            "CRASH_DO": when,
            "CRASH_MOUNT": str(d.mountpoint),
            "CRASH_BELOW": str(d.mountpoint),
        }
        options = {"tensors": "0,1,2,3,4,5", "first": version, "count": count, "seed": n, "reopen": 2}
        code, said = programs.write(path, crash, after_failure=2, steps=2, deltas=deltas, later=4, **options)
        history = model.History.of(said)
        check_history(history, code)
        d.umount()
        d.mount()
        found.update(model.waiting(path))
        state = model.check_file(path, history.allowed(state))
        version += count
        acknowledged += history.acknowledged
        in_doubt += sum(o.result == "ST_E_NEEDS_RECOVERY" for o in history.operations)
        if code == 0:
            break  # no call was the n-th
        n += step
    tried = (n - 1) // step
    detail = f"{when}: {acknowledged} acknowledged, {in_doubt} left to recovery, journals that waited: {dict(found)}"
    tell(tried, f"power cuts at a call, {kind}, {journal}", detail)
    assert acknowledged and in_doubt and found[journal] and (journal == "undo" or not found["undo"])


@pytest.mark.parametrize("kind, journal", LIVE)
def test_cut_under_two_running_writers(kind, journal, make_disk, programs, deltas, bound, tell):
    """At any moment, from another process, while two writers change different tensors."""
    choose = random.Random(bound.seed)
    programs = programs.with_journals(journal)
    d = make_disk(kind)
    path = put_model(d.mount())
    state, version, acknowledged, found = model.OLD, 1, 0, Counter()
    cuts = bound(10, 400)
    for cut in range(cuts):
        options = {"first": version, "count": 1_000_000, "seed": cut, "reopen": choose.choice([0, 3])}
        options |= {"steps": 3, "deltas": deltas, "later": 4}
        writers = [programs.writer(path, tensors=tensors, **options) for tensors in ("0,2,4", "1,3,5")]
        said = wait_for_lines(writers, choose.randrange(1, 40))
        disk.cut_power(d.mountpoint)
        histories = []
        for writer, before in zip(writers, said):
            rest, _ = writer.communicate(timeout=60)
            histories.append(model.History.of((before + rest).decode()))
            check_history(histories[-1], writer.returncode)
        d.umount()
        d.mount()
        found.update(model.waiting(path))
        state = model.check_file(path, model.allowed_by_all(state, histories))
        version = 1 + max([version, *(o.version for h in histories for o in h.operations)])
        acknowledged += sum(h.acknowledged for h in histories)
    tell(
        cuts, f"power cuts under two writers, {kind}, {journal}", f"{acknowledged} acknowledged, waited: {dict(found)}"
    )
    assert acknowledged > cuts


def wait_for_lines(writers, count):
    """Read from all until they have said so many lines together; what each said."""
    said = {writer.stdout: b"" for writer in writers}
    while sum(text.count(b"\n") for text in said.values()) < count:
        ready, _, _ = select.select(list(said), [], [], disk.LONGEST_WAIT)
        assert ready, "the writers are silent"
        for pipe in ready:
            got = os.read(pipe.fileno(), 4096)
            assert got, "a writer ended by itself"
            said[pipe] += got
    return list(said.values())


@pytest.mark.parametrize("kind, journal", disk.JOURNALS)
def test_disk_dies_under_writer(kind, journal, scratch, programs, deltas, bound, tell):
    """The disk answers EIO from the n-th write or flush on. It is repaired, and holds what it had got till then."""
    programs = programs.with_journals(journal)
    state, version, acknowledged, found = model.OLD, 1, 0, Counter()
    cuts = bound({"ext4": 10, "xfs": 6, "btrfs": 8}[kind], 200)
    longest = {"ext4": 120, "xfs": 120, "btrfs": 400}[kind]  # btrfs writes more for the same
    choose = random.Random(bound.seed)
    with Recorder(scratch, kind, programs) as recorder:
        path = put_model(recorder.mount())
        for cut in range(cuts):
            recorder.command(f"!die {choose.randrange(0, longest)}")
            options = {"tensors": "0,1,2,3,4,5", "first": version, "count": 30, "seed": cut, "reopen": 4}
            code, said = programs.write(path, after_failure=1, steps=3, deltas=deltas, **options)
            history = model.History.of(said)
            assert code in (0, EXIT_FAILED), history.other
            recorder.umount()
            recorder.command("!live")
            recorder.forget_cache()
            recorder.mount()
            found.update(model.waiting(path))
            state = model.check_file(path, history.allowed(state))
            version += 30
            acknowledged += history.acknowledged
    tell(cuts, f"deaths of the disk, {kind}, {journal}", f"{acknowledged} acknowledged, waited: {dict(found)}")
    assert acknowledged
