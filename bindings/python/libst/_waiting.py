"""Wait for locks in short turns, so that signals are served between them.

Python runs no signal handler while C waits. A call that answers BUSY changed
nothing and may be made again, so a long wait is cut into equal short ones.
"""

from collections.abc import Iterable
from itertools import repeat
from typing import Callable, NamedTuple, Optional

from .status import Status

_TURN_MS = 50


class Waiting(NamedTuple):
    turn_ms: int
    turns: Optional[int]  # None: for ever

    @classmethod
    def of(cls, timeout: Optional[float]) -> "Waiting":
        """timeout: seconds, 0 not at all, None for ever."""
        if timeout is None:
            return cls(_TURN_MS, None)
        if not timeout >= 0:
            raise ValueError(f"lock_timeout is seconds, 0 or more, or None for ever; not {timeout!r}")
        if timeout > 10**9:
            return cls(_TURN_MS, None)
        milliseconds = round(timeout * 1000)
        if timeout and not milliseconds:
            milliseconds = 1
        turns = max(-(-milliseconds // _TURN_MS), 1)
        return cls(-(-milliseconds // turns), turns)

    def run(self, attempt: Callable[[], int]) -> int:
        """Make the call, again while it answers BUSY and there are turns left; its last status."""
        turns: Iterable[None] = repeat(None) if self.turns is None else repeat(None, self.turns)
        status = int(Status.BUSY)
        for _ in turns:
            status = attempt()
            if status != Status.BUSY:
                break
        return status
