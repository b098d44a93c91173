"""A view keeps the memory that it lies in, and nothing else does."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref

import crash
import libst
import numpy as np
import pytest
from conftest import TENSORS, is_descriptor_open, is_mapped, refused
from libst._handle import Memory
from libst.compat import numpy as compat_numpy
from locks import exclusive
from safetensors.numpy import save_file


@pytest.fixture(autouse=True)
def no_collector():
    """Everything here must happen by reference counts alone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_view_outlives_close(model):
    f = libst.open(model)
    view = f["w"]
    f.close()
    del f
    assert is_mapped(model) and not is_descriptor_open(model)
    assert np.array_equal(view, TENSORS["w"])
    del view
    assert not is_mapped(model)


@pytest.mark.parametrize("mapping", ["shared", "private", "copy-on-write"])
def test_views_of_closed_files_keep_no_descriptor(model, mapping):
    before = len(os.listdir("/proc/self/fd"))
    views = []
    for _ in range(50):
        with libst.open(model, mapping=mapping) as f:
            views += [f["w"], f["b"]]
    assert len(os.listdir("/proc/self/fd")) == before
    assert all(np.array_equal(view, TENSORS["w"]) for view in views[::2])


def test_close_unmaps_at_once_where_no_view_lives(model):
    f = libst.open(model)
    f["w"]
    assert is_mapped(model) and is_descriptor_open(model)
    f.close()
    assert not is_mapped(model) and not is_descriptor_open(model)


def test_the_last_of_several_views_closes(model):
    with libst.open(model) as f:
        views = [f["w"], f["b"], f["w"][1:], f["w"].reshape(-1)[::2], f["scalar"]]
    while views:
        assert is_mapped(model)
        views.pop(0)
    assert not is_mapped(model)


def test_a_derived_array_keeps_the_file(model):
    with libst.open(model) as f:
        derived = f["w"][1].T[::-1]
    assert is_mapped(model)
    assert np.array_equal(derived, TENSORS["w"][1].T[::-1])
    del derived
    assert not is_mapped(model)


def test_a_buffer_of_a_view_keeps_the_file(model):
    with libst.open(model) as f:
        buffer = memoryview(f["b"])
    assert buffer.tolist() == TENSORS["b"].tolist()
    assert is_mapped(model)
    del buffer
    assert not is_mapped(model)


@pytest.mark.parametrize("mapping", ["shared", "private", "copy-on-write", "none"])
def test_what_a_view_lies_over_is_not_copied(model, mapping):
    """A copy would show what the last view has freed."""
    with libst.open(model, mapping=mapping) as f:
        view = f["w"]
    below = view.base
    while not isinstance(below, Memory):
        below = below.obj if isinstance(below, memoryview) else below.base
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            make(below)
    del below
    assert np.array_equal(view, TENSORS["w"])


def test_a_slice_outlives_close_as_a_view_does(model):
    f = libst.open(model)
    part = f.slice("w")
    f.close()
    assert np.array_equal(part[:, 1], TENSORS["w"][:, 1])
    del f
    assert is_mapped(model) and is_descriptor_open(model)
    del part
    assert not is_mapped(model) and not is_descriptor_open(model)


def test_an_empty_view_keeps_nothing(model):
    with libst.open(model) as f:
        empty = f["empty"]
    assert not is_mapped(model)
    assert empty.shape == (0, 3)


def test_without_a_mapping_the_memory_lives_as_long(model):
    with libst.open(model, mapping="none") as f:
        view = f["w"]
    assert is_descriptor_open(model)
    assert np.array_equal(view, TENSORS["w"])
    del view
    assert not is_descriptor_open(model)


def test_an_unclosed_file_is_closed_when_it_dies(model):
    f = libst.open(model)
    f["w"]
    alive = weakref.ref(f)
    del f
    assert alive() is None
    assert not is_mapped(model) and not is_descriptor_open(model)


