"""The views of a file that may be written, and what this process wrote into them.

They lie in a copy-on-write mapping of their own, which the first of them makes. It stays through commits of the same
File that only patch: then further views still show what was written. Of a tensor that was patched, further views show
the file's bytes. These are a copy, since the mapping keeps the old bytes for views that live. When all that was shown
is patched, further views are of a new mapping, and the old one goes with its last view.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Optional

from . import _abi
from ._fork import process
from ._pin import Array, Pin
from ._torch import torch_tensor

#: Bytes of a tensor, in memory of their own; its element type as in a header, and its shape.
Copy = tuple[Array, str, tuple[int, ...]]

_WORTH = 4  # a new mapping is worth its work when one of so many tensors was patched


class Writable:
    __slots__ = ("_process", "_locks", "_pins", "_shown", "_patched", "_copies", "_is_looked_at")

    _process: Optional[tuple[int, int]]  # a child of a fork has mappings of its own
    _locks: dict[
        tuple[int, int], threading.RLock
    ]  # of what follows, one a process. A callback of the user's may come back here
    _pins: list[Pin]  # the mapping's, and that of the state that it is of; none: not asked for yet
    _shown: set[str]  # the tensors of which views of the mapping were given out
    _patched: set[str]  # since then
    # Tensors that were patched, where they were asked for; another dict after each commit. None is torch's: one that is
    # made under inference_mode stays of that mode for all its users.
    _copies: dict[str, Copy]
    _is_looked_at: bool  # whether the last commit left that file in place is known

    def __init__(self) -> None:
        self._process = None
        self._locks = {}

    @contextmanager
    def _alone(self) -> Iterator[None]:
        here = process()
        with self._locks.setdefault(here, threading.RLock()):
            if self._process != here:
                self._forget()
                self._process = here
            yield

    def _forget(self) -> None:
        self._pins, self._shown, self._patched, self._copies, self._is_looked_at = [], set(), set(), {}, True

    def note(self, patched: Optional[frozenset[str]]) -> None:
        """A commit patched these tensors, and did nothing else. None: there may be another state."""
        if not self._locks:  # nobody has asked for a view
            return
        with self._alone():
            if patched is None:
                self._forget()
            elif self._pins:
                self._patched |= patched
                self._copies = {name: copy for name, copy in self._copies.items() if name not in patched}
                self._is_looked_at = False
                if self._is_spent():
                    self._forget()

    def _is_spent(self) -> bool:
        """Whether further views show nothing that was written, in the mapping or in copies, and enough was patched. The
        pages that the mapping keeps from before each patch then go with its last view. To make a new mapping is as much
        work as to open the file."""
        if self._copies or not self._shown <= self._patched:
            return False
        return bool(_WORTH * len(self._patched) >= _abi.st_count(self._pins[0].handle))

    def tensor(self, name: str, pin: Callable[[], Pin], read: Callable[[Pin, str], Copy]) -> Optional[Any]:
        """A view of torch. None where there can be none: of memory, of several files, of one that was replaced, and
        where storage is read and not mapped. pin: of the present state. read: makes a copy of what the file has."""
        if pin().may_write:
            return pin().torch(name) if pin().shows_writable else None
        with self._alone():
            # A commit may have followed another process's publish, to a file in which nothing was written.
            if not self._is_looked_at and self._pins:
                if not pin().is_same_file(self._pins[1], self._pins[0], name):
                    self._forget()
                self._is_looked_at = True
            if not self._pins:
                self._pins = pin().with_copy_on_write()
            if not self._pins or not self._pins[0].shows_writable:
                return None
            if name not in self._patched:
                self._shown.add(name)
                return self._pins[0].torch(name)
            copies = self._copies
        if name not in copies:
            made = read(pin(), name)  # not alone: it may call functions of the user's
            copies.setdefault(name, made)
        return torch_tensor(*copies[name])
