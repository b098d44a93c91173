"""Let C call Python: progress, log and report, without losing an exception.

ctypes prints and drops what a callback raises. So a callback that raises is
remembered here, the running call is asked to cancel, and the exception is
raised again when it returns, on the thread that made the call.

So it is with what signal handlers raise. Python runs them on the main thread when that next runs Python code: during a
call that is at the entry of a callback, before its `try`, or after the call.
"""

import sys
import threading
import weakref
from traceback import walk_tb
from typing import Any, Callable, Optional

from . import _abi
from ._arguments import function as checked
from ._daemons import call_elsewhere, must_stop
from .errors import message_text

#: done bytes, total bytes (0: not known). What it returns is ignored; to cancel, raise.
Progress = Callable[[int, int], object]
#: level ("info", "warning"), one sentence.
Log = Callable[[str, str], object]

LEVELS = {
    _abi.ST_LOG_INFO: "info",
    _abi.ST_LOG_WARNING: "warning",
    _abi.ST_LOG_ERROR: "error",
}

#: The code of the functions that C calls, from which exceptions are dropped.
_CALLED: set[Any] = set()


def called_by_c(function: Any) -> None:
    """What is raised at its entry, before its `try`, is not lost."""
    _CALLED.add(function.__code__)


def is_of_callback(error: BaseException) -> bool:
    """Did a user's function raise it, and not the library?"""
    return any(frame.f_code in _CALLED for frame, _ in walk_tb(error.__traceback__))


class _Net(list[Any]):
    """Catches what ctypes would drop. Its `append` is the hook for that: C, so that no handler is run in it."""

    def __init__(self) -> None:
        self.hook = sys.unraisablehook

    def empty(self, raised: dict[int, BaseException], thread: int) -> None:
        """Remember what a callback raised; the rest goes where it would have gone."""
        while self:
            dropped = self.pop(0)
            if dropped.exc_traceback and dropped.exc_traceback.tb_frame.f_code in _CALLED:
                raised.setdefault(thread, dropped.exc_value)
            else:
                self.hook(dropped)


class Callbacks:
    """A user's functions, and their C faces: what is made of each for C to call.

    The faces must live as long as C may call them: see `faces`. They know the functions as long as this object lives:
    a running call holds it, and so does the owner of a handle. Once it is gone nobody is told.
    """

    __slots__ = ("functions", "progress", "log", "report", "raised", "nets", "__weakref__")

    def __init__(
        self,
        progress: Optional[Progress] = None,
        log: Optional[Log] = None,
        report: Optional[Callable[[Any], object]] = None,
    ) -> None:
        #: By thread: what a callback of the call that now runs there raised.
        self.raised: dict[int, BaseException] = {}
        #: The main thread's, while a call runs there.
        self.nets: dict[int, _Net] = {}
        self.functions = checked("progress", progress), checked("log", log), report
        known: weakref.ref[Callbacks] = weakref.ref(self)
        # Always a progress function: it is how an exception of `log`, or of a signal's handler, cancels.
        self.progress = _abi.progress_fn(_progress(known, self.raised, self.nets))
        self.log = _abi.log_fn(_log(known, self.raised)) if log else _abi.log_fn()
        self.report = _abi.report_fn(_report(known, self.raised)) if report else _abi.report_fn()

    @property
    def faces(self) -> tuple[Any, ...]:
        """What a handle borrows. It leads to no function of the user's, which may lead back to the handle's owner:
        that would be a cycle through C, which the collector does not see. Only a source is held for good, as threads of
        libst read it also between calls: see SourceCallbacks."""
        return self.progress, self.log, self.report

    def call(self, function: Callable[..., int], *args: Any) -> int:
        """Call C, answer its status, or raise what a callback or a signal's handler raised meanwhile."""
        raised = self.raised
        thread = threading.get_ident()
        outer = raised.pop(thread, None)  # of a call during which a signal's handler makes this one
        try:
            if thread != threading.main_thread().ident:
                status = call_elsewhere(thread, function, args)
            else:
                status = self._call_on_main_thread(thread, function, args)
        finally:
            del args  # not in the traceback of an error, where a handle would keep the file open
            error = raised.pop(thread, None)
            if outer is not None:
                raised[thread] = outer
        if error is not None:
            try:
                raise error
            finally:
                del error  # it would lead to itself, by this frame, and keep files open until the collector comes
        return status

    def _call_on_main_thread(self, thread: int, function: Callable[..., int], args: tuple[Any, ...]) -> int:
        outer = self.nets.get(thread)  # of a call from whose callback this is made
        net = self.nets[thread] = _Net()
        sys.unraisablehook = net.append
        try:
            return function(*args)
        finally:
            sys.unraisablehook = net.hook
            del args
            if outer is None:
                del self.nets[thread]
            else:
                self.nets[thread] = outer
            if net:
                net.empty(self.raised, thread)


def callbacks_for(progress: Optional[Progress], log: Optional[Log] = None) -> Callbacks:
    """For a call or a file that was given these. Those that were given none share one."""
    return _OF_NOBODY if progress is None and log is None else Callbacks(progress, log)


# The functions below close over `raised` and a weak reference, and not over the Callbacks, which would be a cycle.


def _progress(
    known: weakref.ref[Callbacks], raised: dict[int, BaseException], nets: dict[int, _Net]
) -> Callable[[Any, int, int], int]:
    def on_progress(user: Any, done: int, total: int) -> int:
        thread = threading.get_ident()
        net = nets.get(thread)
        if net:
            net.empty(raised, thread)
        if thread in raised or must_stop(thread):
            return 1
        callbacks = known()
        progress = None if callbacks is None else callbacks.functions[0]
        if progress is not None:
            try:
                progress(done, total)
            except BaseException as error:
                raised[thread] = error
        return int(thread in raised)

    called_by_c(on_progress)
    return on_progress


def _log(known: weakref.ref[Callbacks], raised: dict[int, BaseException]) -> Callable[[Any, int, bytes], None]:
    def on_log(user: Any, level: int, message: bytes) -> None:
        thread = threading.get_ident()
        callbacks = known()
        log = None if callbacks is None else callbacks.functions[1]
        if log is not None and thread not in raised:
            try:
                log(LEVELS.get(level, str(level)), message_text(message or b""))
            except BaseException as error:
                raised[thread] = error

    called_by_c(on_log)
    return on_log


def _report(known: weakref.ref[Callbacks], raised: dict[int, BaseException]) -> Callable[[Any, Any], int]:
    def on_report(user: Any, finding: Any) -> int:
        thread = threading.get_ident()
        callbacks = known()
        report = None if callbacks is None else callbacks.functions[2]
        if report is not None and thread not in raised:
            try:
                report(finding.contents)
            except BaseException as error:
                raised[thread] = error
        return int(thread in raised)

    called_by_c(on_report)
    return on_report


_OF_NOBODY = Callbacks()