def test_an_iterator_keeps_the_file(model):
    f = libst.open(model)
    names = iter(f)
    first = next(names)
    f.close()
    assert {first, *names} == set(TENSORS)
    del names
    assert not is_descriptor_open(model)


def test_a_failed_open_leaves_nothing_open(tmp_path):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(b"\x05\0\0\0\0\0\0\0{bad}")
    for mode in ("r", "r+"):
        with pytest.raises(libst.FormatError):
            libst.open(path, mode)
    assert not is_descriptor_open(path) and not is_mapped(path)


def test_an_error_does_not_keep_the_file(model):
    """Though its traceback keeps the frames it came through."""
    f = libst.open(model)
    calls = [
        lambda: f["nope"],
        lambda: f.info("nope"),
        lambda: f.read("nope"),
        lambda: f.slice("nope"),
        lambda: f.slice("w")[::0],
        lambda: f.slice("w")[100],
        lambda: f.read("w", np.empty(0)),
        lambda: f.read_many(["w", "nope"]),
        lambda: f.read_many({"w": np.empty(0)}),
        lambda: f.prefetch(["w", "nope"]),
        lambda: f["\ud800"],
        lambda: f.torch("nope"),
        lambda: f.torch("nope", copy=True),
        lambda: f.transaction(),
        lambda: f.update("b", TENSORS["b"]),
    ]
    kept = []
    for call in calls:
        try:
            call()
        except (libst.Error, ValueError, IndexError) as error:
            kept.append(error)
    f.close()
    assert len(kept) == len(calls) and all(error.__traceback__ for error in kept)
    assert not is_descriptor_open(model)


@pytest.mark.parametrize("count", [2, 5, 12])
def test_a_load_keeps_no_file_whether_it_fails_or_not(tmp_path, monkeypatch, count):
    path = tmp_path / "few.safetensors"
    save_file({f"t{i}": np.arange(9) for i in range(count)}, path)
    loads = [lambda: libst.load(path), lambda: compat_numpy.load_file(path), lambda: libst.load(path, ["t1"])]
    loaded = [load() for load in loads]
    assert not is_descriptor_open(path) and len(loaded) == 3
    kept = []

    def fail(*_):
        assert is_descriptor_open(path)
        raise MemoryError

    def try_all():
        for load in [*loads, lambda: libst.load(path, ["nope"])]:
            try:
                load()
            except (MemoryError, libst.NotFoundError) as error:
                kept.append(error)

    places = [(libst.bulk, "new_array"), (libst.bulk, "_block"), (libst._rows, "new_rows"), (libst._names.np, "empty")]
    for i, (module, name) in enumerate(places):
        monkeypatch.setattr(module, name, fail)
        if i:
            try_all()
    assert len(kept) == 12 and all(error.__traceback__ for error in kept)
    assert not is_descriptor_open(path)


def test_a_slice_that_fails_for_want_of_memory_keeps_no_file(tmp_path, monkeypatch):
    path = tmp_path / "some.safetensors"
    save_file({f"t{i}": np.arange(9) for i in range(60)}, path)
    kept = []

    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(libst._few, "new_array", fail)
    with libst.open(path) as f:
        for i in range(4):
            try:
                f.slice(f"t{i}")
            except MemoryError as error:
                kept.append(error)
    assert len(kept) == 1 and not is_descriptor_open(path)


def test_an_error_of_a_callback_or_transaction_does_not_keep_the_file(model):
    kept = []
    long = np.arange(10_000)  # bytes: more than are read without asking progress
    save_file({"b": long}, model)
    with libst.open(model, "r+", mapping="none", progress=lambda done, total: 1 / 0) as f:
        calls = [
            lambda: f.read("b"),
            lambda: f.read_many(["b"]),
            lambda: f.slice("b")[1:],
            lambda: f.prefetch(["b"]),
        ]
        for call in calls:
            try:
                call()
            except ZeroDivisionError as error:
                kept.append(error)
        t = f.transaction()
        for name in ("nope", "b"):
            try:
                t.update(name, long)
            except (libst.NotFoundError, ZeroDivisionError) as error:
                kept.append(error)
    assert len(kept) == 6
    assert not is_descriptor_open(model)


