"""st.h in ctypes, and nothing else: types, structs, constants and functions by their C names.

Whoever calls these checks the status and keeps what it points at alive; file.py and its neighbours do. A name is passed
as bytes with its length, so that it may hold NUL.
"""

from ctypes import c_size_t, c_void_p
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

# Addresses instead of pointers to structs: _rows.py and bulk.py fill arrays of numpy's.
library.st_at.argtypes = (c_void_p, c_size_t, c_size_t, c_void_p)
library.st_read_many.argtypes = (c_void_p, c_void_p, *library.st_read_many.argtypes[2:])

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # the functions
