"""Stop the calls of daemon threads before the interpreter ends.

At its exit Python before 3.14 ends a daemon thread where the thread next enters Python. In a callback that is amid
frames of C++, which nobody may end so: the process would abort.

They are stopped when all exit handlers have run, which may wait for what such threads save.
"""

import atexit
import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Callable

_exit: Any = atexit  # and what it has without telling
_threads: Any = threading
_handlers = 0  # how many there were when ours was registered

_PATIENCE = 5.0  # seconds at exit: what a callback of the user's waits for may never come

_ends = False
_is_late = False  # a handler was registered when the main thread had ended
_inside: set[int] = set()  # threads that are in a call; the main one never
_left = threading.Event()  # one of them has ended its call


def call_elsewhere(thread: int, function: Callable[..., int], args: tuple[Any, ...]) -> int:
    """Make a call on another thread than the main one. Raises SystemExit, which ends the thread without a word, where
    the exit came first, or stopped the call."""
    if thread in _inside:  # this is made from a callback
        return function(*args)
    _inside.add(thread)
    status = -1
    try:
        if not must_stop(thread):
            status = function(*args)
        if status and must_stop(thread):
            raise SystemExit
        return status
    finally:
        del args  # not in the traceback of an error, where a handle would keep the file open
        _inside.discard(thread)
        if _ends:
            _left.set()


def must_stop(thread: int) -> bool:
    """Whether the call that runs in this thread is one of a daemon's, and the interpreter ends."""
    return _ends and thread in _inside and threading.current_thread().daemon


def _stop_all() -> None:
    global _ends
    _ends = True
    end = time.monotonic() + _PATIENCE
    while True:
        _left.clear()
        patience = end - time.monotonic()
        if not _inside or patience <= 0:
            return
        _left.wait(patience)


def _register() -> None:
    """Called when the main thread has ended, before the exit handlers, of which the last to be registered is the first
    to run."""
    global _handlers
    atexit.register(_end)
    _handlers = _exit._ncallbacks()


def _end() -> None:
    global _is_late
    if _exit._ncallbacks() != _handlers:
        _is_late = True  # and has run: it would run twice
        return
    atexit.unregister(_end)
    with suppress(BaseException):  # told already
        _exit._run_exitfuncs()
    _stop_all()


def _stop_late() -> None:
    """Runs after all handlers that were registered since libst was imported."""
    if _is_late:
        _stop_all()


def _begin_anew() -> None:
    global _inside, _left
    _inside, _left = set(), threading.Event()


if sys.version_info < (3, 14):
    with suppress(AttributeError, RuntimeError):  # another Python; the main thread has ended
        _threads._register_atexit(_register)
        atexit.register(_stop_late)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)  # the threads of the parent are not in the child
