"""Which tensors and parts, of a file that is mapped, are copied from the mapping, as stock copies all. Others are read.

In memory a copy takes half the time of a read of 4 to 128 KiB: it makes no system call. A read of what is not in memory
takes half the time of a copy from 64 KiB on: the kernel is told at once how much is wanted.
"""

import ctypes
import mmap
import os
from typing import Any, Optional

import numpy as np

from .._pin import COPIED
from .._rows import address

_BRIEF = 16 << 10  # bytes that are always copied where the disk is local; elsewhere COPIED are
_LOOKS = 16  # of so many one is looked at, which takes as long as a copy of 16 KiB

# Bytes that are copied of what is in memory.
TENSOR = 256 << 10  # from which on page faults take longer than a system call
PART = 16 << 20  # of a tensor of which more parts are likely, where pages are mapped already

_page = mmap.PAGESIZE
_as_effective = os.access in os.supports_effective_ids  # as the kernel asks
_mincore: Any = None
if os.name != "nt":
    _mincore = getattr(ctypes.CDLL(None), "mincore", None)
if _mincore is not None:
    _mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class Copies:
    """Of a file."""

    __slots__ = ("_local", "_path", "_is_told", "_left", "_is_warm")

    def __init__(self, local: bool, path: str) -> None:
        self._local = local
        self._path = path
        self._is_told: Optional[bool] = None  # not asked yet
        self._left = 0  # that are not looked at, before the next
        self._is_warm = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Copies, (self._local, self._path)

    def take(self, first: int, nbytes: int, most: int = TENSOR) -> bool:
        """Whether so many bytes from there on, of `most` at most, are to be copied."""
        return (
            nbytes <= COPIED or self._local and nbytes <= most and (nbytes <= _BRIEF or self._looks_warm(first, nbytes))
        )

    def take_part(self, part: "np.ndarray[Any, Any]") -> bool:
        """The same of a part without gaps."""
        return part.nbytes <= COPIED or self.take(address(part), part.nbytes, PART)

    def _looks_warm(self, first: int, nbytes: int) -> bool:
        if self._is_told is None:
            self._is_told = _is_told(self._path)
        if not self._is_told:
            return False
        if self._left <= 0:
            self._left = _LOOKS
            self._is_warm = _is_resident(first, nbytes)
        self._left -= 1
        return self._is_warm


def _is_told(path: str) -> bool:
    """Does Linux tell what of it is in memory? Of another user's file that may not be written it says that all is."""
    if _mincore is None:
        return False
    try:
        return os.stat(path).st_uid == os.geteuid() or os.access(path, os.W_OK, effective_ids=_as_effective)
    except OSError:
        return False


def _is_resident(first: int, nbytes: int) -> bool:
    """Whether the last page is in memory."""
    found = (ctypes.c_ubyte * 1)()
    last = (first + nbytes - 1) // _page * _page
    return not _mincore(last, 1, found) and bool(found[0] & 1)
