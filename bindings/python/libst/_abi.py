"""st.h in ctypes, and nothing else: types, structs, constants and functions by their C names.

Whoever calls these checks the status and keeps what it points at alive; file.py and its neighbours do. A name is passed
as bytes with its length, so that it may hold NUL.
"""

from ctypes import c_int32, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any

from ._library import library
from ._library import path as library_path
from ._st_h import *  # noqa: F403
from ._st_h import FUNCTIONS, declare

try:
    declare(library)
except AttributeError as missing:
    raise ImportError(
        f"{library_path} is older than this package ({missing}). Put a libst of the package's version there, or let "
        "LIBST_LIBRARY name one"
    ) from None

globals().update({name: getattr(library, name) for name in FUNCTIONS})

# Addresses, or bytes, instead of pointers: arrays of numpy's are filled, and st_range structs packed.
for _name, *_places in (
    ("st_at", 3),
    ("st_names", 1),
    ("st_read_many", 1),
    ("st_read_slice", 3),
    ("st_slice_shape", 3),
    ("st_txn_update_slice", 3, 5),
):
    _types = list(getattr(library, _name).argtypes)
    for _place in _places:
        _types[_place] = c_void_p
    getattr(library, _name).argtypes = _types


class _Sizes(dict[int, c_size_t]):
    """Numbers as size_t, each made once."""

    def __missing__(self, number: int) -> c_size_t:
        made = c_size_t(number)
        if len(self) < 4096:
            self[number] = made
        return made


def _bare(name: str) -> Any:
    """A function that takes its arguments as they are: bytes, None, and objects of ctypes, numbers in `SIZES`. Else
    ctypes looks a converter up for each of them at each call, which for a brief read is a tenth of its time. No
    number of Python's may be passed, as it would be cut to 32 bits."""
    function = library[name]  # one of its own
    function.restype = c_int32
    return function


SIZES = _Sizes()
bare_at = _bare("st_at")
bare_get = _bare("st_get")
bare_read = _bare("st_read")
bare_read_slice = _bare("st_read_slice")

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # the functions
