"""Indices of slices, for C as ranges, and the shape of what they cut out: numpy's basic indexing, and for the first
dimension an array of indices."""

import operator
import struct
from typing import Any, NamedTuple, Optional

import numpy as np

_LEAST = -(2**63)

#: The largest end of an st_range.
MOST = 2**63 - 1

Numbers = np.ndarray[Any, np.dtype[np.int64]]


#: An st_range.
_Range = tuple[int, int, int]

#: What they are packed by, one behind the other, for C.
pack_range = struct.Struct("<3q").pack

#: The st_range of each of the dimensions up to the last that is given one, packed, and how many; the shape of what they
#: cut out; and whether that is rows that lie one behind the other.
Cut = tuple[bytes, int, tuple[int, ...], bool]


def cut(index: Any, shape: tuple[int, ...]) -> Cut:
    """IndexError outside of the tensor."""
    if type(index) is slice and index.step is None and shape and shape[0] <= MOST:  # as most ask
        start, stop = index.start, index.stop
        if not (type(start) is type(stop) is int and 0 <= start <= stop <= shape[0]):
            start, stop, _ = index.indices(shape[0])
        return pack_range(start, stop, 1), 1, (stop - start if stop > start else 0, *shape[1:]), True
    ranges, kept = _cut(_parts_of(index, len(shape)), shape)
    return _packed(ranges), len(ranges), kept, len(ranges) == 1 and ranges[0][2] == 1


#: What most indices are made of; no array is of these types.
_BASIC = {slice, int, type(...)}


def outside(problem: IndexError, name: str, shape: tuple[int, ...]) -> IndexError:
    """The same, of that tensor."""
    return IndexError(f"{problem}; the tensor {name!r} has the shape {list(shape)}: ask for what is in it")


def picks_rows(index: Any) -> bool:
    """Whether it has an array of indices: it is then for `cut_rows`, else for `cut`."""
    if type(index) in _BASIC:
        return False
    parts = index if isinstance(index, tuple) else (index,)
    return not _BASIC.issuperset(map(type, parts)) and any(_is_array(part) for part in parts)


def cut_rows(index: Any, shape: tuple[int, ...]) -> "Part":
    """What the array picks: rows that are there, and of which none is negative. IndexError for others."""
    part = part_of(index, shape)
    rows, size = part.rows, shape[0]
    if rows is None or not len(rows) or (rows.min() >= 0 and rows.max() < size):
        return part
    outside = (rows < max(-size, _LEAST)) | (rows > min(size - 1, MOST))
    if outside.any():
        raise IndexError(f"index {rows[outside.argmax()]} is out of bounds for axis 0 with size {size}")
    return part._replace(rows=np.where(rows < 0, rows + np.int64(min(size, MOST)), rows))


def ranges_of_rows(part: "Part") -> bytes:
    """The st_ranges of each row, packed."""
    rows: Any = part.rows
    return stretches(rows, np.minimum(rows, MOST - 1) + 1, part).tobytes()


def stretches(begins: Numbers, ends: Numbers, part: "Part") -> Numbers:
    """The st_ranges of stretches of rows: those of the part behind each."""
    table = np.empty((len(begins), 1 + part.range_count, 3), np.int64)
    table[:, 0, 0] = begins
    table[:, 0, 1] = ends
    table[:, 0, 2] = 1
    table[:, 1:] = np.frombuffer(part.ranges, np.int64).reshape(-1, 3)
    return table


class Part(NamedTuple):
    """A part of a tensor that is to be changed or read: as C is told, and the shape of what goes there."""

    ranges: bytes
    range_count: int
    #: Along the first dimension; `ranges` are then for those behind it. None: all that they leave.
    rows: Optional[Numbers]
    #: As numpy has it, and as C does, with a 1 where an integer drops a dimension.
    shape: tuple[int, ...]
    full: tuple[int, ...]


