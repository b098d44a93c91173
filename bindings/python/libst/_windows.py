"""Many short rows of a tensor, in any order, by few reads. The rows are sorted. Stretches of the tensor that hold
several are read whole, into a buffer, from which the rows are taken. A request of its own would cost a row half a
kilobyte of memory and a microsecond, and a row that is asked for twice would be read twice."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

import numpy as np

from . import _abi
from ._callbacks import Callbacks, Progress
from ._index import Numbers, Part, stretches
from ._pin import Array, Pin
from ._rows import MEMORY, Rows, address, requests_of

_FEW = 1024  # rows, whose requests cost little
_SHORT = 4 << 10  # bytes of a row; a longer one is worth its request, and is not to be copied twice
_GAP = 4 << 10  # bytes of the file between two rows that are read with them, as the kernel brings whole pages
_ROOM = 8 << 20  # bytes of the buffer
_FAR_ROOM = 64 << 20  # the same, where a request waits long, and many are to wait at once
_FAR_GAP = 256 << 10  # C reads through such gaps there anyway, but by more requests
_FAR_SHORT = 64 << 10
_AT_ONCE = 1 << 15  # stretches, and so requests
_COPIED = 256 << 10  # bytes that are taken from the buffer at once, by way of memory of their own


class Steps:
    """Several reads, which tell one progress."""

    def __init__(self, progress: Optional[Progress], callbacks: Callbacks, total: int) -> None:
        self._progress = progress or callbacks.functions[0]
        self._total = total
        self._done = 0

    def next(self, nbytes: int) -> Optional[Progress]:
        """For a read, by which so many bytes are done."""
        progress, before, total = self._progress, self._done, self._total
        self._done += nbytes
        if progress is None:
            return None
        return lambda done, of: progress(before + (nbytes * done // of if of else 0), total)


class _Window(NamedTuple):
    """What is read at once, in numbers of rows."""

    #: In the tensor: the first row of each stretch, and the first behind it.
    begins: Numbers
    ends: Numbers
    places: Numbers  #: of each stretch, as those of rows
    at: Numbers  #: of each row: its place, in a buffer that had room for all windows
    to: Numbers  #: of each row in the result


def is_worth(count: int, nbytes: int, is_near: bool) -> bool:
    """Whether so many rows, each of so many bytes, are read so."""
    return count > _FEW and 0 < nbytes <= (_SHORT if is_near else _FAR_SHORT)


def read_windows(pin: Pin, tensor: Rows, part: Part, out: Array, steps: Steps) -> None:
    """The rows that the part picks of the tensor that is described."""
    try:
        rows: Any = part.rows
        nbytes = out.nbytes // len(rows)
        rows_out = out.view(np.dtype((np.void, nbytes)))
        gap, room = (_GAP, _ROOM) if pin.is_near else (_FAR_GAP, _FAR_ROOM)
        buffer = np.empty(room // nbytes, rows_out.dtype)
        for window in _windows(rows, gap // _row_size(tensor), len(buffer)):
            ranges = stretches(window.begins, window.ends, part)
            places = address(buffer) + (window.places - window.at[0]) * nbytes
            requests, where = requests_of(tensor, places, (window.ends - window.begins) * nbytes)
            requests["ranges"] = address(ranges) + np.arange(len(ranges), dtype=np.int64) * ranges.strides[0]
            requests["range_count"] = ranges.shape[1]
            progress = steps.next(len(window.to) * nbytes)
            pin.call_bulk(_abi.st_read_many, where, len(requests), progress=progress)
            _take(buffer, window, rows_out)
    finally:
        del pin


def _row_size(tensor: Rows) -> int:
    """Bytes in the file, of which a part may pick few."""
    rows: int = MEMORY[int(tensor["shape"]) // 8 - 1]
    return int(tensor["nbytes"]) // rows


def _windows(rows: Numbers, gap: int, room: int) -> Iterator[_Window]:
    """gap: rows between two that are read with them. room: rows of the buffer."""
    to = rows.argsort(kind="stable")
    rows = rows[to]
    at = np.diff(rows, prepend=rows[0] - 1)  # 0 for a row that comes again
    begins = np.flatnonzero(at > gap + 1)  # the stretches, but for the first
    at[begins] = 1  # nothing between is read
    np.cumsum(at, out=at)
    first = 0
    while first < len(rows):
        end = int(at.searchsorted(at[first] + room))
        after = begins.searchsorted(first, side="right")
        others = begins[after : after + _AT_ONCE]
        if len(others) == _AT_ONCE:
            end = min(end, int(others[-1]))
        others = others[: others.searchsorted(end)]
        firsts, lasts = np.append(first, others), np.append(others, end) - 1
        yield _Window(rows[firsts], rows[lasts] + 1, at[firsts], at[first:end], to[first:end])
        first = end


def _take(buffer: Array, window: _Window, rows_out: Array) -> None:
    step = _COPIED // buffer.itemsize
    for first in range(0, len(window.to), step):
        some = slice(first, first + step)
        rows_out[window.to[some]] = buffer.take(window.at[some] - window.at[0])
