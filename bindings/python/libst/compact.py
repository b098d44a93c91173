"""`libst.compact`: a file without spare room."""

from typing import Optional

from . import _abi
from ._arguments import number
from ._callbacks import Progress, callbacks_for
from ._hub import warn_of_blob
from ._sized import sized
from ._waiting import timeout_ms
from .errors import check
from .file import Path, fs_path


def compact(
    path: Path,
    *,
    alignment: int = 0,
    header_reserve: int = 0,
    break_links: bool = False,
    new_names: bool = False,
    shard_grace: int = 3600,
    lock_timeout: Optional[float] = 10.0,
    progress: Optional[Progress] = None,
) -> None:
    """Rewrite a file in canonical order (descending dtype, then name), with no spare room in its header but
    `header_reserve`; on xfs and btrfs less than a block more, where that lets blocks be shared. Atomic for every
    reader. Shards are rewritten one after the other: a failure, or a cancel, leaves those that are done. `new_names`
    and `shard_grace` as in `File.transaction`.

    Raises what `libst.open` and `Transaction.commit` raise.
    """
    grace = number("shard_grace", shard_grace, _abi.ST_GRACE_NONE - 1)
    callbacks = callbacks_for(progress)
    flags = _abi.ST_TXN_BREAK_LINKS if break_links else 0
    flags |= _abi.ST_TXN_NEW_NAMES if new_names else 0
    options = sized(
        _abi.TxnOptions,
        flags=flags,
        lock_timeout_ms=timeout_ms(lock_timeout),
        shard_grace_s=grace or _abi.ST_GRACE_NONE,
        progress=callbacks.progress,
        alignment=number("alignment", alignment),
        header_reserve=number("header_reserve", header_reserve, 2**64 - 1),
    )
    raw = fs_path(path)
    warn_of_blob(raw, stacklevel=2)
    check(callbacks.call(_abi.st_compact, raw, options))
