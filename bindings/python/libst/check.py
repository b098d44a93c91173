"""Look after a file without opening it: `libst.verify` and `libst.recover`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

from . import _abi
from ._arguments import function
from ._callbacks import LEVELS, Callbacks, Progress
from ._sized import sized
from ._waiting import timeout_ms
from .errors import (
    DeltaError,
    FormatError,
    NeedsRecoveryError,
    check,
    error,
    known_offset,
    known_status,
    message_text,
)
from .file import Path, c_paths, fs_path
from .status import Status


@dataclass(frozen=True)
class Finding:
    """One thing that `verify` or `recover` has to say.

    level: "error": a rule of the format is broken, or a change may wait that `recover` may not finish;
        "warning": sound, but worth a look;
        "info": what was found or done.
    status: what is wrong, a `Status`; OK if nothing is.
    offset: in the file, in bytes; None if it is about no place.
    message: one sentence.
    """

    level: str
    status: int
    offset: Optional[int]
    message: str


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

    Raises what kept it from checking: StorageError (FileNotFoundError, PermissionError).
    """
    report = function("report", report)
    findings: list[Finding] = []

    def keep(finding: Finding) -> None:
        if finding.status:
            findings.append(finding)
        if report is not None:
            report(finding)

    callbacks = Callbacks(progress=progress, report=lambda raw: keep(_finding(raw)))
    layers = c_paths(deltas)
    options = sized(
        _abi.VerifyOptions,
        report=callbacks.report,
        progress=callbacks.progress,
        deltas=layers,
        delta_count=len(layers),
    )
    status = callbacks.call(_abi.st_verify, fs_path(path), options)
    if status:
        problem = error(status)
        finding = isinstance(problem, (FormatError, DeltaError, NeedsRecoveryError)) or status == Status.JOURNAL
        if not finding:
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
    again, and from many processes. A save that died before its file had the name left a new file
    beside no other; that is removed, too.

    Returns a finding for each journal and each new file, so an empty list if there was none. `report`,
    if given, is told each as it is made. `lock_timeout` is seconds, None for ever.

    Raises NeedsRecoveryError (a journal waits, but the file cannot be written here); Error with `Status.JOURNAL` (a
    journal does not fit the file, and was moved aside); BusyError; StorageError.
    """
    report = function("report", report)
    findings: list[Finding] = []

    def keep(raw: Any) -> None:
        finding = _finding(raw)
        findings.append(finding)
        if report is not None:
            report(finding)

    callbacks = Callbacks(report=keep)
    options = sized(
        _abi.RecoverOptions,
        lock_timeout_ms=timeout_ms(lock_timeout),
        report=callbacks.report,
        progress=callbacks.progress,
    )
    check(callbacks.call(_abi.st_recover, fs_path(path), options))
    return findings


def _finding(raw: Any) -> Finding:
    return Finding(
        level=LEVELS.get(raw.level, str(raw.level)),
        status=known_status(raw.status),
        offset=known_offset(raw.offset),
        message=message_text(raw.message or b""),
    )
