"""st.h in ctypes, and nothing else: types, structs, constants and functions by their C names.

Whoever calls these checks the status and keeps what it points at alive; file.py and its neighbours do. A name is passed
as bytes with its length, so that it may hold NUL.
"""

from ctypes import c_void_p
from typing import TYPE_CHECKING, Any

from ._library import library
from ._library import path as library_path
from ._st_h import *  # noqa: F403
from ._st_h import FUNCTIONS, declare

try:
    declare(library)
except AttributeError as missing:
    raise ImportError(f"{library_path} is older than this package ({missing})") from None

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

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # the functions
