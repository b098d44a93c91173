"""Many short rows of a tensor, in any order, by few reads. The rows are sorted. Stretches of the tensor that hold
several are read whole, into a buffer, from which the rows are taken. A request of its own would cost a row half a
kilobyte of memory and a microsecond, and a row that is asked for twice would be read twice."""

import itertools
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
_ROWS_AT_ONCE = 1 << 20  # each costs three numbers
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


class Pick(NamedTuple):
    """Many rows of a tensor."""

    tensor: int  #: its number among those that are described
    part: Part
    out: Array


class _Window(NamedTuple):
    """What is read at once of a tensor, in numbers of rows."""

    pick: Pick
    nbytes: int  #: of a row, or of what is picked of it
    #: In the tensor: the first row of each stretch, and the first behind it.
    begins: Numbers
    ends: Numbers
    places: Numbers  #: of each stretch, as those of rows
    at: Numbers  #: of each row: its place, in a buffer that had room for all windows
    to: Numbers  #: of each row in the result

    @property
    def room(self) -> int:
        """Bytes of the buffer."""
        return int(self.at[-1] - self.at[0] + 1) * self.nbytes


def is_worth(count: int, nbytes: int, is_near: bool) -> bool:
    """Whether so many rows, each of so many bytes, are read so."""
    return count > _FEW and 0 < nbytes <= (_SHORT if is_near else _FAR_SHORT)


def read_windows(pin: Pin, tensors: Rows, picks: list[Pick], steps: Steps) -> None:
    """The rows that are picked of the tensors, which are described. Windows of several are read by one call, as a
    request may wait long."""
    try:
        gap, room = (_GAP, _ROOM) if pin.is_near(int(tensors["shard"][0])) else (_FAR_GAP, _FAR_ROOM)
        buffer = np.empty(room, np.uint8)
        each = [_windows(pick, _row_size(tensors[pick.tensor]), gap, room) for pick in picks]
        for windows in _calls(each, room):
            rooms = np.array([window.room for window in windows], np.int64)
            ends = rooms.cumsum()
            tables = [stretches(window.begins, window.ends, window.pick.part) for window in windows]
            requests, where = _requests(tensors, windows, tables, ends - rooms + address(buffer))
            progress = steps.next(sum([len(window.to) * window.nbytes for window in windows]))
            pin.call_bulk(_abi.st_read_many, where, len(requests), progress=progress)
            for window, end, nbytes in zip(windows, ends.tolist(), rooms.tolist()):
                _take(buffer[end - nbytes : end], window)
    finally:
        del pin


def _calls(windows: list[Iterator[_Window]], room: int) -> Iterator[list[_Window]]:
    """Those that are read by one call."""
    some: list[_Window] = []
    nbytes = count = rows = 0
    for window in itertools.chain.from_iterable(windows):
        nbytes, count, rows = nbytes + window.room, count + len(window.begins), rows + len(window.to)
        if some and (nbytes > room or count > _AT_ONCE or rows > _ROWS_AT_ONCE):
            yield some
            some, nbytes, count, rows = [], window.room, len(window.begins), len(window.to)
        some.append(window)
    if some:
        yield some


def _requests(tensors: Rows, windows: list[_Window], tables: list[Numbers], begins: Numbers) -> tuple[Rows, int]:
    """begins: where each window lies in memory. tables: the st_ranges of its stretches."""
    counts = [len(table) for table in tables]
    places = [begin + (each.places - each.at[0]) * each.nbytes for each, begin in zip(windows, begins.tolist())]
    sizes = [(each.ends - each.begins) * each.nbytes for each in windows]
    ranges = [address(table) + np.arange(len(table), dtype=np.int64) * table.strides[0] for table in tables]
    of = np.repeat([each.pick.tensor for each in windows], counts)
    requests, where = requests_of(tensors.take(of), np.concatenate(places), np.concatenate(sizes))
    requests["ranges"] = np.concatenate(ranges)
    requests["range_count"] = np.repeat([table.shape[1] for table in tables], counts)
    return requests, where


def _row_size(tensor: Rows) -> int:
    """Bytes in the file, of which a part may pick few."""
    rows: int = MEMORY[int(tensor["shape"]) // 8 - 1]
    return int(tensor["nbytes"]) // rows


def _windows(pick: Pick, row_size: int, gap: int, room: int) -> Iterator[_Window]:
    """gap: bytes between two rows that are read with them. room: bytes of the buffer."""
    rows: Any = pick.part.rows
    nbytes = pick.out.nbytes // len(rows)
    gap, room = gap // row_size, room // nbytes
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
        yield _Window(pick, nbytes, rows[firsts], rows[lasts] + 1, at[firsts], at[first:end], to[first:end])
        first = end


def _take(buffer: Array, window: _Window) -> None:
    row = np.dtype((np.void, window.nbytes))
    rows, out = buffer.view(row), window.pick.out.view(row)
    step = _COPIED // window.nbytes
    for first in range(0, len(window.to), step):
        some = slice(first, first + step)
        out[window.to[some]] = rows.take(window.at[some] - window.at[0])
