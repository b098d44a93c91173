"""Structs that may grow, as st.h has them."""

import ctypes
from typing import Any, TypeVar

Struct = TypeVar("Struct", bound=ctypes.Structure)


def sized(struct: type[Struct], **fields: Any) -> Struct:
    """One with its size, and zero, the default of each, in fields that are not given. Of a number that the field has no
    room for ctypes takes the last bits: see `number` in _arguments.py."""
    return struct(struct_size=ctypes.sizeof(struct), **fields)
