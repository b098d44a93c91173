"""Several hosts and one file: what one commits, the others see; what one locks, the others leave alone; and what one
began before it was killed, another one finishes. On real clients of real servers: hosts.py.

    python -m pytest tests/storage/test_hosts.py --full -k test_storm    2,000 kills on each, and in each trouble 400;
                                                                         on JuiceFS 400 and 100
"""

import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import clients
import disk
import hosts
import hosts_table
import model
import pytest
import safetensors.numpy
import st_abi
from object_store import Gcsfuse, ObjectStore

STORM = st_abi.BUILD / "tests" / "storm" / "storm"
EXIT_CRASHED = 9
EXIT_STORAGE_HANGS = 3  # of a storm


# On the last one nothing holds: test_a_gluster_volume_remembers.
@pytest.fixture(scope="module", params=[kind for kind in hosts.RIGS if kind != "glusterfs-defaults"])
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


def _begin_of(path, tensor):
    """Where in the file it begins."""
    with st_abi.File(path, writable=False) as file:
        return file.io_info().data_offset + sum(model.nbytes(t) for t in model.SMALL[:tensor])


def _lock_begin(path, tensor):
    """Another host's lock on the first bytes of a tensor."""
    lock = open(path, "rb+")  # noqa: SIM115
    disk.lock_range(lock, _begin_of(path, tensor), 512)
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


def test_neighbours_in_one_page_lose_nothing(rig, two):
    """Caches work in pages: of two hosts that write to one page, each may write back old bytes of the other. So they
    wait for each other. On GlusterFS they write past the caches, and so side by side."""
    here, there = two
    if isinstance(rig, hosts.GlusterFs):
        with st_abi.File(there, lock_timeout_ms=st_abi.st_h.ST_TIMEOUT_NONE) as other, _lock_begin(here, 1):
            other.update("t0", model.new(0, 1))  # t0 ends where t1 begins, amid a page
        _change_neighbours_at_once(here, there)
        return
    with st_abi.File(there, lock_timeout_ms=st_abi.st_h.ST_TIMEOUT_NONE) as other:
        with _lock_begin(here, 1):  # t0 ends where t1 begins, amid a page
            with st_abi.refused("ST_E_BUSY"):
                other.update("t0", model.new(0, 1))
            other.update("t4", model.new(4, 1))  # pages away
        disk.wait_until(lambda: not disk.is_locked(there), "the lock's end, of which the server may hear later")
        other.update("t0", model.new(0, 1))


def _change_neighbours_at_once(here, there):
    """From two hosts, each its tensor, in turns that nobody orders. Then both hosts read both."""
    rounds = 60

    def change(path, tensor):
        with st_abi.File(path) as file:
            for version in range(1, rounds + 1):
                file.update(f"t{tensor}", model.new(tensor, version))

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(change, path, tensor) for path, tensor in ((here, 0), (there, 1))]:
            done.result()
    for path in (here, there):
        with st_abi.File(path) as file:
            assert [file.read(f"t{t}") for t in range(2)] == [model.new(t, rounds) for t in range(2)]


def _is_heard_of(there, dead_journals):
    """Has the server let go what the dead had locked? It may hear of a death after us. Until it does, their journals
    are those of a live writer, and are left alone."""
    return not any(disk.is_locked(model.folder_of(there) / name) for name in dead_journals)


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
            left = model.journals(there) or []
            disk.wait_until(lambda left=left: _is_heard_of(there, left), "the server to hear of a death")
            other.update("t5", model.new(5, n))
            other.refresh()
            state[5] = n
            allowed = model.History.of(said).allowed(tuple(state))
            seen = [other.read(f"t{t}") for t in range(len(model.SMALL))]
            now = [v for v in allowed if all(seen[t] == model.new(t, v[t]) for t in range(len(model.SMALL)))]
            versions = [model.version_of(t, seen[t]) for t in range(len(model.SMALL))]
            assert now, f"call {n}: the writer ended with {code} and said {said!r}; {state} before, {versions} now"
            state = list(now[0])
        if code == 0:
            break
        deaths += 1
    tell(deaths, "deaths of a writer, whose change another host finished or dropped")
    assert deaths > 5


