"""How long to wait for locks, with signals served meanwhile: Python runs no signal handler while C waits.

Calls on an open file, and those that save one, ask their progress callback as they wait, and there handlers run: they
are given the whole time. Other calls on paths ask nobody. So they wait in short turns: one that answers BUSY has
changed nothing and is made again.
"""

from collections.abc import Iterable
from itertools import repeat
from typing import Callable, NamedTuple, Optional

from . import _abi
from .status import Status

_TURN_MS = 50
_MOST_MS = 2**31 - 1


def timeout_ms(timeout: Optional[float]) -> int:
    """As C takes it. timeout: seconds, 0 not at all, None for ever."""
    if timeout is None:
        return _abi.ST_TIMEOUT_FOREVER
    if not timeout >= 0:
        raise ValueError(f"lock_timeout is seconds, 0 or more, or None for ever; not {timeout!r}")
    if timeout > _MOST_MS / 1000:
        return _abi.ST_TIMEOUT_FOREVER
    return max(round(timeout * 1000), 1) if timeout else _abi.ST_TIMEOUT_NONE


class Turns(NamedTuple):
    """A wait in short turns."""

    timeout_ms: int  #: of one
    attempts: Optional[int]  #: None: for ever

    @classmethod
    def of(cls, timeout: Optional[float]) -> "Turns":
        whole = timeout_ms(timeout)
        if whole == _abi.ST_TIMEOUT_FOREVER:
            return cls(_TURN_MS, None)
        if whole == _abi.ST_TIMEOUT_NONE:
            return cls(whole, 1)
        count = -(-whole // _TURN_MS)
        return cls(-(-whole // count), count)

    def run(self, attempt: Callable[[], int]) -> int:
        """Make the call, again while it answers BUSY and there are turns left; its last status."""
        turns: Iterable[None] = repeat(None) if self.attempts is None else repeat(None, self.attempts)
        status = int(Status.BUSY)
        for _ in turns:
            status = attempt()
            if status != Status.BUSY:
                break
        return status
