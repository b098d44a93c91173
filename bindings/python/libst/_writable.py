"""The views of a file that may be written, and what this process wrote into them.

They lie in a copy-on-write mapping of their own, which the first of them makes. It stays through commits of the same
File that only patch: then further views still show what was written. Of a tensor that was patched, further views show
the file's bytes. These are a copy, since the mapping keeps the old bytes for views that live.
"""

import os
import threading
from collections.abc import Callable
from typing import Any, Optional

from ._pin import Pin


class Writable:
    __slots__ = ("_process", "_lock", "_pins", "_patched", "_copies", "_is_looked_at")

    _process: int  # a child of a fork has mappings of its own
    _lock: threading.RLock  # of what follows. A callback of the user's may come back here
    _pins: list[Pin]  # the mapping's, and that of the state that it is of; none: not asked for yet
    _patched: set[str]  # since then
    _copies: dict[str, Any]  # of what was patched, where it was asked for
    _is_looked_at: bool  # whether the last commit left that file in place is known

    def __init__(self) -> None:
        self._process = -1

    def _here(self) -> "threading.RLock":
        if self._process != os.getpid():
            self._lock = threading.RLock()
            self._forget()
            self._process = os.getpid()
        return self._lock

    def _forget(self) -> None:
        self._pins, self._patched, self._copies, self._is_looked_at = [], set(), {}, True

    def note(self, patched: Optional[frozenset[str]]) -> None:
        """A commit patched these tensors, and did nothing else. None: there may be another state."""
        if self._process == -1:
            return
        with self._here():
            if patched is None:
                self._forget()
            elif self._pins:
                self._patched |= patched
                for name in patched:
                    self._copies.pop(name, None)
                self._is_looked_at = False

    def tensor(self, name: str, state: Pin, read: Callable[[Pin, str], Any]) -> Optional[Any]:
        """A view of torch. None where there can be none: of memory, of several files, of one that was replaced, and
        where storage is read and not mapped. read: makes a copy of what the file has."""
        try:
            if state.may_write:
                return state.torch(name) if state.shows_writable else None
            with self._here():
                # A commit may have followed another process's publish, to a file in which nothing was written.
                if not self._is_looked_at and self._pins:
                    if not state.is_same_file(self._pins[1], self._pins[0], name):
                        self._forget()
                    self._is_looked_at = True
                if not self._pins:
                    made = state.copy_on_write()
                    self._pins = [*made, state] if made else []
                    del made
                if not self._pins or not self._pins[0].shows_writable:
                    return None
                if name not in self._patched:
                    return self._pins[0].torch(name)
                if name not in self._copies:
                    self._copies[name] = read(state, name)
                return self._copies[name].detach()  # a tensor of its own, in the same memory
        finally:
            del self, state
