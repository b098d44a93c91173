"""Changing a tensor, and several at once."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import types

import crash
import libst
import numpy as np
import pytest
from conftest import TENSORS, at_once, refused
from libst._waiting import timeout_ms
from locks import exclusive, until_it_waits
from safetensors import safe_open
from safetensors.numpy import load_file, save_file


def check_only_changed(path, changed):
    """The stock reader sees these new values, and all others as they were."""
    seen = load_file(path)
    assert set(seen) == set(TENSORS)
    for name, array in seen.items():
        assert np.array_equal(array, changed.get(name, TENSORS[name])), name
    assert crash.journals(path) == []


# ------------------------------------------------------------------- update


def test_update_is_seen_by_stock(model):
    inode = model.stat().st_ino
    with libst.open(model, "r+") as f:
        f.update("w", TENSORS["w"] * 2)
        assert np.array_equal(f["w"], TENSORS["w"] * 2)
    check_only_changed(model, {"w": TENSORS["w"] * 2})
    assert model.stat().st_ino == inode


def test_update_shows_through_shared_views(model):
    with libst.open(model, "r+", mapping="shared") as f, libst.open(model, mapping="shared") as other:
        mine, theirs = f["b"], other["b"]
        f.update("b", TENSORS["b"] + 1)
        assert np.array_equal(mine, TENSORS["b"] + 1)
        assert np.array_equal(theirs, TENSORS["b"] + 1)


@pytest.mark.parametrize("kind", ["shared", "private", "none"])
def test_a_new_view_shows_the_new_value(model, kind):
    with libst.open(model, "r+", mapping=kind) as f:
        old = f["b"]
        assert np.array_equal(old, TENSORS["b"])
        f.update("b", TENSORS["b"] + 1)
        assert np.array_equal(f.read("b"), TENSORS["b"] + 1)
        assert np.array_equal(f["b"], TENSORS["b"] + 1)
        del old  # which would keep the file
    check_only_changed(model, {"b": TENSORS["b"] + 1})


def test_scalars_and_empty_tensors(model):
    with libst.open(model, "r+") as f:
        f.update("scalar", np.array(-1.5))
        f.update("scalar", np.float64(-7.5))
        f.update("empty", np.empty((0, 3), np.float16))
    check_only_changed(model, {"scalar": np.array(-7.5)})


def test_a_module_that_another_thread_imports_has_no_classes_yet(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    with libst.open(model, "r+") as f:
        f.update("b", np.arange(5))
    check_only_changed(model, {"b": np.arange(5)})


def test_arrays_that_are_not_contiguous(model):
    new = np.arange(100, 148, dtype=np.float32).reshape(4, 3, 4)[::2].swapaxes(1, 2).copy(order="F").swapaxes(1, 2)
    assert new.shape == (2, 3, 4) and not new.flags.c_contiguous
    with libst.open(model, "r+") as f:
        f.update("w", new)
        with f.transaction(copy=False) as t:
            t.update("b", np.arange(10)[::2])
    check_only_changed(model, {"w": new, "b": np.arange(10)[::2]})


def test_a_tensor_may_be_made_from_the_files_own_views(model):
    with libst.open(model, "r+") as f:
        f.update("b", f["b"][::-1])
        f.update("w", f["w"])
    check_only_changed(model, {"b": TENSORS["b"][::-1]})


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("mapping", ["shared", "private", "none"])
def test_tensors_are_swapped_by_their_views(tmp_path, mapping, copy):
    path = tmp_path / "model.safetensors"
    a, b = np.arange(75_000, dtype=np.float32), np.arange(75_000, dtype=np.float32)[::-1].copy()
    save_file({"a": a, "b": b}, path)
    with libst.open(path, "r+", mapping=mapping) as f:
        x, y = f["a"], f["b"]
        with f.transaction(copy=copy) as t:
            t.update("a", y)
            t.update("b", x)
        assert np.array_equal(f.read("a"), b) and np.array_equal(f.read("b"), a)
        with safe_open(path, framework="np") as stock, f.transaction(copy=copy) as t:
            t.update("a", stock.get_tensor("b"))
            t.update("b", stock.get_tensor("a"))
        del x, y
    seen = load_file(path)
    assert np.array_equal(seen["a"], a) and np.array_equal(seen["b"], b)


@pytest.mark.parametrize("swapped", [">i8", ">f8"])
def test_big_endian_is_refused(model, swapped):
    before = model.read_bytes()
    with libst.open(model, "r+") as f:
        with refused("DTYPE_MISMATCH", match="big-endian"):
            f.update("b", TENSORS["b"].astype(swapped))
    assert model.read_bytes() == before


REFUSED = {
    "dtype": ("w", TENSORS["w"].astype(np.float64), libst.Error, TypeError, "DTYPE_MISMATCH"),
    "same size": ("w", TENSORS["w"].view(np.int32), libst.Error, TypeError, "DTYPE_MISMATCH"),
    "no dtype": ("w", np.array(["text"]), libst.Error, TypeError, "DTYPE_MISMATCH"),
    "shape": ("w", TENSORS["w"].reshape(4, 3, 2), libst.Error, ValueError, "SHAPE_MISMATCH"),
    "rank": ("w", TENSORS["w"].reshape(-1), libst.Error, ValueError, "SHAPE_MISMATCH"),
    "size": ("b", np.arange(6), libst.Error, ValueError, "SHAPE_MISMATCH"),
    "scalar": ("scalar", np.array([2.5]), libst.Error, ValueError, "SHAPE_MISMATCH"),
    "name": ("nope", TENSORS["b"], libst.NotFoundError, KeyError, "NOT_FOUND"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused(model, what):
    name, array, kind, natural, status = REFUSED[what]
    before = model.read_bytes()
    with libst.open(model, "r+") as f:
        with pytest.raises(kind) as caught:
            f.update(name, array)
        assert isinstance(caught.value, natural)
        assert caught.value.status == libst.Status[status]
        assert len(str(caught.value)) > 10
    assert model.read_bytes() == before
    assert crash.journals(model) == []


def test_a_file_opened_for_reading_is_not_changed(model):
    before = model.read_bytes()
    with libst.open(model) as f:
        with refused("READ_ONLY") as caught:
            f.update("b", TENSORS["b"] * 2)
        assert isinstance(caught.value, (OSError, ValueError))
        with refused("READ_ONLY"):
            f.transaction()
    assert model.read_bytes() == before


def test_stats_count_commits(model):
    with libst.open(model, "r+") as f:
        assert f.stats().commits == 0
        f.update("b", TENSORS["b"] * 2)
        stats = f.stats()
    assert stats.commits == 1
    assert stats.bytes_written == TENSORS["b"].nbytes
    assert stats.journal_bytes >= TENSORS["b"].nbytes


# ------------------------------------------------------------- transactions


def test_a_transaction_commits_at_the_end_of_its_block(model):
    with libst.open(model, "r+") as f:
        with f.transaction() as t:
            t.update("w", TENSORS["w"] + 1)
            t.update("b", TENSORS["b"] + 1)
            assert np.array_equal(f.read("w"), TENSORS["w"])  # not yet
        assert np.array_equal(f.read("w"), TENSORS["w"] + 1)
        assert f.stats().commits == 1
    check_only_changed(model, {"w": TENSORS["w"] + 1, "b": TENSORS["b"] + 1})


def test_an_exception_aborts_it(model):
    with libst.open(model, "r+") as f:
        with pytest.raises(ZeroDivisionError):
            with f.transaction() as t:
                t.update("w", TENSORS["w"] + 1)
                raise ZeroDivisionError
        with pytest.raises(libst.ClosedError, match="finished"):
            t.update("w", TENSORS["w"])
        assert f.stats().commits == 0
    check_only_changed(model, {})


def test_the_last_value_of_a_name_counts(model):
    with libst.open(model, "r+") as f, f.transaction() as t:
        t.update("b", TENSORS["b"] * 2)
        t.update("b", TENSORS["b"] * 3)
    check_only_changed(model, {"b": TENSORS["b"] * 3})


def test_explicit_commit_and_abort(model):
    with libst.open(model, "r+") as f:
        with f.transaction() as t:
            t.update("b", TENSORS["b"] * 2)
            t.commit()
            assert np.array_equal(f.read("b"), TENSORS["b"] * 2)
        with f.transaction() as t:
            t.update("b", TENSORS["b"] * 3)
            t.abort()
            t.abort()
            with pytest.raises(libst.ClosedError):
                t.commit()
        with pytest.raises(libst.ClosedError), t:
            pass
    check_only_changed(model, {"b": TENSORS["b"] * 2})


def test_a_misfit_leaves_the_transaction_as_it_was(model):
    with libst.open(model, "r+") as f, f.transaction() as t:
        t.update("b", TENSORS["b"] * 2)
        for name, array, kind, _, _ in REFUSED.values():
            with pytest.raises(kind):
                t.update(name, array)
    check_only_changed(model, {"b": TENSORS["b"] * 2})


def test_an_array_may_change_after_it_was_staged(model):
    with libst.open(model, "r+") as f, f.transaction() as t:
        buffer = TENSORS["b"] * 2
        t.update("b", buffer)
        buffer[:] = 99
    check_only_changed(model, {"b": TENSORS["b"] * 2})


def test_an_array_may_be_dropped_after_it_was_staged(model):
    with libst.open(model, "r+") as f, f.transaction(copy=False) as t:
        for i in range(3):
            t.update("w", TENSORS["w"] + i)
            t.update("b", TENSORS["b"] + i)
            np.full((2, 3, 4), 77, np.float32), np.full(5, 77)  # where the dropped ones may have lain
    check_only_changed(model, {"w": TENSORS["w"] + 2, "b": TENSORS["b"] + 2})


def test_an_empty_transaction_changes_nothing(model):
    before = model.read_bytes()
    with libst.open(model, "r+") as f, f.transaction():
        pass
    assert model.read_bytes() == before


def test_a_dropped_transaction_is_aborted(model):
    with libst.open(model, "r+") as f:
        t = f.transaction()
        t.update("b", TENSORS["b"] * 2)
        del t
        with libst.open(model, "r+") as other:
            other.update("scalar", TENSORS["scalar"])  # which no lock of `t` hinders
    check_only_changed(model, {})


def test_closing_the_file_inside_the_block_is_told(model):
    with pytest.raises(libst.ClosedError, match="aborted"):
        with libst.open(model, "r+") as f, f.transaction() as t:
            t.update("b", TENSORS["b"] * 2)
            f.close()
    check_only_changed(model, {})


def test_two_transactions_on_one_file(model):
    with libst.open(model, "r+") as f:
        a, b = f.transaction(), f.transaction()
        a.update("w", TENSORS["w"] + 1)
        b.update("b", TENSORS["b"] + 1)
        b.commit()
        a.commit()
    check_only_changed(model, {"w": TENSORS["w"] + 1, "b": TENSORS["b"] + 1})


def test_threads_that_share_a_file_lose_no_update(raw):
    count, rounds = 4, 15
    path = raw([(f"t{i}", "I64", [64], bytes(512)) for i in range(count)])
    with libst.open(path, "r+", lock_timeout=None) as f:

        def work(i):
            for n in range(1, rounds + 1):
                f.update(f"t{i}", np.full(64, n))
                assert (f.read(f"t{i}") == n).all()

        at_once(work, *range(count))
        assert f.stats().commits == count * rounds
    assert all((array == rounds).all() for array in load_file(path).values())


# -------------------------------------------------------------------- locks


def test_busy_after_the_timeout(model):
    with exclusive(model), libst.open(model, "r+", lock_timeout=0.5) as f:
        begin = time.monotonic()
        with pytest.raises(libst.BusyError) as caught:
            f.update("b", TENSORS["b"] * 2)
        assert 0.4 < time.monotonic() - begin < 60
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.status == libst.Status.BUSY
    check_only_changed(model, {})


@pytest.mark.parametrize(
    "seconds, milliseconds",
    [(0, -2), (0.0, -2), (1e-9, 1), (0.0004, 1), (1.5, 1500), (10, 10_000), (2**31 / 1000, -1), (1e18, -1)],
)
def test_a_timeout_is_given_to_c_in_milliseconds(seconds, milliseconds):
    assert timeout_ms(seconds) == milliseconds  # of 0 and of for ever st.h has its own numbers


def test_no_timeout_is_for_ever():
    assert timeout_ms(None) == timeout_ms(float("inf")) == -1


def test_a_timeout_of_zero_does_not_wait(model):
    with exclusive(model), libst.open(model, "r+") as f:
        begin = time.monotonic()
        with pytest.raises(libst.BusyError), f.transaction(lock_timeout=0) as t:
            t.update("b", TENSORS["b"] * 2)
        assert time.monotonic() - begin < 5
    check_only_changed(model, {})


@pytest.mark.parametrize("timeout", [60, None])
def test_an_update_waits_for_the_lock(model, timeout):
    seen, over = [], threading.Event()
    with libst.open(model, "r+", lock_timeout=timeout) as f, contextlib.ExitStack() as held:
        held.enter_context(exclusive(model))

        def release():
            while f.stats().lock_waits == 0 and not over.wait(0.001):
                pass
            with held:
                seen.append(load_file(model)["b"])

        thread = threading.Thread(target=release)
        thread.start()
        try:
            f.update("b", TENSORS["b"] * 2)
        finally:
            over.set()
            thread.join()
        assert f.stats().lock_waits > 0
    assert np.array_equal(seen[0], TENSORS["b"])
    check_only_changed(model, {"b": TENSORS["b"] * 2})


def test_a_busy_transaction_may_be_committed_again(model):
    with libst.open(model, "r+", lock_timeout=0) as f:
        t = f.transaction()
        t.update("b", TENSORS["b"] * 2)
        with exclusive(model):
            with pytest.raises(libst.BusyError):
                t.commit()
        t.commit()
    check_only_changed(model, {"b": TENSORS["b"] * 2})


def test_the_holder_of_a_lock_is_named(model):
    """The process, where the system tells it, and the tensor."""
    with exclusive(model), libst.open(model, "r+", lock_timeout=0) as f:
        with pytest.raises(libst.BusyError) as caught:
            f.update("b", TENSORS["b"] * 2)
        assert caught.value.holder_pid in (0, os.getpid())
        assert caught.value.tensor in (None, "b")


# What waits for a lock on `path`, with f open for writing.
WAITS = {
    "update": "f.update('b', zeros)",
    "publish": "with f.transaction(publish=True) as t: t.update('b', zeros)",
    "save": "libst.save(path, {'b': zeros})",
    "writer": "with libst.writer(path) as w: w.add('b', zeros)",
    "compact": "libst.compact(path, lock_timeout=None)",
    "join": "libst.join(path + '.other', path, lock_timeout=None)",
    "diff": "libst.diff(path + '.other', path + '.other', path, lock_timeout=None)",
    "merge": "libst.merge(path + '.other', [], path, lock_timeout=None)",
    "patch": "libst.patch(path + '.other', path + '.delta', reverse=path, lock_timeout=None)",
}
WAITING = """
import functools, sys, numpy as np, libst
path, zeros = sys.argv[1], np.zeros(5, np.int64)
libst.save = functools.partial(libst.save, lock_timeout=None)
libst.writer = functools.partial(libst.writer, lock_timeout=None)
with libst.open(path, "r+", lock_timeout=None) as f:
    print("waiting", flush=True)
    try:
        {}
    except KeyboardInterrupt:
        print("interrupted")
