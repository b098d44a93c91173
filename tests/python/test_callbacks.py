"""Progress and log; and what they raise is never lost."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
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
def busy(tmp_path_factory):
    """int busy(progress, n, at, signal): calls progress n times, before the at-th of them comes the signal, and
    with it SIGUSR2 if it is negative; how often, and 100 more if cancelled."""
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler to make it with")
    folder = tmp_path_factory.mktemp("busy")
    source = folder / "busy.c"
    source.write_text(
        "#include <signal.h>\n#include <stdint.h>\n#include <stdlib.h>\n"
        "int busy(int (*progress)(void *, uint64_t, uint64_t), int n, int at, int number) {\n"
        "  for (int i = 1; i <= n; ++i) {\n"
        "    if (i == at) raise(abs(number));\n"
        "    if (i == at && number < 0) raise(SIGUSR2);\n"
        "    if (progress(0, i, n)) return 100 + i;\n"
        "  }\n"
        "  if (at > n) raise(abs(number));\n"
        "  return n;\n}\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(folder / "busy.so")], check=True)
    function = ctypes.CDLL(str(folder / "busy.so")).busy
    function.argtypes = [_abi.progress_fn, ctypes.c_int, ctypes.c_int, ctypes.c_int]
    return function


@pytest.fixture
def handlers():
    """handlers(number, function): a signal's handler, for the length of the test."""
    before = {}

    def install(number, function):
        before[number] = signal.signal(number, function)

    yield install
    for number, handler in before.items():
        signal.signal(number, handler)


def raising(error):
    def handler(number, frame):
        raise error

    return handler


SIGNALS = {
    signal.SIGINT: KeyboardInterrupt(),
    signal.SIGALRM: Stop("too long"),
    signal.SIGTERM: SystemExit(3),
    signal.SIGUSR1: libst.BusyError("by name"),
    signal.SIGRTMIN: ZeroDivisionError(),
}


@pytest.mark.parametrize("progress", [None, lambda done, total: None], ids=["none", "given"])
@pytest.mark.parametrize("number", SIGNALS, ids=str)
@pytest.mark.parametrize("at", [1, 7, 20, 21], ids=["first", "amid", "last", "after the last"])
def test_what_a_handler_raises_cancels_and_comes_out_as_itself(busy, handlers, progress, number, at):
    """The handler runs at the entry of a callback, where ctypes would drop what it raises."""
    handlers(number, raising(SIGNALS[number]))
    statuses = []

    def function(*args):
        statuses.append(busy(*args))
        return statuses[-1]

    callbacks = Callbacks(progress)
    hook = sys.unraisablehook
    with pytest.raises(type(SIGNALS[number])) as caught:
        callbacks.call(function, callbacks.progress, 20, at, number)
    assert caught.value is SIGNALS[number]
    if at < 20:
        assert statuses[0] - 100 in (at, at + 1)
    assert sys.unraisablehook == hook
    assert callbacks.call(busy, callbacks.progress, 2, 0, 0) == 2  # nothing stuck


def test_of_two_handlers_that_raise_one_comes_out(busy, handlers):
    handlers(signal.SIGALRM, raising(Stop("first")))
    handlers(signal.SIGUSR2, raising(Stop("second")))
    callbacks = Callbacks()
    with pytest.raises(Stop):
        callbacks.call(busy, callbacks.progress, 20, 3, -signal.SIGALRM)
    assert callbacks.call(busy, callbacks.progress, 2, 0, 0) == 2


def test_a_call_that_a_handler_makes_leaves_alone_what_the_call_below_is_to_raise(busy):
    """Files that were given no callbacks share one Callbacks."""
    callbacks = Callbacks()
    answers = []

    def function():
        callbacks.raised[threading.get_ident()] = Stop("below")
        answers.append(callbacks.call(busy, callbacks.progress, 2, 0, 0))
        return 0

    with pytest.raises(Stop, match="below"):
        callbacks.call(function)
    assert answers == [2]
    assert callbacks.raised == {}


