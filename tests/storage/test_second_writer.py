"""One goes on where another has died, or after something has removed the journal folder; then the power is cut.

After a new mount and st_open all that was acknowledged must be there, on real kernels too.
"""

import disk
import model
import pytest
import st_abi

EXIT_CRASHED, EXIT_FAILED = 9, 3
LIVE = [(kind, journal) for kind, journal in disk.JOURNALS if kind != "btrfs"]


@pytest.fixture(params=LIVE, ids=lambda p: "-".join(p))
def place(request, make_disk, monkeypatch):
    """A disk whose power can be cut, a file on it, and the kind of journal that its writers make."""
    kind, journal = request.param
    monkeypatch.setenv("ST_JOURNAL", journal)
    d = make_disk(kind)
    path = model.put_model(d.mount())
    disk.sync_filesystem(d.mountpoint)
    return d, path, journal


def remount(d):
    d.umount()
    d.mount()


@pytest.mark.parametrize("how", ["exit", "exit-after"])
def test_what_follows_a_death_outlives_the_cut(how, place, programs, tell):
    """The second has a handle of before, and a journal whose name is durable. It puts back what the first may have
    changed, or writes that once more."""
    d, path, journal = place
    programs = programs.with_journals(journal)
    state, version = list(model.OLD), 1
    for n in range(1, 1000):
        with st_abi.File(path) as second:
            second.update("t5", model.new(5, state[5]))
            crash = {"CRASH_AT": str(n), "CRASH_DO": how}
            code, said = programs.write(path, crash, tensors="0,1,2", first=version, count=1, seed=3)
            assert code in (0, EXIT_CRASHED), (code, said)
            changed = [t for operation in model.History.of(said).operations for t in operation.tensors]
            for t in changed if n % 2 else []:
                state[t] = version
            second.update_all({f"t{t}": model.new(t, state[t]) for t in (0, 1, 2)})
            disk.cut_power(d.mountpoint)
        remount(d)
        model.check_file(path, {tuple(state)})
        version += 1
        if code == 0:
            break
    tell(n - 1, "power cuts after a death and another's change", f"{how}, {journal}")
    assert n > 5


def test_removed_journal_folder_loses_nothing(place, programs, tell):
    """Before each call of a writer in turn; then it goes on, and says how it ended."""
    d, path, journal = place
    programs = programs.with_journals(journal)
    state, version, refused = model.OLD, 1, 0
    for n in range(1, 1000):
        crash = {"CRASH_AT": str(n), "CRASH_DO": "remove", "CRASH_FOLDER": str(model.folder_of(path))}
        options = {"tensors": "0,1,2,3,4,5", "first": version, "count": 1, "seed": n}
        code, said = programs.write(path, crash, **options)
        assert code in (0, EXIT_FAILED, EXIT_CRASHED), (code, said)
        history = model.History.of(said)
        assert history.results() <= {"ack", "ST_E_IO"}, said
        refused += code == EXIT_FAILED
        disk.cut_power(d.mountpoint)
        remount(d)
        state = model.check_file(path, history.allowed(state))
        version += 1
        if "removed" not in history.other:  # no call was the n-th
            break
    tell(n - 1, "journal folders removed under a writer", f"{journal}: {refused} refused")
    assert refused
