"""Progress and log; and what they raise is never lost."""

import ctypes
import os
import signal
import subprocess
import threading

import crash
import libst
import numpy as np
import pytest
from conftest import is_descriptor_open
from libst import _abi
from libst._callbacks import Callbacks
from safetensors.numpy import load_file, save_file

BIG = np.arange(16 << 20, dtype=np.uint8)  # bytes: long enough to tell of progress


class Stop(Exception):
    pass


@pytest.fixture
def big(tmp_path):
    path = tmp_path / "big.safetensors"
    save_file({"big": BIG}, path)
    return path


def test_progress_is_told_of_reads(big):
    calls = []
    with libst.open(big, progress=lambda done, total: calls.append((done, total))) as f:
        assert np.array_equal(f.read("big"), BIG)
    assert calls
    assert all(done <= BIG.nbytes for done, _ in calls)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert {total for _, total in calls} == {BIG.nbytes}


def test_what_progress_returns_is_ignored(big):
    with libst.open(big, progress=lambda done, total: True) as f:
        assert np.array_equal(f.read("big"), BIG)


def test_raising_in_progress_cancels_a_read(big):
    calls = []

    def progress(done, total):
        calls.append(done)
        raise Stop(done)

    with libst.open(big, progress=progress) as f:
        with pytest.raises(Stop):
            f.read("big")
        assert len(calls) == 1  # it was not called again
        with pytest.raises(Stop):
            f.slice("big")[1:]
        assert np.array_equal(f["big"], BIG)  # and the file is as usable as before


@pytest.mark.parametrize("of", ["file", "transaction"])
def test_raising_in_progress_cancels_a_change(big, of):
    before = big.read_bytes()

    def progress(done, total):
        raise Stop

    with libst.open(big, "r+", progress=progress if of == "file" else None) as f:
        with pytest.raises(Stop):
            with f.transaction(progress=progress if of == "transaction" else None) as t:
                t.update("big", BIG[::-1])
    assert big.read_bytes() == before
    assert crash.journals(big) == []


def test_raising_late_in_a_commit_is_not_lost(big):
    """At every call in turn: the exception comes out, and the file has the old bytes or the new."""
    calls = raised = 0
    for limit in range(1, 200):
        count = 0

        def progress(done, total, limit=limit):
            nonlocal count
            count += 1
            if count == limit:
                raise Stop

        with libst.open(big, "r+") as f:
            new = np.roll(f.read("big"), 1)
            old = f.read("big")
            try:
                with f.transaction(progress=progress) as t:
                    t.update("big", new)
            except Stop:
                raised += 1
        calls = max(calls, count)
        seen = load_file(big)["big"]
        if count < limit:
            assert np.array_equal(seen, new)
            break
        assert np.array_equal(seen, old) or np.array_equal(seen, new)
        if limit > 6:
            break
    assert calls > 0 and raised > 0


def test_progress_runs_on_the_callers_thread(big):
    threads = set()
    with libst.open(big, progress=lambda done, total: threads.add(threading.get_ident())) as f:
        worker = threading.Thread(target=lambda: f.read("big"))
        worker.start()
        worker.join()
        assert threads == {worker.ident}


def test_an_exception_goes_to_the_thread_whose_call_it_was(big):
    def progress(done, total):
        if threading.current_thread() is not threading.main_thread():
            raise Stop

    caught = []
    with libst.open(big, progress=progress) as f:

        def work():
            try:
                f.read("big")
            except Stop as error:
                caught.append(error)

        workers = [threading.Thread(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        for _ in range(3):
            assert np.array_equal(f.read("big"), BIG)
        for worker in workers:
            worker.join()
    assert len(caught) == 3


def test_log_tells_of_a_recovery(big):
    crash.after_commit(big, "big", BIG[::-1])
    lines = []
    with libst.open(big, log=lambda level, sentence: lines.append((level, sentence))) as f:
        assert np.array_equal(f["big"], BIG[::-1])
    assert [level for level, _ in lines] == ["info"]
    assert "journal" in lines[0][1]


def test_raising_in_log_comes_out_of_open(big):
    crash.after_commit(big, "big", BIG[::-1])

    def log(level, sentence):
        raise Stop(sentence)

    with pytest.raises(Stop, match="journal"):
        libst.open(big, "r+", log=log)
    assert not is_descriptor_open(big)
    assert np.array_equal(load_file(big)["big"], BIG[::-1])  # it was done all the same


def test_control_c_in_a_callback_cancels(big):
    calls = []

    def progress(done, total):
        calls.append(done)
        os.kill(os.getpid(), signal.SIGINT)

    with libst.open(big, progress=progress) as f:
        with pytest.raises(KeyboardInterrupt):
            f.read("big")
        assert len(calls) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# ---------------------------------------- against C that does as it is told here


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """int slow(progress, n): calls progress n times, 50 ms apart; how often, and 100 more if cancelled."""
    folder = tmp_path_factory.mktemp("slow")
    source = folder / "slow.c"
    source.write_text(
        "#include <stdint.h>\n#include <unistd.h>\n"
        "int slow(int (*progress)(void *, uint64_t, uint64_t), int n) {\n"
        "  for (int i = 1; i <= n; ++i) { usleep(50000); if (progress(0, i, n)) return 100 + i; }\n"
        "  return n;\n}\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(folder / "slow.so")], check=True)
    function = ctypes.CDLL(str(folder / "slow.so")).slow
    function.argtypes = [_abi.progress_fn, ctypes.c_int]
    return function


def interrupt_soon():
    timer = threading.Timer(0.12, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


@pytest.mark.parametrize("progress", [None, lambda done, total: None], ids=["none", "given"])
def test_control_c_during_c_code_cancels_and_is_not_lost(slow, progress):
    """The handler runs at the entry of a callback, where ctypes would drop what it raises."""
    statuses = []

    def function(*args):
        statuses.append(slow(*args))
        return statuses[-1]

    callbacks = Callbacks(progress)
    timer = interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        callbacks.call(function, callbacks.progress, 20)
    timer.join()
    assert 100 < statuses[0] < 110
    assert callbacks.call(slow, callbacks.progress, 2) == 2  # nothing stuck


def test_a_handler_that_does_not_raise_does_not_cancel(slow):
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        callbacks = Callbacks()
        timer = interrupt_soon()
        assert callbacks.call(slow, callbacks.progress, 5) == 5
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [1]


def test_raising_in_progress_cancels_at_once():
    def progress(done, total):
        raise Stop

    callbacks = Callbacks(progress)
    answers = []
    with pytest.raises(Stop):
        callbacks.call(lambda: answers.append(callbacks.progress(None, 0, 0)) or 0)
    assert answers == [1]


def test_raising_in_log_cancels_at_the_next_progress():
    def log(level, sentence):
        raise Stop(level, sentence)

    callbacks = Callbacks(log=log)
    answers = []

    def function():
        answers.append(callbacks.progress(None, 0, 0))
        callbacks.log(None, 2, b"caf\xc3\xa9")
        answers.append(callbacks.progress(None, 0, 0))
        return 0

    with pytest.raises(Stop) as caught:
        callbacks.call(function)
    assert caught.value.args == ("warning", "café")
    assert answers == [0, 1]
