"""Read a part of a tensor, and only the bytes of that part."""

import ctypes
from ctypes import c_void_p
from typing import Any

from . import _abi, bulk
from ._abi import SIZES
from ._forms import Form
from ._handle import Handle
from ._index import MOST, cut, outside, pack_range, picks_rows
from ._pin import BRIEF, Array, Pin
from ._rows import new_array
from .dtypes import BYTES, NAMES, WHOLE
from .errors import error

_brief_read = _abi.bare_read_slice


class TensorSlice:
    """A tensor of a file, not read yet: `f.slice("w")[1:3, ..., ::2]` reads.

    It is of the state that the file was in, and keeps that open as a view does, also after `File.close()`: what is
    published later does not show.
    """

    __slots__ = ("_pin", "_name", "_raw", "_form", "_rows", "_row")

    def __init__(self, pin: Pin, name: str, form: Form) -> None:
        _, shape = self._form = form
        self._rows = shape[0] if shape and shape[0] <= MOST else -1
        self._row = shape[1:]
        self._pin = pin
        self._name = name
        self._raw = name.encode()

    @classmethod
    def _of(cls, pin: Pin, name: str) -> "TensorSlice":
        try:
            return cls(pin, name, pin.form(name))
        finally:
            del pin

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> str:
        """As in the header: "BF16"."""
        return NAMES[self._form[0]]

    @property
    def shape(self) -> tuple[int, ...]:
        """In elements."""
        return self._form[1]

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
            raise TypeError("a slice of a file in memory is not pickled or copied: read the part, and send that")
        return _sliced, (self._pin.options, self._name)

    def __getitem__(self, index: Any) -> Array:
        """Read what numpy's indexing of the whole tensor would give, as an owned array.

        Takes integers (which drop their dimension), slices with any step, and an Ellipsis,
        for as many dimensions as are given; and for the first dimension an array of indices:
        `f.slice("w")[[7, 3, 5]]`, whose rows are read as `File.read_many` does. The result is always an array, of
        rank 0 where numpy would give a scalar. Of a sub-byte dtype (F4, F6) it is flat
        packed bytes, and the part must begin and end at whole bytes.

        Raises IndexError for an integer outside or too many indices, TypeError for
        masks, other arrays of indices and newaxis, FormatError (SUBBYTE) for a cut inside a byte,
        and what `File.read` raises.
        """
        try:
            number, shape = self._form
            if (
                type(index) is slice
                and index.step is None
                and type(start := index.start) is type(stop := index.stop) is int
                and 0 <= start <= stop <= self._rows
            ):  # as most ask, and as `cut` would
                ranges, count, shape, is_one_run = pack_range(start, stop, 1), 1, (stop - start, *self._row), True
            elif picks_rows(index):
                return bulk.read_parts(self._pin, [(self._name, index)], None)[0]
            else:
                try:
                    ranges, count, shape, is_one_run = cut(index, shape)
                except IndexError as problem:
                    raise outside(problem, self._name, shape) from None
            raw = self._raw
            dtype = WHOLE[number]
            if dtype is None:
                dtype, shape = BYTES, (_packed_size(self._pin.handle, raw, ranges, count),)
            out, address = new_array(shape, dtype)
            nbytes = out.nbytes
            if is_one_run and nbytes <= BRIEF and self._pin.alone:
                handle, place = self._pin.handle, c_void_p(address)
                status = _brief_read(handle, raw, SIZES[len(raw)], ranges, SIZES[count], place, SIZES[nbytes], None)
                del handle  # see _pin.py
                if status:
                    raise error(status)
            else:
                self._pin.call(_abi.st_read_slice, raw, len(raw), ranges, count, address, nbytes, None)
            return out
        finally:
            del self


def _sliced(options: dict[str, Any], name: str) -> TensorSlice:
    from .file import open

    return open(**options).slice(name)


def _packed_size(handle: Handle, raw: bytes, ranges: bytes, n: int) -> int:
    """Bytes of a part whose elements are smaller than one. FormatError (SUBBYTE) for a cut inside a byte."""
    nbytes = ctypes.c_uint64()
    status = _abi.st_slice_shape(handle, raw, len(raw), ranges, n, None, 0, None, nbytes)
    if status:
        del handle  # see _pin.py
        raise error(status)
    return nbytes.value
