"""Structs that may grow, as st.h has them."""

import ctypes
from typing import Any, TypeVar

Struct = TypeVar("Struct", bound=ctypes.Structure)


def sized(struct: type[Struct], **fields: Any) -> Struct:
    """One with its size, and zero, the default of each, in fields that are not given. ValueError for a number that the
    field has no room for, of which ctypes would take the last bits."""
    made = struct(struct_size=ctypes.sizeof(struct), **fields)
    for name, value in fields.items():
        if hasattr(value, "__index__") and getattr(made, name) != value:
            most = 2 ** (8 * getattr(struct, name).size) - 1
            raise ValueError(f"{name} is a number from 0 to {most}, not {value!r}")
    return made