def test_a_file_goes_with_the_error_of_its_callback(model):
    """And not with the next run of the collector."""
    save_file({"b": np.arange(10_000)}, model)

    def read():
        f = libst.open(model)
        f.read_many(["b"], progress=lambda done, total: 1 / 0)

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ZeroDivisionError) as caught:
            read()
        assert is_descriptor_open(model)
        del caught
        assert not is_descriptor_open(model)
    finally:
        gc.enable()


def test_a_transaction_does_not_keep_a_closed_file(model):
    f = libst.open(model, "r+")
    t = f.transaction()
    t.update("b", TENSORS["b"] * 2)
    f.close()
    with pytest.raises(libst.ClosedError, match="closed"):
        t.commit()
    del f, t
    assert not is_descriptor_open(model)
    with libst.open(model) as f:
        assert np.array_equal(f["b"], TENSORS["b"])


def test_closing_a_file_drops_at_once_what_its_transactions_staged(model):
    f = libst.open(model, "r+")
    t = f.transaction()
    t.update("b", TENSORS["b"] * 2)
    assert len(crash.journals(model)) == 1
    f.close()
    assert crash.journals(model) == [] and not is_descriptor_open(model)
    t.abort()
    t.abort()


def test_a_transaction_is_aborted_by_its_last_reference(model):
    with libst.open(model, "r+") as f:
        t = f.transaction(copy=False)
        array = TENSORS["b"] * 2
        borrowed = weakref.ref(array)
        t.update("b", array)
        del array
        assert borrowed() is not None and len(crash.journals(model)) == 1
        del t
        assert borrowed() is None
        f.update("scalar", TENSORS["scalar"])
        assert len(crash.journals(model)) <= 1  # the transaction's is there for others to use
    assert crash.journals(model) == []


@pytest.mark.parametrize("lent_to", ["open", "log", "transaction", "writer"])
def test_a_callback_that_leads_to_its_file_does_not_keep_it(model, tmp_path, lent_to):
    """The one thing that here the collector must find."""
    before = len(os.listdir("/proc/self/fd"))

    class Trainer:
        def __init__(self):
            if lent_to == "writer":
                self.writer = libst.writer(tmp_path / "new", progress=self.told)
                return
            given = {"open": {"progress": self.told}, "log": {"log": self.told}}.get(lent_to, {})
            self.file = libst.open(model, "r+", **given)
            self.transaction = self.file.transaction(progress=self.told if lent_to == "transaction" else None)
            self.transaction.update("b", TENSORS["b"] * 2)
            self.view = self.file["w"]

        def told(self, *args):
            pass

    trainer = weakref.ref(Trainer())
    gc.collect()
    assert trainer() is None
    assert len(os.listdir("/proc/self/fd")) == before
    assert crash.journals(model) == [] and not is_mapped(model)


def test_a_callback_lives_as_long_as_its_file(model):
    told = []
    f = libst.open(model, "r+", progress=lambda done, total: told.append(done))
    t = f.transaction()
    gc.collect()
    save_file({"b": np.arange(10_000)}, model)
    f.refresh()
    f.read("b")
    assert told
    told.clear()
    t.abort()
    with f.transaction() as again:
        again.update("b", np.arange(10_000) * 2)
    assert told


def test_a_finished_transaction_keeps_nothing(model):
    f = libst.open(model, "r+")
    t = f.transaction(copy=False)
    array = TENSORS["b"] * 2
    borrowed = weakref.ref(array)
    t.update("b", array)
    del array
    t.commit()
    assert borrowed() is None
    for call in (t.commit, t.plan, lambda: t.delete("w"), t.__enter__):
        with pytest.raises(libst.ClosedError, match="finished"):
            call()
    t.abort()
    del f
    assert not is_descriptor_open(model)


