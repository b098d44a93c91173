"""Read a part of a tensor, and only the bytes of that part."""

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _abi
from .dtypes import NAMES, NUMPY, PACKED

if TYPE_CHECKING:
    from .file import File

_INT64_MIN = -(2**63)


class TensorSlice:
    """A tensor of a file, not read yet: `f.slice("w")[1:3, ..., ::2]` reads.

    It holds the file, not its data; after `File.close()` indexing raises ClosedError.
    """

    __slots__ = ("_file", "_name", "_dtype", "_shape")

    def __init__(self, file: "File", name: str, dtype: int, shape: tuple[int, ...]) -> None:
        self._file = file
        self._name = name
        self._dtype = dtype
        self._shape = shape

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> str:
        """As in the header: "BF16"."""
        return NAMES[self._dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        """In elements."""
        return self._shape

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("a scalar has no length")
        return self._shape[0]

    def __repr__(self) -> str:
        return f"<libst.TensorSlice {self._name!r} {self.dtype} {list(self._shape)}>"

    def __getitem__(self, index: Any) -> "np.ndarray[Any, Any]":
        """Read what numpy's basic indexing of the whole tensor would give, as an owned array.

        Takes integers (which drop their dimension), slices with any step, and an Ellipsis,
        for as many dimensions as are given. The result is always an array, of
        rank 0 where numpy would give a scalar. Of a sub-byte dtype (F4, F6) it is flat
        packed bytes, and the part must begin and end at whole bytes.

        Raises IndexError for an integer outside or too many indices, TypeError for
        masks, index arrays and newaxis, FormatError (SUBBYTE) for a cut inside a byte,
        and what `File.read` raises.
        """
        ranges, shape = ranges_of(index, self._shape)
        return self._file._read_ranges(self._name, ranges, NUMPY[self._dtype], shape, self._dtype in PACKED)


def ranges_of(index: Any, shape: tuple[int, ...]) -> tuple[list[tuple[int, int, int]], tuple[int, ...]]:
    """start, stop and step for every dimension, as st_range has them; and the result's shape."""
    parts = index if isinstance(index, tuple) else (index,)
    ellipses = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    given = len(parts) - len(ellipses)
    if given > len(shape):
        raise IndexError(f"too many indices: the tensor has {len(shape)} dimensions, but {given} were indexed")
    cut = ellipses[0] if ellipses else len(parts)
    whole = (slice(None),) * (len(shape) - given)
    parts = parts[:cut] + whole + parts[cut + 1 :]

    ranges: list[tuple[int, int, int]] = []
    result: list[int] = []
    for axis, (part, size) in enumerate(zip(parts, shape)):
        if isinstance(part, slice):
            start, stop, step = part.indices(size)
            length = len(range(start, stop, step))
            result.append(length)
            if length == 0:
                start, stop, step = 0, 0, 1
            elif stop < 0:  # a negative step that runs through the first element
                stop = _INT64_MIN
            ranges.append((start, stop, _int64(step)))
        else:
            position = _position(part, axis, size)
            ranges.append((position, position + 1, 1))
    return ranges, tuple(result)


def _int64(step: int) -> int:
    return max(-(2**63) + 1, min(step, 2**63 - 1))


def _position(part: Any, axis: int, size: int) -> int:
    if isinstance(part, (bool, np.bool_)):
        raise TypeError("a slice takes no masks; index the array that it reads")
    try:
        position = operator.index(part)
    except TypeError:
        what = "newaxis" if part is None else type(part).__name__
        raise TypeError(
            f"a slice takes integers, slices and '...', not {what}; index the array that it reads"
        ) from None
    if not -size <= position < size:
        raise IndexError(f"index {position} is out of bounds for axis {axis} with size {size}")
    return position + size if position < 0 else position


def c_ranges(ranges: list[tuple[int, int, int]]) -> Any:
    rows: Any = ranges
    return (_abi.Range * max(len(ranges), 1))(*rows)