def test_workers_that_are_ended_at_once_leave_a_mount_that_answers(rig, two, programs, bound, tell):
    """As Ctrl-C ends all workers of a host, amid their waits for one tensor. GlusterFS's client hangs where signals
    interrupt two requests for locks."""
    if rig.kind != "glusterfs":
        pytest.skip("on GlusterFS alone")
    rounds, workers = bound(5, 200), 8
    for _ in range(rounds):
        ended = [programs.writer(two[1], tensors="1", count=10**6, seed=seed) for seed in range(workers)]
        for worker in ended:
            disk.read_line(worker.stdout)  # it is at work
        for worker in ended:
            worker.terminate()
        try:
            for worker in ended:
                worker.communicate(timeout=disk.LONGEST_WAIT)
        except subprocess.TimeoutExpired:
            rig.mount_again()
            raise
    tell(rounds * workers, "workers that were ended while they waited for locks")


class StorageHangsError(Exception):
    """It does not answer a call of a process that was killed, or keeps its lock."""


@contextmanager
def _skip_if_gluster_hangs(rig):
    try:
        yield
    except StorageHangsError:
        if not isinstance(rig, hosts.GlusterFs):
            raise
        rig.mount_again()
        pytest.skip("a kill met a lock request, and its client hangs, or keeps the lock: gluster/glusterfs#4371")


