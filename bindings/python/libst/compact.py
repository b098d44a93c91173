"""`libst.compact`: a file without spare room."""

import ctypes
from typing import Optional

from . import _abi
from ._callbacks import Callbacks, Progress
from ._hub import warn_of_blob
from ._waiting import Waiting
from .errors import check
from .file import Path, fs_path


def compact(
    path: Path,
    *,
    alignment: int = 0,
    header_reserve: int = 0,
    break_links: bool = False,
    lock_timeout: Optional[float] = 10.0,
    progress: Optional[Progress] = None,
) -> None:
    """Rewrite a file in canonical order (descending dtype, then name), with no spare room in its header but
    `header_reserve`. Atomic for every reader.

    Raises what `libst.open` and `Transaction.commit` raise.
    """
    waiting = Waiting.of(lock_timeout)
    callbacks = Callbacks(progress)
    options = _abi.TxnOptions()
    _abi.st_txn_options_init(options, ctypes.sizeof(options))
    options.flags = _abi.ST_TXN_BREAK_LINKS if break_links else 0
    options.lock_timeout_ms = waiting.turn_ms
    options.progress = callbacks.progress
    options.alignment = alignment
    options.header_reserve = header_reserve
    raw = fs_path(path)
    warn_of_blob(raw, stacklevel=2)
    check(waiting.run(lambda: callbacks.call(_abi.st_compact, raw, options)))
