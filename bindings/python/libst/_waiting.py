"""How long to wait for locks. Whatever waits asks its progress callback meanwhile, where signals' handlers run."""

from typing import Optional

from . import _abi

_MOST_MS = 2**31 - 1


def timeout_ms(timeout: Optional[float]) -> int:
    """As C takes it. timeout: seconds, 0 not at all, None for ever."""
    if timeout is None:
        return _abi.ST_TIMEOUT_FOREVER
    if not hasattr(timeout, "__float__"):
        raise TypeError(f"lock_timeout is seconds, 0 or more, or None for ever; not {timeout!r}")
    if not timeout >= 0:
        raise ValueError(f"lock_timeout is seconds, 0 or more, or None for ever; not {timeout!r}")
    if timeout > _MOST_MS / 1000:
        return _abi.ST_TIMEOUT_FOREVER
    return max(round(timeout * 1000), 1) if timeout else _abi.ST_TIMEOUT_NONE
