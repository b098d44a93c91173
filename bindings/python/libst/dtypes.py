"""The 22 element types of the format and what numpy calls them.

BF16 and the F8 types are those of the package ml_dtypes. F4 and F6 elements are
smaller than a byte and numpy has no packed types: such a tensor is a flat uint8
array of its packed bytes, and `File.info` tells its logical shape.
"""

from typing import Any, Optional

import ml_dtypes
import numpy as np

# number as in st.h, name as in a header, numpy's type of what a view holds
_TABLE: tuple[tuple[int, str, Any], ...] = (
    (1, "BOOL", np.bool_),
    (2, "F4", None),
    (3, "F6_E2M3", None),
    (4, "F6_E3M2", None),
    (5, "U8", np.uint8),
    (6, "I8", np.int8),
    (7, "F8_E5M2", ml_dtypes.float8_e5m2),
    (8, "F8_E4M3", ml_dtypes.float8_e4m3fn),
    (9, "F8_E8M0", ml_dtypes.float8_e8m0fnu),
    (10, "F8_E4M3FNUZ", ml_dtypes.float8_e4m3fnuz),
    (11, "F8_E5M2FNUZ", ml_dtypes.float8_e5m2fnuz),
    (12, "I16", np.int16),
    (13, "U16", np.uint16),
    (14, "F16", np.float16),
    (15, "BF16", ml_dtypes.bfloat16),
    (16, "I32", np.int32),
    (17, "U32", np.uint32),
    (18, "F32", np.float32),
    (19, "C64", np.complex64),
    (20, "F64", np.float64),
    (21, "I64", np.int64),
    (22, "U64", np.uint64),
)

BYTES: "np.dtype[Any]" = np.dtype(np.uint8)

#: By number: the name in a header.
NAMES: dict[int, str] = {number: name for number, name, _ in _TABLE}

#: By number: the types of less than a byte, which numpy sees as packed bytes.
PACKED: frozenset[int] = frozenset(number for number, _, kind in _TABLE if kind is None)

#: By number, at index 0 nothing: the numpy dtype of a view.
NUMPY: list[Optional["np.dtype[Any]"]] = [None] + [BYTES if kind is None else np.dtype(kind) for _, _, kind in _TABLE]

#: By numpy dtype: the number.
NUMBERS: dict["np.dtype[Any]", int] = {np.dtype(kind): number for number, _, kind in _TABLE if kind is not None}
