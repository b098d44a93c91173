"""Look after a file without opening it: `libst.verify` and `libst.recover`."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

from . import _abi
from ._callbacks import LEVELS, Callbacks, Progress
from ._waiting import Waiting
from .errors import (
    DeltaBaseError,
    DeltaError,
    FormatError,
    JournalError,
    NeedsRecoveryError,
    check,
    error,
    known_offset,
    known_status,
)
from .file import Path, c_paths, fs_path


@dataclass(frozen=True)
class Finding:
    """One thing that `verify` or `recover` has to say."""

    level: str  #: "info", "warning" or "error"
    status: int  #: what is wrong, a `Status`; OK if nothing is
    offset: Optional[int]  #: in the file, in bytes; None if it is about no place
    message: str  #: one sentence


def verify(
    path: Path,
    report: Optional[Callable[[Finding], object]] = None,
    *,
    deltas: Sequence[Path] = (),
    progress: Optional[Progress] = None,
) -> list[Finding]:
    """Check a file against every rule of the format, and read all its bytes once.

    Returns what is wrong, so an empty list for a sound file: it does not raise for a bad one. A
    committed journal that waits is such a finding; it is not touched. `report`, if given, is told
    every finding as it is made, also what is only worth a remark (with status OK). What it raises
    ends the check and comes out of it. So with `progress(done_bytes, total_bytes)`. With `deltas`,
    the oldest first, they are checked too, and that they fit the file and each other, to the last byte.

    Raises what kept it from checking: NoFileError, AccessError, NotRegularError, StorageError.
    """
    findings: list[Finding] = []

    def keep(finding: Finding) -> None:
        if finding.status:
            findings.append(finding)
        if report is not None:
            report(finding)

    callbacks = Callbacks(progress=progress, report=lambda raw: keep(_finding(raw)))
    options = _abi.VerifyOptions()
    _abi.st_verify_options_init(options, ctypes.sizeof(options))
    options.report = callbacks.report
    options.progress = callbacks.progress
    options.deltas = layers = c_paths(deltas)
    options.delta_count = len(layers)
    status = callbacks.call(_abi.st_verify_with, fs_path(path), options)
    if status:
        problem = error(status)
        if not isinstance(problem, (FormatError, JournalError, NeedsRecoveryError, DeltaError, DeltaBaseError)):
            raise problem
    return findings


def recover(
    path: Path,
    report: Optional[Callable[[Finding], object]] = None,
    *,
    lock_timeout: Optional[float] = 10.0,
) -> list[Finding]:
    """Finish or drop what crashed writers left beside the file. `libst.open` does the same.

    Uncommitted journals are removed, committed ones are applied and removed. Safe at any time,
    again, and from many processes.

    Returns a finding for each journal, so an empty list if there was none. `report`, if given, is told
    each as it is made. `lock_timeout` is seconds, None for ever.

    Raises NeedsRecoveryError (a journal waits, but the file cannot be written here); JournalError (a
    journal does not fit the file, and was moved aside); BusyError; NoFileError, StorageError.
    """
    waiting = Waiting.of(lock_timeout)
    findings: list[Finding] = []

    def keep(raw: Any) -> None:
        finding = _finding(raw)
        findings.append(finding)
        if report is not None:
            report(finding)

    callbacks = Callbacks(report=keep)
    options = _abi.RecoverOptions()
    _abi.st_recover_options_init(options, ctypes.sizeof(options))
    options.lock_timeout_ms = waiting.turn_ms
    options.report = callbacks.report
    raw_path = fs_path(path)
    check(waiting.run(lambda: callbacks.call(_abi.st_recover_with, raw_path, options)))
    return findings


def _finding(raw: Any) -> Finding:
    return Finding(
        level=LEVELS.get(raw.level, str(raw.level)),
        status=known_status(raw.status),
        offset=known_offset(raw.offset),
        message=(raw.message or b"").decode("utf-8", "replace"),
    )