def _storms(count, kills, seed, *words):
    """Engines that kill workers, each of a file of its own; tests/README.md says how they judge."""
    if not STORM.exists():
        pytest.skip("needs tests/storm/storm of the build tree")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(st_abi.LIBRARY.parent)}
    # The rig does not outlive the test; what a judge did not understand does.
    environment.setdefault("STORM_KEEPS", str(Path(tempfile.gettempdir()) / "libst-storms"))
    with ExitStack() as stack:
        storms, outputs = [], []
        for i in range(count):
            command = [STORM, *words, "--kills", -(-kills // count), "--seed", seed + i, "--writers", 4]
            # A file: a worker that hangs in the kernel would hold a pipe open.
            output = stack.enter_context(tempfile.TemporaryFile("w+"))
            storm = subprocess.Popen(list(map(str, command)), stdout=output, stderr=subprocess.STDOUT, env=environment)
            stack.enter_context(storm)
            stack.callback(storm.kill)
            storms.append(storm)
            outputs.append(output)
        for storm in storms:
            storm.wait()
        for output in outputs:
            output.seek(0)
        said = [output.read() for output in outputs]
    for text in said:
        print(text)
    if any(storm.returncode == EXIT_STORAGE_HANGS for storm in storms):
        raise StorageHangsError("\n".join(said))
    assert all(storm.returncode == 0 for storm in storms), "\n".join(said)
    return sum(int(text.splitlines()[-1].split(" kills")[0]) for text in said)


@pytest.mark.parametrize("scene", [[], ["--shards"]], ids=["file", "shards"])
def test_storm(rig, scene, bound, tell):
    """Four workers on two hosts, on the same tensors and on others, by patches and publishes; on shards by deltas, too.
    They are killed at any moment, and any host recovers."""
    if scene and rig.kind == "glusterfs-volume" and not bound.full:
        pytest.skip("shards on the plain client of GlusterFS; here with --full")
    if isinstance(rig, hosts.JuiceFs) and not bound.full:
        pytest.skip("its clients lose locks, and nothing is promised: only with --full")
    slow = isinstance(rig, hosts.MooseFs | hosts.CephFs)  # they take up to a second to let a killed process go
    where = ["--dir", rig.mounts[0], "--other-host", rig.mounts[1]]
    at_once = bound(1, 8 if slow else 1)  # most of their time is waiting
    most = 400 if isinstance(rig, hosts.JuiceFs) else 2000
    with _skip_if_gluster_hangs(rig):
        kills = _storms(at_once, bound(6 if slow else 12, most), bound.seed, *scene, *where)
    tell(kills, "kills of workers on two hosts")


def test_a_gluster_volume_remembers(scratch):
    """With the layers that `gluster volume create` gives a client, it answers for a second what it remembers of small
    files, also to O_DIRECT, and of sizes. Nothing can be asked past that: so `stctl io` says which two are to go."""
    if why := clients.lacking(*hosts.NEEDS["glusterfs-defaults"]):
        pytest.skip(why)
    with hosts.make("glusterfs-defaults", scratch / "rig") as made:
        old, new = bytes(4096), b"\1" * 4096

        def is_stale(name):
            here, there = (mount / name for mount in made.mounts)
            here.write_bytes(old)
            disk.wait_until(lambda: there.exists() and there.read_bytes() == old, "the other host to see it")
            with _open_directly(there) as direct, open(here, "rb+", buffering=0) as file:
                assert _read_directly(direct) == old
                file.write(new)
                os.fsync(file.fileno())
                return _read_directly(direct) == old

        # Where the second that it remembers for is over too soon, another try is made, with a file that it has not met:
        # a known one may be asked for anew at each read.
        assert any(is_stale(f"small{i}") for i in range(60)), (
            "it remembers nothing by now: then hosts.GlusterDefaults can be a rig like the others"
        )
        said = _other_hosts(model.put_model(made.mounts[0]))
        assert "performance.stat-prefetch" in said and "performance.quick-read" in said


WRITES_ON = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
print("writes", flush=True)
while True:
    os.pwrite(file, bytes(4096), 1 << 20)
"""


def test_juicefs_loses_locks(scratch):
    """Its client ends the locks of a descriptor some time after it was closed, and knows them by the address that the
    open file had in the kernel. If the next one of this file lies there, its locks are gone. So `stctl io` says that
    one process may change a file at a time: nothing tells libst of a lock that is lost."""
    if why := clients.lacking(*hosts.NEEDS["juicefs"]):
        pytest.skip(why)
    with hosts.make("juicefs", scratch / "rig") as made:
        here, there = (mount / "file" for mount in made.mounts)
        here.write_bytes(bytes(4096))

        def take(file):
            try:
                disk.lock_range(file, 0, 512)
            except BlockingIOError:
                return False
            return True

        def is_lost():
            with open(here, "rb+") as closed:
                disk.wait_until(lambda: take(closed), "the lock")
            with open(here, "rb+") as held:
                disk.wait_until(lambda: take(held), "the lock again")
                return not all(disk.is_locked(there) for _ in range(20))

        command = [sys.executable, "-c", WRITES_ON, here]  # what is closed waits for what others have written
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as writer:
            try:
                assert disk.read_line(writer.stdout) == "writes\n"
                assert any(is_lost() for _ in range(1000)), "it loses none by now: then it can be a rig like the others"
            finally:
                writer.kill()
        assert _other_hosts(model.put_model(made.mounts[0])).startswith("read only: its clients lose locks")


def _open_directly(path):
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_DIRECT), "rb", buffering=0)


def _read_directly(file):
    page = mmap.mmap(-1, mmap.PAGESIZE)
    os.preadv(file.fileno(), [page], 0)
    return bytes(page)


# Seconds until a server of the rigs below gives a host up. CephFS takes no less.
LIFE = {"glusterfs": 3, "moosefs": 3, "cephfs": 30, "juicefs": 5}


@pytest.fixture(scope="module", params=LIFE)
def troubled(request, module_scratch, bound):
    if why := clients.lacking(*hosts.NEEDS[request.param]):
        pytest.skip(why)
    if request.param == "cephfs" and not bound.full:
        pytest.skip("CephFS gives a host up after half a minute: only with --full")
    if request.param == "juicefs" and not bound.full:
        pytest.skip("JuiceFS's clients lose locks, and nothing is promised: only with --full")
    with hosts.make(request.param, module_scratch / f"troubled-{request.param}", life=LIFE[request.param]) as made:
        yield made


@pytest.mark.parametrize("trouble", ["freeze", "cut", "restart"])
def test_storm_with_trouble(troubled, trouble, bound, tell):
    """The same storm, while the FUSE client of a host is frozen, or the host is cut off, both for longer than the
    server remembers it; or while the servers are killed and start again. Calls may fail, by a status that is true."""
    if trouble == "cut" and isinstance(troubled, hosts.MooseFs) and not bound.full:
        pytest.skip("a read that was cut off waits in MooseFS's client for minutes: only with --full")
    if trouble != "restart" and isinstance(troubled, hosts.CephFs):
        pytest.skip("CephFS shuts such a host out until it mounts anew: its calls fail with EIO")
    command = troubled.restart() if trouble == "restart" else getattr(troubled, trouble)(1)
    where = ["--dir", troubled.mounts[0], "--other-host", troubled.mounts[1]]
    most = 100 if isinstance(troubled, hosts.JuiceFs) else 400
    with _skip_if_gluster_hangs(troubled):
        kills = _storms(1, bound(4, most), bound.seed, "--trouble", command, *where)
    tell(kills, "kills of workers on two hosts, of which one was frozen or cut off, or whose server was restarted")


def _is_stopped(process):
    if process.poll() is not None:
        return True
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_writer_that_was_cut_off_writes_no_more(troubled, programs, bound, tell):
    """Amid a commit a writer is stopped, and its host cut off until the server has given its locks away. Another host
    finishes or drops what was begun, and goes on; then the writer does. The server lets it: nothing tells it that its
    locks are gone. Before it writes to the file itself it is not stopped, as that is right after its last question."""
    if not isinstance(troubled, hosts.GlusterFs):
        pytest.skip("on GlusterFS alone: MooseFS gives no lock away, and CephFS takes half a minute each time")
    here, there = troubled.mounts
    tried = Counter()
    for n in range(1, 1000) if bound.full else (9, 11, 13):
        (here / f"cut-{n}").mkdir()
        path = model.put_model(here / f"cut-{n}")
        crash = {"CRASH_AT": str(n), "CRASH_DO": "stop"}
        elsewhere = there / path.parent.name / path.name
        with programs.writer(elsewhere, crash, tensors="0,1,2", first=n, count=1, seed=3) as writer:
            disk.wait_until(lambda w=writer: _is_stopped(w), "the writer to stop")
            if writer.poll() is not None:
                break
            said = []
            while not said or not said[-1].startswith("stopped"):
                said.append(disk.read_line(writer.stdout))
            in_flight = said[-1].strip().endswith(path.name)
            with troubled.cut_off(1):
                with st_abi.File(path, lock_timeout_ms=60_000) as other:
                    other.update_all({f"t{t}": model.new(t, 1000 + n) for t in (1, 5)})
            disk.wait_until(lambda: hosts.is_writable(there), "the host to be back")
            writer.send_signal(signal.SIGCONT)
            said.append(writer.communicate(timeout=120)[0].decode())
        if in_flight:
            continue
        history = model.History.of("".join(said))
        other = {1: 1000 + n, 5: 1000 + n}
        after = tuple(other.get(t, v) for t, v in enumerate(model.OLD))
        allowed = history.allowed(after)  # the writer last, or it never was
        allowed |= {tuple(other.get(t, v) for t, v in enumerate(s)) for s in history.allowed(model.OLD)}
        with st_abi.File(path) as file:
            seen = [file.read(f"t{t}") for t in range(len(model.SMALL))]
        assert any(all(seen[t] == model.new(t, v[t]) for t in range(len(v))) for v in allowed), (n, said)
        tried.update(history.results())
    tell(sum(tried.values()), "writers that were cut off amid a commit", dict(tried))
    assert tried["ST_E_NEEDS_RECOVERY"] + tried["ST_E_FILE_CHANGED"] or not bound.full


@pytest.fixture
def sshfs(scratch):
    """Two hosts that see one folder of a third."""
    if why := clients.lacking("sshfs"):
        pytest.skip(why)
    (scratch / "source").mkdir()
    with ExitStack() as stack:
        yield [
            stack.enter_context(clients.Sshfs(scratch / "source", scratch / name, writable=True)).mountpoint
            for name in hosts.NAMES
        ]


def _other_hosts(path):
    """What stctl says of them."""
    command = [st_abi.BUILD / "bindings" / "cli" / "stctl", "io", "--json", path]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(st_abi.LIBRARY.parent)}
    done = subprocess.run(list(map(str, command)), capture_output=True, check=True, env=environment)
    return json.loads(done.stdout)["other_hosts"]


def test_sshfs_is_for_writers_of_one_host(sshfs):
    """Its locks exclude on one host, and nobody elsewhere: so nothing there can be refused, and stctl says so."""
    here, there = sshfs
    path = model.put_model(here)
    other = there / path.name
    assert _other_hosts(path).startswith("read only: its locks exclude nobody on another host")
    with st_abi.File(path) as writer, st_abi.File(other, writable=False) as reader:
        writer.update_all({"t0": model.new(0, 1), "t4": model.new(4, 1)})
        with st_abi.File(path, lock_timeout_ms=st_abi.st_h.ST_TIMEOUT_NONE) as second, _lock_begin(path, 2):
            with st_abi.refused("ST_E_BUSY"):
                second.update("t2", model.new(2, 1))
        reader.refresh()
        assert reader.read("t0") == model.new(0, 1)
    with _lock_begin(path, 2), _lock_begin(other, 2):  # the lock of one host is none for another
        pass


def _agrees(row, path):
    """What README's table has is what `stctl io` says."""
    return _other_hosts(path).startswith(hosts_table.ROWS[row].says)


def _seen_by_stock(path, name):
    """In a child, as a reader by pages that hangs in the filesystem holds Python's lock."""
    return bytes.fromhex(disk.in_child(lambda: safetensors.numpy.load_file(path)[name].tobytes().hex()))


def _pages(data, begin):
    """Bytes that begin there in a file, cut where its pages begin."""
    first = -begin % mmap.PAGESIZE
    return [data[:first], *(data[at : at + mmap.PAGESIZE] for at in range(first, len(data), mmap.PAGESIZE))]


def test_the_table_says_what_a_rig_can(rig, two):
    """Who is kept out by a lock, and from when on a reader elsewhere sees a commit."""
    here, there = two
    kind = "glusterfs" if rig.kind == "glusterfs-volume" else rig.kind
    row = hosts_table.ROWS[kind]
    assert _agrees(kind, here)
    at_once = st_abi.st_h.ST_TIMEOUT_NONE
    for path, excluded in ((here, row.locks_here), (there, row.locks_elsewhere)):
        with st_abi.File(path, lock_timeout_ms=at_once) as other, _lock_begin(here, 2), st_abi.refused("ST_E_BUSY"):
            assert excluded
            other.update("t2", model.new(2, 1))
    with st_abi.File(here) as writer, st_abi.File(there, writable=False) as reader:
        stock = _seen_by_stock(there, "t4")
        assert reader.read("t4") == stock
        writer.update("t4", model.new(4, 1))
        with st_abi.File(there, writable=False) as fresh:
            assert fresh.read("t4") == model.new(4, 1) or "new open" not in row.libst
        reader.refresh()
        assert reader.read("t4") == model.new(4, 1)
        stock_again = _seen_by_stock(there, "t4")
        if row.stock == hosts_table.EITHER:
            begin = _begin_of(there, 4)
            both = zip(*(_pages(data, begin) for data in (stock_again, stock, model.new(4, 1))), strict=True)
            assert all(seen in (old, new) for seen, old, new in both)
        else:
            assert stock_again == {hosts_table.OPEN: model.new(4, 1), hosts_table.OLD: stock}[row.stock]


def test_the_table_says_what_sshfs_can(sshfs):
    assert _agrees("sshfs", model.put_model(sshfs[0]))


def test_the_table_says_what_a_bucket_can(scratch):
    if why := clients.lacking("gcsfuse", "fake-gcs-server", "toxiproxy"):
        pytest.skip(why)
    store = ObjectStore(scratch)
    with ExitStack() as stack:
        stack.enter_context(store)
        store.put("model.safetensors", model.file_bytes())
        mount = stack.enter_context(Gcsfuse(store, scratch / "bucket")).mountpoint
        assert _agrees("bucket", mount / "model.safetensors")


def test_the_table_says_what_a_disk_can(any_disk):
    assert _agrees("disk", model.put_model(any_disk))


def test_nothing_grows(rig, bound, tell):
    """Four processes on two hosts do all that libst does to one file: memory, descriptors and disk are flat."""
    if rig.kind != "glusterfs":
        pytest.skip("on GlusterFS alone")
    folders = [mount / "soak" for mount in rig.mounts]
    folders[0].mkdir()
    command = [sys.executable, st_abi.ROOT / "tests" / "storm" / "soak.py", "--minutes", bound(0.3, 60)]
    command += ["--dir", folders[0], "--other-host", folders[1]]
    environment = {**os.environ, "LIBST_LIBRARY": str(st_abi.LIBRARY)}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    tell(1, "soak", done.stdout.splitlines()[0])
