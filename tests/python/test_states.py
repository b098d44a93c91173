"""Every call shows one state of the file, whole; and what is kept of a state keeps that state, and nothing else.

With ST_TEST_BOUND=full there are a million reads beside changes, and a hundred thousand publishes beside arrays that
come and go; by default a few, as for each run of the suite.
"""

import collections
import itertools
import os
import pickle
import random
import sys
import tempfile
import threading
import traceback
from pathlib import Path

import libst
import numpy as np
import pytest
from conftest import refused

READS, PUBLISHES = (1_000_000, 100_000) if os.environ.get("ST_TEST_BOUND") == "full" else (10_000, 600)

SHAPES = [(64,), (32, 5), (7,), (3, 2, 2), (1000,)]


def state(number):
    """The tensors of a file: `a` and `b` say in each element which state it is, `c` is called `d` in every other, and
    `e` comes and goes."""
    tensors = {
        "a": np.full(SHAPES[number % 5], number, np.float32),
        "b": np.full(SHAPES[(number + 2) % 5], number, np.int32),
        "cd"[number % 2]: np.full((4, 4), number, np.uint32),
    }
    return tensors if number % 3 else {**tensors, "e": np.full((2,), number, np.int64)}


def move_on(file, number):
    """From the state before to this one, in one transaction."""
    new = state(number)
    with file.transaction() as t:
        t.rename("dc"[number % 2], "cd"[number % 2])
        for name in state(number - 1).keys() - new.keys() - {"c", "d"}:
            t.delete(name)
        for name, array in new.items():
            t.put(name, array)


def number_of(name, array):
    """Which state an array is of; fails unless it is what that state has."""
    values = set(array.reshape(-1).tolist())
    assert len(values) == 1, f"{name} of shape {array.shape} has elements {sorted(values)[:5]}"
    number = int(values.pop())
    expected = state(number).get(name)
    assert expected is not None and array.shape == expected.shape and array.dtype == expected.dtype, name
    return number


def together(arrays):
    """Which state all of these are of."""
    numbers = {number_of(name, array) for name, array in arrays.items()}
    assert len(numbers) == 1, f"arrays of states {sorted(numbers)} in one answer"
    return numbers.pop()


def anything(file, name):
    """Read in one of the ways that there are. KeyError where the state has no such tensor."""
    how = random.randrange(8)
    if how == 0:
        number_of(name, file.read(name))
    elif how == 1:
        number_of(name, file[name])
    elif how == 2:
        part = file.slice(name)
        array = part[1:] if random.random() < 0.5 else part[..., -1]
        assert len(set(array.reshape(-1).tolist())) == 1
        number = int(array.reshape(-1)[0])
        assert part.shape == state(number)[name].shape
    elif how == 3:
        together(file.read_many(["a", name, "b"]))
    elif how == 4:
        read = dict(file.items())
        assert read.keys() == state(together(read)).keys()
    elif how == 5:
        found = set(file)
        assert {"a", "b"} <= found <= {"a", "b", "c", "d", "e"} and len(found & {"c", "d"}) == 1
    elif how == 6:
        info = file.info("a")
        assert info.shape in SHAPES and info.nbytes == np.prod(info.shape) * 4
    else:
        assert len(file) in (3, 4) and "a" in file and file.get("nothing") is None


@pytest.fixture
def folder():
    """In memory where there is such a place: on a disk a commit waits for syncs, and few come between reads."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture(params=["one file", "no mapping", "shards"])
def opened(request, folder):
    """A file of the state 1, to be changed."""
    path = folder / "m.safetensors"
    libst.save(path, state(1))
    if request.param == "shards":
        libst.reshard(path, folder / "sharded", 200)
        path = folder / "sharded"
    with libst.open(path, "r+", mapping="none" if request.param == "no mapping" else "auto") as f:
        assert (len(f.shards) > 1) == (request.param == "shards")
        yield f


@pytest.fixture
def impatient():
    """Threads take turns a thousand times as often, so that a change comes between any two steps of a read."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("impatient")