def test_a_transaction_that_failed_is_finished(model):
    with libst.open(model, "r+") as f, libst.open(model, "r+") as other:
        t = f.transaction()
        t.update("b", TENSORS["b"] * 2)
        with other.transaction() as remove:
            remove.delete("b")
        with refused("FILE_CHANGED"):
            t.commit()
        with pytest.raises(libst.ClosedError, match="finished"):
            t.commit()
    assert crash.journals(model) == []


def test_a_writer_is_aborted_by_its_last_reference(tmp_path):
    w = libst.writer(tmp_path / "new")
    w.add("a", np.ones(1000))
    assert os.listdir(tmp_path)
    del w
    assert os.listdir(tmp_path) == []
    w = libst.writer(tmp_path / "new")
    w.finish()
    for call in (w.finish, lambda: w.add("a", np.ones(1)), w.__enter__):
        with pytest.raises(libst.ClosedError, match="finished"):
            call()
    w.abort()
    assert os.listdir(tmp_path) == ["new"]


def test_memory_is_held_until_the_last_view_dies(model):
    data = bytearray(model.read_bytes())
    with libst.open_memory(data) as f:
        view = f["w"]
    with pytest.raises(BufferError):
        data.append(0)
    assert np.array_equal(view, TENSORS["w"])
    del view
    data.append(0)
    assert f.closed


def test_everything_raises_closed_after_close(model):
    f = libst.open(model, "r+")
    f.close()
    f.close()
    assert f.closed
    calls = {
        "__getitem__": lambda: f["w"],
        "__contains__": lambda: "w" in f,
        "__len__": lambda: len(f),
        "__iter__": lambda: iter(f),
        "__enter__": lambda: f.__enter__(),
        "__reduce__": lambda: pickle.dumps(f),
        "keys": lambda: list(f.keys()),
        "items": lambda: list(f.items()),
        "values": lambda: list(f.values()),
        "get": lambda: f.get("w"),
        "info": lambda: f.info("w"),
        "slice": lambda: f.slice("w"),
        "read": lambda: f.read("w"),
        "read_many": lambda: f.read_many(["w"]),
        "prefetch": lambda: f.prefetch(),
        "metadata": lambda: f.metadata,
        "shards": lambda: f.shards,
        "update": lambda: f.update("b", TENSORS["b"]),
        "transaction": lambda: f.transaction(),
        "patch": lambda: f.patch(model),
        "refresh": lambda: f.refresh(),
        "sync": lambda: f.sync(),
        "reopen": lambda: f.reopen(),
        "stats": lambda: f.stats(),
        "io_info": lambda: f.io_info(),
        "interrupt": lambda: f.interrupt(),
    }
    without_a_handle = {"path", "mode", "closed", "close"}
    by_a_package = {"torch", "jax"}  # which may be missing, and is asked for first
    public = {name for name in dir(libst.File) if not name.startswith("_")}
    assert public == {name for name in calls if not name.startswith("_")} | without_a_handle | by_a_package
    for name, call in calls.items():
        with pytest.raises(libst.ClosedError) as caught:
            call()
        assert isinstance(caught.value, ValueError), name
        assert str(model) in str(caught.value), name