def part_of(index: Any, shape: tuple[int, ...]) -> Part:
    """numpy's basic indexing; and an array of indices for the first dimension. IndexError outside of the tensor."""
    parts = index if isinstance(index, tuple) else (index,)
    rows = _rows_of(parts[0]) if parts else None
    if any(_rows_of(part) is not None for part in parts[1:]):
        raise TypeError("an array of indices picks along the first dimension: give it first, and no other")
    extents = shape
    if rows is not None:
        if not shape:
            raise IndexError("too many indices: the tensor has 0 dimensions, but 1 were indexed")
        parts, extents = parts[1:], shape[1:]
    parts = _parts_of(parts, len(extents))
    ranges, kept = _cut(parts, extents)
    full = (_count(*part.indices(size)) if isinstance(part, slice) else 1 for part, size in zip(parts, extents))
    first = () if rows is None else (len(rows),)
    return Part(_packed(ranges), len(ranges), rows, first + kept, (*first, *full, *extents[len(parts) :]))


def _is_array(part: Any) -> bool:
    """Not those without a dimension, which are integers."""
    return isinstance(part, list) or (hasattr(part, "__array__") and np.ndim(part) > 0)


def _rows_of(part: Any) -> Optional[Numbers]:
    """An array of indices, copied, as another thread may write in the given one; or None if it is something else."""
    if not _is_array(part):
        return None
    array = np.asarray(part)
    if array.ndim > 1 or (array.size and array.dtype.kind not in "iu"):
        hint = "; of a mask give numpy.flatnonzero(mask)" if array.dtype.kind == "b" else ""
        raise TypeError(
            f"an array of indices has one dimension and holds integers, not {array.ndim} of {array.dtype}{hint}"
        )
    if array.size and int(array.max()) > MOST:
        raise IndexError(f"index {array.max()} is out of bounds for axis 0")
    return np.array(array, np.int64)


def _parts_of(index: Any, rank: int) -> tuple[Any, ...]:
    """An index for each of the dimensions up to the last that is given one."""
    parts = index if isinstance(index, tuple) else (index,)
    ellipses = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    given = len(parts) - len(ellipses)
    if given > rank:
        raise IndexError(f"too many indices: the tensor has {rank} dimensions, but {given} were indexed")
    if not ellipses:
        return parts
    place = ellipses[0]
    return (*parts[:place], *(slice(None),) * (rank - given), *parts[place + 1 :])


def _packed(ranges: list[_Range]) -> bytes:
    return b"".join([pack_range(*each) for each in ranges])


def _cut(parts: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[list[_Range], tuple[int, ...]]:
    ranges, extents = [], []
    for axis, (part, size) in enumerate(zip(parts, shape)):
        if isinstance(part, slice):
            start, stop, step = part.indices(size)
            extents.append(_count(start, stop, step))
            # With a negative step `stop` may be -1, before the first, which C would count from the end.
            ranges.append((_int64(start), _int64(stop), min(step, MOST)) if step > 0 else _backwards(part))
        else:
            ranges.append(_position(part))
            if not -size <= ranges[-1][0] < size:
                raise IndexError(f"index {part} is out of bounds for axis {axis} with size {size}")
    return ranges, (*extents, *shape[len(parts) :])


def _count(start: int, stop: int, step: int) -> int:
    """As `len(range(...))`, which has no more than 63 bits: a dimension beside one of size 0 may be larger."""
    return max(0, -((start - stop) // step))


def _backwards(part: "slice[Any, Any, Any]") -> tuple[int, int, int]:
    """The st_range of a slice of a negative step, which counts and clips as Python does."""
    start = MOST if part.start is None else operator.index(part.start)
    stop = _LEAST if part.stop is None else operator.index(part.stop)
    return _int64(start), _int64(stop), max(_int64(operator.index(part.step)), -MOST)


def _position(part: Any) -> tuple[int, int, int]:
    """The st_range of an integer."""
    if isinstance(part, (bool, np.bool_)):
        raise TypeError("a slice takes no masks; index the array that it reads")
    try:
        position = operator.index(part)
    except TypeError:
        what = "newaxis" if part is None else type(part).__name__
        raise TypeError(
            f"a slice takes integers, slices and '...', not {what}; index the array that it reads"
        ) from None
    return _int64(position), MOST if position == -1 else _int64(position + 1), 1


def _int64(number: int) -> int:
    return number if _LEAST <= number <= MOST else max(_LEAST, min(number, MOST))
