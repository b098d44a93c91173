"""Let C call Python: progress, log and report, without losing an exception.

ctypes prints and drops what a callback raises. So a callback that raises is
remembered here, the running call is asked to cancel, and the exception is
raised again when it returns, on the thread that made the call.
"""

import threading
from signal import SIGINT
from typing import Any, Callable, Optional

try:  # those that `signal` wraps, to look each handler up among the members of an enum: a tenth of opening a small file
    from _signal import getsignal, signal  # type: ignore[import-not-found]
except ImportError:
    from signal import getsignal, signal

from . import _abi

#: done bytes, total bytes (0: not known). What it returns is ignored; to cancel, raise.
Progress = Callable[[int, int], object]
#: level ("info", "warning"), one sentence.
Log = Callable[[str, str], object]

LEVELS = {
    _abi.ST_LOG_INFO: "info",
    _abi.ST_LOG_WARNING: "warning",
    _abi.ST_REPORT_ERROR: "error",
}


class Callbacks:
    """The C faces of a user's functions. Must live as long as C may call them."""

    __slots__ = ("progress", "log", "report", "raised")

    def __init__(
        self,
        progress: Optional[Progress] = None,
        log: Optional[Log] = None,
        report: Optional[Callable[[Any], object]] = None,
    ) -> None:
        #: By thread: what a callback of the call that now runs there raised.
        self.raised: dict[int, BaseException] = {}
        # Always a progress function: it is how an exception of `log`, or Ctrl-C, cancels.
        self.progress = _abi.progress_fn(_progress(progress, self.raised))
        self.log = _abi.log_fn(_log(log, self.raised)) if log else _abi.log_fn()
        self.report = _abi.report_fn(_report(report, self.raised)) if report else _abi.report_fn()

    def call(self, function: Callable[..., int], *args: Any) -> int:
        """Call C, answer its status, or raise what a callback raised meanwhile.

        Python runs signal handlers when it next runs Python code: during a call,
        that is at the entry of a callback, before its `try`. What they raise
        there (KeyboardInterrupt) would be lost, so for the length of the call
        the handler's exception is remembered like a callback's.
        """
        raised = self.raised
        thread = threading.get_ident()
        if thread != threading.main_thread().ident:
            status = function(*args)
        else:
            handler = getsignal(SIGINT)
            if callable(handler):
                signal(SIGINT, _remember(handler, raised, thread))
                try:
                    status = function(*args)
                finally:
                    signal(SIGINT, handler)
            else:
                status = function(*args)
        del args  # not in the traceback of an error, where a handle would keep the file open
        error = raised.pop(thread, None)
        if error is not None:
            raise error
        return status


# The functions below close over `raised` and not over the Callbacks, which
# would be a cycle.


def _remember(handler: Any, raised: dict[int, BaseException], thread: int) -> Any:
    def on_signal(number: int, frame: Any) -> None:
        try:
            handler(number, frame)
        except BaseException as error:
            raised.setdefault(thread, error)

    return on_signal


def _progress(progress: Optional[Progress], raised: dict[int, BaseException]) -> Any:
    def on_progress(user: Any, done: int, total: int) -> int:
        thread = threading.get_ident()
        if thread in raised:
            return 1
        if progress is not None:
            try:
                progress(done, total)
            except BaseException as error:
                raised[thread] = error
        return int(thread in raised)

    return on_progress


def _log(log: Log, raised: dict[int, BaseException]) -> Any:
    def on_log(user: Any, level: int, message: bytes) -> None:
        thread = threading.get_ident()
        if thread not in raised:
            try:
                log(LEVELS.get(level, str(level)), (message or b"").decode("utf-8", "replace"))
            except BaseException as error:
                raised[thread] = error

    return on_log


def _report(report: Callable[[Any], object], raised: dict[int, BaseException]) -> Any:
    def on_report(user: Any, finding: Any) -> int:
        thread = threading.get_ident()
        if thread not in raised:
            try:
                report(finding.contents)
            except BaseException as error:
                raised[thread] = error
        return int(thread in raised)

    return on_report