def test_readers_see_whole_states_while_one_writes(opened):
    reads = itertools.count()
    number = 1
    failures = collections.Counter()
    done = threading.Event()

    def read():
        for name in itertools.cycle("abcde"):
            if (next(reads) >= READS and number > 20) or done.is_set():
                return
            try:
                anything(opened, name)
            except KeyError:
                if name in "ab":
                    failures["no " + name] += 1
            except Exception as error:
                failures[f"{type(error).__name__}: {error}"] += 1

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads):
            number += 1
            move_on(opened, number)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failures, failures.most_common(5)
    print(f"{READS} reads beside {number} states")
    assert together(dict(opened.items())) == number


def test_what_is_kept_keeps_its_state(opened):
    """By content, and whatever is committed, refreshed or closed meanwhile."""
    kept = []
    for number in range(2, 12):
        move_on(opened, number)
        part = opened.slice("a")
        names = iter(opened)
        everything = iter(opened.items())
        kept.append((number, {"a": opened["a"], "b": opened["b"]}, part, next(names), names, everything))
        if number % 3 == 0:
            opened.refresh()
    opened.close()
    for number, arrays, part, first, names, everything in kept:
        assert together(arrays) == number
        assert number_of("a", part[...]) == number
        assert {first, *names} == state(number).keys()
        assert together(dict(everything)) == number


def test_a_commit_shows_to_the_next_call_and_others_after_refresh(tmp_path):
    path = tmp_path / "m.safetensors"
    libst.save(path, state(1))
    with libst.open(path, "r+") as f, libst.open(path, "r+") as g:
        assert f["a"][0, 0] == 1
        move_on(g, 2)
        assert together(dict(g.items())) == 2 and together(dict(f.items())) == 1
        f.refresh()
        assert together(dict(f.items())) == 2


def test_what_is_read_has_the_form_of_its_state(tmp_path):
    path = tmp_path / "model.safetensors"
    libst.save(path, {f"t{i}": np.full(2, i, np.float32) for i in range(20)})
    with libst.open(path) as f, libst.open(path, "r+") as writer:
        assert [f.read(name).tolist() for name in f] == [[i, i] for i in range(20)]
        before = f.slice("t3")
        with writer.transaction() as t:
            t.put("t3", np.full((5, 3), 3, np.int64))
        f.refresh()
        assert f.read("t3").shape == f.slice("t3")[:].shape == (5, 3)
        assert f.read("t3").dtype == np.int64
        assert before[:].tolist() == [3, 3]


def test_a_commit_that_is_cancelled_may_have_followed_a_file_that_was_replaced(tmp_path):
    path = tmp_path / "m.safetensors"
    libst.save(path, {"a": np.zeros(1 << 20, np.uint8), "b": np.zeros(3)})
    cancel = []
    with libst.open(path, "r+", progress=lambda done, total: cancel and 1 / 0) as f:
        old = f["b"]
        t = f.transaction()
        t.update("a", np.ones(1 << 20, np.uint8))
        with libst.open(path, "r+") as g, g.transaction() as u:
            u.put("b", np.ones(7))
        cancel.append(True)
        with pytest.raises(ZeroDivisionError):
            t.commit()
        cancel.clear()
        assert f["b"].shape == f.read("b").shape == f.info("b").shape == (7,)
        assert not f["a"].any() and old.shape == (3,)


def test_a_callback_may_take_and_drop_arrays_while_its_call_runs(tmp_path):
    """Also the last that keeps a state: what is freed then waits for no lock of the call."""
    path = tmp_path / "m.safetensors"
    libst.save(path, {"a": np.zeros(1 << 20, np.uint8), "b": np.zeros(3)})
    kept = []

    def progress(done, total):
        kept.clear()
        kept.append((f["a"], f["b"], f.slice("a"), f.info("b")))

    with libst.open(path, "r+", progress=progress) as f:
        for number in range(3):
            kept.append(f["b"])
            f.update("a", np.full(1 << 20, number, np.uint8))
            with f.transaction(publish=True) as t:
                t.put("b", np.full(3 + number, number))
            f.refresh()
            f.read_many(["a", "b"])
            f.prefetch()
        kept.clear()
        assert f["b"].shape == (5,) and f["a"][0] == 2


def test_a_slice_goes_to_another_process_as_its_file_does(tmp_path):
    path = tmp_path / "m.safetensors"
    libst.save(path, state(1))
    with libst.open(path) as f:
        part = pickle.loads(pickle.dumps(f.slice("a")))
    assert part.shape == (32, 5) and number_of("a", part[...]) == 1
    with libst.open_memory(path.read_bytes()) as f, pytest.raises(TypeError, match="memory"):
        pickle.dumps(f.slice("a"))


