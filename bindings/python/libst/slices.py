"""Read a part of a tensor, and only the bytes of that part."""

import ctypes
import operator
from typing import Any

import numpy as np

from . import _abi
from ._names import Description, encoded
from ._pin import Array, Pin
from .bulk import address
from .dtypes import NAMES, NUMPY, PACKED
from .errors import check

_LEAST, _MOST = -(2**63), 2**63 - 1


class TensorSlice:
    """A tensor of a file, not read yet: `f.slice("w")[1:3, ..., ::2]` reads.

    It is of the state that the file was in, and keeps that open as a view does, also after `File.close()`: what is
    published later does not show.
    """

    __slots__ = ("_pin", "_name", "_tensor")

    def __init__(self, pin: Pin, name: str, tensor: Description) -> None:
        self._pin = pin
        self._name = name
        self._tensor = tensor

    @classmethod
    def _of(cls, pin: Pin, name: str) -> "TensorSlice":
        try:
            return cls(pin, name, pin.describe(name))
        finally:
            del pin

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> str:
        """As in the header: "BF16"."""
        return NAMES[self._tensor.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        """In elements."""
        return self._tensor.shape

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            del self  # see _pin.py
            raise TypeError("a scalar has no length")
        return shape[0]

    def __repr__(self) -> str:
        return f"<libst.TensorSlice {self._name!r} {self.dtype} {list(self.shape)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """As the file's path and options, as a File."""
        if self._pin.options is None:
            raise TypeError("a slice of a file in memory cannot be copied or pickled; send the bytes")
        return _sliced, (self._pin.options, self._name)

    def __getitem__(self, index: Any) -> Array:
        """Read what numpy's basic indexing of the whole tensor would give, as an owned array.

        Takes integers (which drop their dimension), slices with any step, and an Ellipsis,
        for as many dimensions as are given. The result is always an array, of
        rank 0 where numpy would give a scalar. Of a sub-byte dtype (F4, F6) it is flat
        packed bytes, and the part must begin and end at whole bytes.

        Raises IndexError for an integer outside or too many indices, TypeError for
        masks, index arrays and newaxis, FormatError (SUBBYTE) for a cut inside a byte,
        and what `File.read` raises.
        """
        try:
            return _read(self._pin, encoded(self._name), self._tensor, _parts(index, len(self.shape)))
        finally:
            del self


def _sliced(options: dict[str, Any], name: str) -> TensorSlice:
    from .file import open

    return open(**options).slice(name)


def _parts(index: Any, rank: int) -> tuple[Any, ...]:
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
    cut = ellipses[0]
    return (*parts[:cut], *(slice(None),) * (rank - given), *parts[cut + 1 :])


def _read(pin: Pin, raw: bytes, tensor: Description, parts: tuple[Any, ...]) -> Array:
    """The library says what shape the part has, and whether an integer lies in its dimension: it reads one element."""
    try:
        rows: Any = [_range(part) if isinstance(part, slice) else _position(part) for part in parts]
        ranges = (_abi.Range * max(len(parts), 1))(*rows)
        rank = len(tensor.shape)
        extents = (ctypes.c_uint64 * max(rank, 1))()
        nbytes = ctypes.c_uint64()
        check(_abi.st_slice_shape(pin.handle, raw, len(raw), ranges, len(parts), extents, rank, None, nbytes))
        shape = []
        for axis, extent in enumerate(extents[:rank]):
            if axis >= len(parts) or isinstance(parts[axis], slice):
                shape.append(extent)
            elif not extent:
                size = tensor.shape[axis]
                raise IndexError(f"index {parts[axis]} is out of bounds for axis {axis} with size {size}")
        out = np.empty((nbytes.value,) if tensor.dtype in PACKED else shape, NUMPY[tensor.dtype])
        pin.call(_abi.st_read_slice_n, raw, len(raw), ranges, len(parts), address(out), out.nbytes, None)
        return out
    finally:
        del pin


def _range(part: "slice[Any, Any, Any]") -> tuple[int, int, int]:
    """The st_range of a slice, which counts and clips as Python does."""
    step = 1 if part.step is None else operator.index(part.step)
    first, end = (0, _MOST) if step > 0 else (_MOST, _LEAST)
    start = first if part.start is None else operator.index(part.start)
    stop = end if part.stop is None else operator.index(part.stop)
    return _int64(start), _int64(stop), max(_int64(step), -_MOST)


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
    return _int64(position), _MOST if position == -1 else _int64(position + 1), 1


def _int64(number: int) -> int:
    return max(_LEAST, min(number, _MOST))
