"""A writer dies, or a call of it fails, at each of its calls in turn; and so does the recovery after it.

The kernel goes on, so nothing is lost: what must hold is that each transaction is whole or not at all.
"""

import errno

import model
import pytest

EXIT_CRASHED, EXIT_FAILED = 9, 3


@pytest.fixture(params=["ext4", "tmpfs", "xfs-undo"])
def place(request, make_disk):
    """A file, and the kind of journal that its writers make."""
    if request.param == "tmpfs":
        return model.put_model(request.getfixturevalue("memory")), "redo"
    kind, _, journal = request.param.partition("-")
    return model.put_model(make_disk(kind).mount()), journal or "redo"


@pytest.fixture
def path(place):
    return place[0]


@pytest.fixture
def programs(place, programs):
    return programs.with_journals(place[1])


@pytest.mark.parametrize("how", ["exit", "exit-after", "tear"])
def test_writer_dies_at_each_call(how, path, programs, deltas, bound, tell):
    state, version, count, steps = model.OLD, 1, bound(4, 12), 0
    for n in range(1, 10_000):
        crash = {"CRASH_AT": str(n), "CRASH_DO": how, "CRASH_BELOW": str(path.parent)}
        options = {"tensors": "0,1,2,3,4,5", "first": version, "count": count, "seed": 7, "reopen": 2}
        code, said = programs.write(path, crash, steps=4, deltas=deltas, later=4, **options)
        assert code in (0, EXIT_CRASHED), (code, said)
        history = model.History.of(said)
        state = model.check_file(path, history.allowed(state))
        steps += sum(o.is_step for o in history.operations)
        version += count
        if code == 0:
            break
    tell(n - 1, "deaths of a writer", f"{how}, {steps} steps of training")
    assert n > 20 and steps > n // 2


@pytest.mark.parametrize("what", [{"tensors": "0,1,2,3,4,5"}, {"tensors": "1,3,4", "steps": 10}], ids=["all", "steps"])
def test_recovery_dies_at_each_call(what, path, programs, deltas, tell):
    """Committed and half applied: however often recovery dies, the next one ends the work."""
    state, version, deaths = model.OLD, 1, 0
    for how in ("exit", "exit-after", "tear"):
        for n in range(1, 1000):
            state = programs.crash_while_applying(path, state, version, deltas=deltas, **what)
            version += 1
            code, said = programs.write(path, {"CRASH_AT": str(n), "CRASH_DO": how}, count=0)
            assert code in (0, EXIT_CRASHED), (code, said)
            model.check_file(path, {state})
            if code == 0:
                break
            deaths += 1
    tell(deaths, "deaths of a recovery")
    assert deaths > 10


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_each_call_fails(error, path, programs, deltas, bound, tell):
    """Also those that a filesystem can hardly be made to fail: removing a journal, making a folder."""
    state, version, failures, told = model.OLD, 1, bound(80, 250), 0
    for n in range(1, failures):  # four operations are some 55 calls
        crash = {"CRASH_AT": str(n), "CRASH_DO": "error", "CRASH_ERRNO": str(getattr(errno, error))}
        crash["CRASH_BELOW"] = str(path.parent)
        options = {"first": version, "count": bound(4, 16), "seed": 7, "reopen": 2, "after_failure": 3}
        code, said = programs.write(path, crash, tensors="0,1,2,3,4,5", steps=4, deltas=deltas, later=4, **options)
        assert code in (0, EXIT_FAILED), (code, said)
        history = model.History.of(said)
        expected = {"EIO": "ST_E_IO", "ENOSPC": "ST_E_NO_SPACE"}[error]
        assert history.results() <= {"ack", expected, "ST_E_NEEDS_RECOVERY", "ST_E_POISONED"}, history.results()
        told += history.results() != {"ack"}
        state = model.check_file(path, history.allowed(state))
        version += 30
    tell(failures, "failing calls of a writer", error)
    assert told >= 10, "most failures are no operation's"