def test_a_forked_child_sees_the_state_of_the_fork_and_moves_on_by_itself(tmp_path):
    path = tmp_path / "m.safetensors"
    libst.save(path, state(1))
    with libst.open(path, "r+") as f:
        view = f["a"]
        pid = os.fork()
        if pid == 0:
            try:
                assert together(dict(f.items())) == 1 and number_of("a", view) == 1
                move_on(f, 2)
                assert together(dict(f.items())) == 2 and number_of("a", view) == 1
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert together(dict(f.items())) == 1
        f.refresh()
        assert together(dict(f.items())) == 2


def test_interrupt_reaches_a_read_that_runs_on_a_state(tmp_path):
    path = tmp_path / "m.safetensors"
    libst.save(path, {"a": np.zeros(1 << 22, np.uint8)})
    with libst.open(path, block_size=4096, io_threads=1) as f:
        with refused("INTERRUPTED"):
            f.read_many(["a"], progress=lambda done, total: f.interrupt())
        assert not f.read("a").any()


def held(path):
    """What this process keeps of files that were replaced at this path: descriptors, mappings, bytes on the disk."""
    files, descriptors = {}, 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}") == f"{path} (deleted)":
                found = os.stat(f"/proc/self/fd/{fd}")
                files[found.st_ino] = found.st_blocks * 512
                descriptors += 1
        except FileNotFoundError:
            pass  # the listing's own
    with open("/proc/self/maps") as maps:
        mapped = {line.split()[4] for line in maps if line.rstrip().endswith(f"{path} (deleted)")}
    return descriptors, len(mapped), sum(files.values())


def resident():
    """MiB of memory that no file backs."""
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("RssAnon")).split()[1]) / 1024


@pytest.mark.parametrize("mapping", ["auto", "none"])
def test_publishes_beside_arrays_that_come_and_go_keep_at_most_two_files(folder, mapping):
    """What the arrays that live came from, and nothing else: no descriptor, no mapping, no blocks, no memory."""
    path = folder / "m.safetensors"
    libst.save(path, {"w": np.arange(1 << 14, dtype=np.float32), "n": np.zeros(1, np.int64)})
    chance = random.Random(13)
    grown = 0
    with libst.open(path, "r+", mapping=mapping) as f:
        size = os.stat(path).st_blocks * 512
        kept = []
        for number in range(1, PUBLISHES + 1):
            with f.transaction() as t:
                t.put("n", np.full(number % 7 + 1, number))
            if chance.random() < 0.5:
                kept.append((number, f["n"], f.slice("w"), memoryview(f["w"])))
            if chance.random() < 0.5:
                assert f["w"][number % (1 << 14)] == number % (1 << 14) and f.read("n")[0] == number
            if len(kept) > 3 or number % 50 == 0:
                for made, array, part, buffer in kept:
                    assert array.tolist() == [made] * (made % 7 + 1) and part[5:6] == buffer[5] == 5
                array = part = buffer = None
                files = len({made for made, *_ in kept} - {number})
                descriptors, mappings, blocks = held(path)
                assert descriptors <= files and mappings <= files and blocks <= files * (size + 8192)
                del kept[: chance.randrange(4) if number % 50 else len(kept)]
            if number % 50 == 0:
                assert held(path) == (0, 0, 0)
                if number == min(PUBLISHES // 50 // 2, 20) * 50:  # once all that is made once is there
                    grown = resident()
        assert resident() - grown < 4


@pytest.mark.parametrize("mapping", ["auto", "none"])
def test_refreshing_what_nobody_changed_keeps_nothing(folder, mapping):
    path = folder / "m.safetensors"
    libst.save(path, {"w": np.ones(1 << 18, np.float32)})
    with libst.open(path, mapping=mapping) as f:
        f["w"]
        before = resident(), len(os.listdir("/proc/self/fd"))
        for _ in range(100):
            f.refresh()
            assert f["w"][-1] == 1
        assert resident() - before[0] < 4 and len(os.listdir("/proc/self/fd")) == before[1]