def test_closing_under_readers_in_other_threads_is_safe(model):
    """They see the right bytes or ClosedError, whenever the close comes."""
    failures, reads = [], []

    def read(f):
        try:
            for _ in range(2000):
                assert f["b"].tolist() == TENSORS["b"].tolist()
                assert f.read("scalar") == 2.5
                reads.append(1)
        except libst.ClosedError:
            pass
        except BaseException as error:
            failures.append(error)

    for _ in range(10):
        f = libst.open(model)
        threads = [threading.Thread(target=read, args=(f,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        f.close()
        for thread in threads:
            thread.join()
    assert failures == [] and reads
    assert not is_mapped(model)


def test_the_collector_does_not_close_under_a_finalizer(model):
    """The cycle collector calls every __del__ of a dead cycle before it frees any: all of them may use the file."""
    program = """
import gc, sys, libst
class Model:
    def __init__(self, file):
        self.me = self
        self.file = file
        self.transaction = self.file.transaction()
        self.transaction.update("b", self.file.read("b"))
        self.w = self.file["w"] if sys.argv[2] == "with view" else None
    def __del__(self):
        assert any(sys.argv[1] in line for line in open("/proc/self/maps"))
        print(float(self.file["w"].sum()))
        self.transaction.update("b", self.file.read("b"))
gc.disable()
for _ in range(2):
    Model(libst.open(sys.argv[1], "r+"))  # the file first, as the collector takes the oldest first
gc.collect()
print(any(sys.argv[1] in line for line in open("/proc/self/maps")))
"""
    for view in ("with view", "without view"):
        done = subprocess.run([sys.executable, "-c", program, str(model), view], capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == "", done
        assert done.stdout.split() == [str(float(TENSORS["w"].sum()))] * 2 + ["False"]


def test_a_view_may_live_until_the_interpreter_ends(model):
    program = """
import atexit, sys, libst
f = libst.open(sys.argv[1], "r+", log=print, progress=print)
w = f["w"]
t = f.transaction()
t.update("b", f["b"])
atexit.register(lambda: print("sum", float(w.sum())))
"""
    done = subprocess.run([sys.executable, "-c", program, str(model)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done
    assert done.stdout.split()[-2:] == ["sum", str(float(TENSORS["w"].sum()))]


def _ends_well(program, path, says):
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, says, ""), done


def test_daemon_threads_are_stopped_before_the_interpreter_ends(model):
    """Python ends them at its exit where they next enter Python: in a callback that would abort the process."""
    program = """
import sys, threading, libst
reading = threading.Event()
def read():
    while True:
        libst.load(sys.argv[1], progress=lambda *_: reading.set())
def wait():
    waiting.update("b", waiting["b"])  # for ever
    print("updated")
waiting = libst.open(sys.argv[1], "r+", lock_timeout=None)
threads = [threading.Thread(target=run, daemon=True) for run in (read, read, wait)]
for thread in threads:
    thread.start()
reading.wait()
while not waiting.stats().lock_waits:
    assert threads[2].is_alive()
"""
    with exclusive(model):
        _ends_well(program, model, "")


def test_daemon_threads_are_stopped_after_a_late_exit_handler_too(tmp_path):
    program = """
import atexit, sys, threading, libst, numpy as np
inside = threading.Event()
def save():
    while True:
        libst.save(sys.argv[1], {"a": np.ones(1 << 20)}, progress=lambda *_: inside.set())
def register():
    threading.main_thread().join()
    atexit.register(print, "late")
threading.Thread(target=save, daemon=True).start()
threading.Thread(target=register).start()
inside.wait()
"""
    _ends_well(program, tmp_path / "m.safetensors", "late\n")


def test_exit_handlers_may_wait_for_what_daemon_threads_save(tmp_path):
    program = """
import atexit, queue, sys, threading
asked = queue.Queue()
def work():
    while True:
        i = asked.get()
        libst.save(f"{sys.argv[1]}/{i}", {"a": np.zeros(10000)})
        print(i)
        asked.task_done()
atexit.register(print, "joined")
atexit.register(asked.join)
import libst, numpy as np
atexit.register(lambda: 1 / 0)
atexit.register(lambda: [asked.put(i) for i in range(3)])
threading.Thread(target=work, daemon=True).start()
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.split() == ["0", "1", "2", "joined"] and not done.returncode, done
    assert done.stderr.count("ZeroDivisionError") == 1
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "2"]
