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
from ._rows import Rows, address, requests_of

_FEW = 1024  # rows, whose requests cost little
_SHORT = 64 << 10  # bytes of a row; a longer one is worth its request, and is not to be copied twice
_GAP = 4 << 10  # bytes between two rows that are read with them, as the kernel brings whole pages
_ROOM = 8 << 20  # bytes of the buffer
_FAR_ROOM = 64 << 20  # the same, where a request waits long, and many are to wait at once
_AT_ONCE = 1 << 15  # rows, and so requests


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
    places: Numbers  #: of each stretch in the buffer
    at: Numbers  #: of each row in the buffer
    to: Numbers  #: of each row in the result


def is_worth(count: int, nbytes: int) -> bool:
    """Whether so many rows, each of so many bytes, are read so."""
    return count > _FEW and 0 < nbytes <= _SHORT


def read_windows(pin: Pin, tensor: Rows, part: Part, out: Array, steps: Steps) -> None:
    """The rows that the part picks of the tensor that is described."""
    try:
        rows: Any = part.rows
        nbytes = out.nbytes // len(rows)
        rows_out = out.view(np.dtype((np.void, nbytes)))
        room = (_ROOM if pin.is_near else _FAR_ROOM) // nbytes
        buffer = np.empty(room, rows_out.dtype)
        for window in _windows(rows, _GAP // nbytes, room):
            ranges = stretches(window.begins, window.ends, part)
            places = address(buffer) + window.places * nbytes
            requests, where = requests_of(tensor, places, (window.ends - window.begins) * nbytes)
            requests["ranges"] = address(ranges) + np.arange(len(ranges)) * ranges.strides[0]
            requests["range_count"] = ranges.shape[1]
            progress = steps.next(len(window.to) * nbytes)
            pin.call_bulk(_abi.st_read_many, where, len(requests), progress=progress)
            rows_out[window.to] = buffer.take(window.at)
    finally:
        del pin


def _windows(rows: Numbers, gap: int, room: int) -> Iterator[_Window]:
    """gap: rows between two that are read with them. room: rows of the buffer."""
    to = rows.argsort(kind="stable")
    rows = rows[to]
    at = np.diff(rows, prepend=rows[0] - 1)  # 0 for a row that comes again
    at[at > gap + 1] = 1  # nothing between is read
    np.cumsum(at, out=at)
    first = 0
    while first < len(rows):
        end = min(int(at.searchsorted(at[first] + room)), first + _AT_ONCE)
        yield _window(rows[first:end], at[first:end] - at[first], to[first:end], gap)
        first = end


def _window(rows: Numbers, at: Numbers, to: Numbers, gap: int) -> _Window:
    first = np.concatenate(([0], np.flatnonzero(np.diff(rows) > gap + 1) + 1))
    last = np.append(first[1:], len(rows)) - 1
    return _Window(rows[first], rows[last] + 1, at[first], at, to)