def test_a_handler_may_set_another(busy, handlers):
    """As who dies of a second Ctrl-C does."""
    mine = raising(Stop())

    def first(number, frame):
        signal.signal(number, mine)

    handlers(signal.SIGINT, first)
    callbacks = Callbacks()
    assert callbacks.call(busy, callbacks.progress, 5, 2, signal.SIGINT) == 5
    assert signal.getsignal(signal.SIGINT) is mine


def test_what_is_dropped_elsewhere_goes_where_it_went(busy, monkeypatch):
    """A failing __del__ during a call is no business of ours."""

    class Failing:
        def __del__(self):
            raise Stop

    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: seen.append(dropped.exc_type))

    def progress(done, total):
        Failing()

    callbacks = Callbacks(progress)
    assert callbacks.call(busy, callbacks.progress, 3, 0, 0) == 3
    assert seen == [Stop] * 3


def test_no_python_runs_when_a_file_is_closed(big):
    """At the entry of a `__del__`, and after each call that it makes, a handler may raise: the file would stay open."""
    f = libst.open(big)
    handles = [f._handle, f._pin().handle]
    f.close()
    ran = []
    sys.setprofile(lambda frame, event, arg: ran.append(event))
    handles.clear()
    sys.setprofile(None)
    assert "call" not in ran  # of a function of Python; c_call: those of C
    assert not is_descriptor_open(big)


WATCHED = {
    "read": lambda f, path: f.read("big"),
    "open and close": lambda f, path: libst.open(path).close(),
    "read_many": lambda f, path: f.read_many(["big"]),
    "load": lambda f, path: libst.load(path),
    "slice": lambda f, path: f.slice("big")[::3],
    "verify": lambda f, path: libst.verify(path),
    "update": lambda f, path: f.update("big", BIG),
    "save": lambda f, path: libst.save(path.with_name("other"), {"big": BIG}),
}


@pytest.mark.parametrize("what", WATCHED.values(), ids=WATCHED)
def test_a_watchdog_ends_any_call(big, handlers, what, monkeypatch):
    """Whenever it barks: each time its exception comes out, once and as itself."""
    barked = caught = lost = 0

    def bark(number, frame):
        nonlocal barked
        barked += 1
        raise Stop

    def ignored(what):
        nonlocal lost
        if what.exc_type is Stop and getattr(what.object, "__module__", None) == "_weakrefset":
            lost += 1  # Python drops what is raised in a callback of its own WeakSet
        else:
            told(what)

    told = sys.unraisablehook
    monkeypatch.setattr(sys, "unraisablehook", ignored)
    handlers(signal.SIGALRM, bark)
    with libst.open(big, "r+") as f:
        for i in range(15):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.0013 * i, 5)  # again, should the first be lost
                while True:
                    what(f, big)
            except Stop:
                caught += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert barked - lost == caught == i + 1
    assert libst.verify(big) == []
    assert crash.journals(big) == []


def test_sigterm_from_a_thread_ends_the_program(big):
    """The handler's SystemExit is the program's end, its status the program's."""
    code = """
import os, signal, sys, threading, libst
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
with libst.open(sys.argv[1]) as f:
    def kill():
        while not f.stats().bytes_read:
            pass
        os.kill(os.getpid(), signal.SIGTERM)
    threading.Thread(target=kill, daemon=True).start()
    while True:
        f.read("big")
"""
    done = subprocess.run([sys.executable, "-c", code, str(big)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (7, "")


def test_a_handler_that_does_not_raise_does_not_cancel(busy, handlers):
    seen = []
    handlers(signal.SIGINT, lambda *_: seen.append(1))
    callbacks = Callbacks()
    assert callbacks.call(busy, callbacks.progress, 5, 2, signal.SIGINT) == 5
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
