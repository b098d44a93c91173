"""The views of a file that may be written, and what this process wrote into them.

They lie in a copy-on-write mapping of their own, which the first of them makes. It stays through commits of the same
File that only patch: then further views still show what was written. Of a tensor that was patched, further views show
the file's bytes. These are a copy, since the mapping keeps the old bytes for views that live.
"""

from collections.abc import Callable
from typing import Any, Optional

from ._pin import Pin


class Writable:
    """What a commit leaves is another one. So no thread looks up in what another one's commit has changed meanwhile."""

    __slots__ = ("_now", "_followed")

    # The mapping's pin, once it was asked for; what was patched since; copies of that, where they were asked for.
    _now: tuple[list[Pin], frozenset[str], dict[str, Any]]
    _followed: bool  # whether the path led to that file after the last commit

    def __init__(self) -> None:
        self._now = [], frozenset(), {}
        self._followed = True

    def after(self, patched: frozenset[str]) -> "Writable":
        """What stays when a commit patched these tensors, and did nothing else."""
        pins, before, copies = self._now
        after = Writable()
        kept = {name: tensor for name, tensor in list(copies.items()) if name not in patched}
        after._now = pins[:1], before | patched, kept
        after._followed = False
        return after

    def tensor(self, name: str, state: Pin, read: Callable[[Pin, str], Any]) -> Optional[Any]:
        """A view of torch. None where there can be none: of memory, of several files, of one that was replaced, and
        where storage is read and not mapped. read: makes a copy of what the file has."""
        pins: list[Pin] = []
        copies: dict[str, Any] = {}
        try:
            if state.may_write:
                return state.torch(name) if state.shows_writable else None
            self._follow()
            pins, patched, copies = self._now
            if not pins:
                pins.extend(state.copy_on_write())
                del pins[1:]  # of several threads that make one at the same time, the first counts for all
            if not pins or not pins[0].shows_writable:
                return None
            if name not in patched:
                return pins[0].torch(name)
            if name not in copies:
                copies.setdefault(name, read(state, name))
            return copies[name].detach()  # a tensor of its own, in the same memory
        finally:
            del self, state, pins, copies

    def _follow(self) -> None:
        """A commit may have followed another process's publish, to a file in which nothing was written."""
        pins: list[Pin] = []
        try:
            if not self._followed:
                pins = self._now[0]
                if pins and not pins[0].is_at_path():
                    self._now = [], frozenset(), {}
                self._followed = True
        finally:
            del self, pins