"""


def interrupted(program, *arguments):
    """What a program prints that says when it waits, and then gets Ctrl-C."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "waiting\n"
    try:
        until_it_waits(child)
        child.send_signal(2)
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 0
    return out


@pytest.mark.parametrize("what", WAITS.values(), ids=WAITS)
def test_control_c_ends_a_wait_for_ever(model, what):
    shutil.copyfile(model, f"{model}.other")
    make_delta(model)
    with exclusive(model):
        assert interrupted(WAITING.format(what), model) == "interrupted\n"
    check_only_changed(model, {})


def make_delta(model):
    """Beside it: of its tensor b."""
    libst.save(f"{model}.changed", {**TENSORS, "b": TENSORS["b"] * 3})
    libst.diff(model, f"{model}.changed", f"{model}.delta")


# What recovers `path` first.
RECOVERS = {
    "recover": "libst.recover(path, lock_timeout=None)",
    "open": "libst.open(path, lock_timeout=None)",
    "open for writing": "libst.open(path, 'r+', lock_timeout=None)",
    "compact": "libst.compact(path, lock_timeout=None)",
    "reshard": "libst.reshard(path, path + '.shards', 1, lock_timeout=None)",
    "join": "libst.join(path, path + '.joined', lock_timeout=None)",
    "diff": "libst.diff(path, path + '.changed', path + '.delta', lock_timeout=None)",
    "merge": "libst.merge(path, [path + '.delta'], path + '.merged', lock_timeout=None)",
    "patch": "libst.patch(path, path + '.delta', lock_timeout=None)",
}
RECOVERING = """
import sys, libst
path = sys.argv[1]
print("waiting", flush=True)
try:
    {}
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("what", RECOVERS.values(), ids=RECOVERS)
def test_control_c_ends_a_wait_to_recover(model, what):
    make_delta(model)
    crash.after_commit(model, "b", TENSORS["b"] * 2)
    with exclusive(model):
        assert interrupted(RECOVERING.format(what), model) == "interrupted\n"
    libst.open(model).close()  # whoever comes next finishes it
    check_only_changed(model, {"b": TENSORS["b"] * 2})


def test_control_c_ends_a_commit_on_shards_that_waits(model, tmp_path):
    libst.reshard(model, tmp_path / "sharded", 1)
    with exclusive(tmp_path / "sharded" / "model.safetensors.index.json"):
        program = WAITING.format("with f.transaction() as t: t.delete('b')")
        assert interrupted(program, tmp_path / "sharded") == "interrupted\n"
    with libst.open(tmp_path / "sharded") as f:
        assert f["b"].tolist() == TENSORS["b"].tolist()


def test_interrupt_ends_a_wait(model):
    with exclusive(model), libst.open(model, "r+", lock_timeout=None) as f:
        stop = threading.Event()

        def interrupt():  # again and again: it ends calls that run, not those to come
            while not stop.wait(0.05):
                f.interrupt()

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            with refused("INTERRUPTED") as caught:
                f.update("b", TENSORS["b"] * 2)
        finally:
            stop.set()
            thread.join()
        assert caught.value.status == libst.Status.INTERRUPTED
    check_only_changed(model, {})


# ------------------------------------------------------ durable by the journal


def test_a_commit_to_the_journal_is_seen_at_once_and_synced_later(model):
    with libst.open(model, "r+") as f:
        with f.transaction(journal_only=True) as t:
            t.update("b", TENSORS["b"] * 2)
        assert np.array_equal(load_file(model)["b"], TENSORS["b"] * 2)
        with libst.open(model) as reader:
            assert np.array_equal(reader["b"], TENSORS["b"] * 2)
        f.sync()
        f.sync()
        with f.transaction(journal_only=True) as t:
            t.update("b", TENSORS["b"] * 3)
        f.update("b", TENSORS["b"] * 4)
    check_only_changed(model, {"b": TENSORS["b"] * 4})


KILLED = """
import os, signal, sys
import libst
with libst.open(sys.argv[1], "r+") as f:
    with f.transaction(journal_only=True) as t:
        t.update("b", f["b"] * 2)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_committed_to_the_journal_outlives_its_process(model):
    done = subprocess.run([sys.executable, "-c", KILLED, str(model)])
    assert done.returncode == -signal.SIGKILL
    libst.open(model).close()
    check_only_changed(model, {"b": TENSORS["b"] * 2})


def test_a_sync_waits_for_who_holds_the_file(model):
    with libst.open(model, "r+", lock_timeout=0) as f:
        with f.transaction(journal_only=True) as t:
            t.update("b", TENSORS["b"] * 2)
        storage = subprocess.run(["stat", "-f", "-c", "%T", model], capture_output=True, text=True).stdout.strip()
        flag_counts = storage in ("ext2/ext3", "xfs")  # and perhaps on others
        with exclusive(model), pytest.raises(libst.BusyError) if flag_counts else contextlib.suppress(libst.BusyError):
            f.sync()
        f.sync()
    check_only_changed(model, {"b": TENSORS["b"] * 2})
