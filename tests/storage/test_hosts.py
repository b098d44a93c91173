"""Several hosts and one file: what one commits, the others see; what one locks, the others leave alone; and what one
began before it was killed, another one finishes. On real clients of real servers: hosts.py.

    python -m pytest tests/storage/test_hosts.py --full -k storm    2,000 kills on each
"""

import functools
import os
import subprocess

import clients
import disk
import hosts
import model
import pytest
import st_abi

STORM = st_abi.BUILD / "tests" / "storm" / "storm"
EXIT_CRASHED = 9


@pytest.fixture(scope="module", params=hosts.RIGS)
def rig(request, module_scratch):
    if why := clients.lacking(*hosts.NEEDS[request.param]):
        pytest.skip(why)
    with hosts.make(request.param, module_scratch / request.param) as made:
        yield made


@pytest.fixture
def two(rig, request):
    """The same new file, by the path that each of two hosts has for it."""
    name = request.node.originalname
    folder = rig.mounts[0] / name
    folder.mkdir()
    path = model.put_model(folder)
    return path, rig.mounts[1] / name / path.name


def _lock_begin(path, tensor):
    """Another host's lock on the first bytes of a tensor."""
    with st_abi.File(path, writable=False) as file:
        begin = file.io_info().data_offset + sum(model.nbytes(t) for t in model.SMALL[:tensor])
    lock = open(path, "rb+")  # noqa: SIM115
    disk.lock_range(lock, begin, 512)
    return lock


def test_a_commit_is_seen_elsewhere(two):
    """By a new handle; by one that is open, after st_refresh; by a snapshot of that; by what a writer goes on from.
    In memory that was looked at before, and in bulk."""
    here, there = two
    with st_abi.File(here) as writer, st_abi.File(there, writable=False) as reader, st_abi.File(there) as other:
        for version in range(1, 9):
            for file in (reader, other):
                assert file.view("t1") == file.read("t1")  # so that the pages are in memory there
            writer.update_all({f"t{t}": model.new(t, version) for t in (1, 2, 4)})
            with st_abi.File(there, writable=False) as fresh:
                assert fresh.view("t1") == model.new(1, version)
            for file in (reader, other):
                file.refresh()
                for t in (1, 2, 4):
                    assert file.read(f"t{t}") == model.new(t, version)
                    assert file.view(f"t{t}") == model.new(t, version)
                assert file.read_many(["t4"])["t4"] == model.new(4, version)
            other.update("t2", model.new(2, version + 100))
            writer.refresh()
            assert writer.read("t2") == model.new(2, version + 100)


def test_a_publish_is_seen_elsewhere(two):
    """A handle that is open there commits to the file that has the name by now, and not to the old one."""
    here, there = two
    with st_abi.File(here) as writer, st_abi.File(there) as other:
        for version in range(1, 9):
            assert other.read("t0")
            writer.update_all({"t0": model.new(0, version)}, publish=True)
            other.update("t2", model.new(2, version))
            other.refresh()
            assert other.read("t0") == model.new(0, version)
            with st_abi.File(here, writable=False) as fresh:
                assert fresh.read("t2") == model.new(2, version)


def test_neighbours_in_one_page_wait_for_each_other(two):
    """Caches work in pages: of two hosts that write to one page, each may write back old bytes of the other."""
    here, there = two
    with st_abi.File(there, lock_timeout_ms=st_abi.st_h.ST_TIMEOUT_NONE) as other:
        with _lock_begin(here, 1):  # t0 ends where t1 begins, amid a page
            with st_abi.refused("ST_E_BUSY"):
                other.update("t0", model.new(0, 1))
            other.update("t4", model.new(4, 1))  # pages away
        other.update("t0", model.new(0, 1))


def test_recovery_by_another_host(two, programs, tell):
    """A writer dies at each of its calls; then a handle that was open elsewhere goes on, and finds all or nothing."""
    here, there = two
    state, deaths = list(model.OLD), 0
    for n in range(1, 1000):
        with st_abi.File(there) as other:
            assert other.read("t1")
            crash = {"CRASH_AT": str(n), "CRASH_DO": "exit"}
            code, said = programs.write(here, crash, tensors="0,1,2", first=n, count=1, seed=3)
            assert code in (0, EXIT_CRASHED), (code, said)
            other.update("t5", model.new(5, n))
            other.refresh()
            state[5] = n
            history = model.History.of(said)
            allowed = history.allowed(tuple(state))
            seen = [other.read(f"t{t}") for t in range(len(model.SMALL))]
            now = [v for v in allowed if all(seen[t] == model.new(t, v[t]) for t in range(len(model.SMALL)))]
            assert now, (n, said)
            state = list(now[0])
        if code == 0:
            break
        deaths += 1
    tell(deaths, "deaths of a writer, whose change another host finished or dropped")
    assert deaths > 5


@pytest.mark.skipif(not STORM.exists(), reason="needs tests/storm/storm of the build tree")
def test_storm(rig, bound, tell):
    """Four workers on two hosts, on the same tensors and on others, by patches and publishes. They are killed at any
    moment, and any host recovers. tests/README.md says how a storm is judged."""
    quick = 12 if isinstance(rig, hosts.MooseFs) else 20  # MooseFS takes a second to let a killed process go
    kills = bound(quick, 2000)
    command = [STORM, "--kills", kills, "--writers", 4, "--seed", bound.seed]
    command += ["--dir", rig.mounts[0], "--other-host", rig.mounts[1]]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(st_abi.LIBRARY.parent)}
    run = functools.partial(subprocess.run, capture_output=True, text=True, env=environment)
    done = run(list(map(str, command)))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    tell(kills, "kills of workers on two hosts")
