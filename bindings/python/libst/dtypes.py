"""The 22 element types of the format and what numpy calls them.

BF16 and the F8 types are those of the package ml_dtypes. Where that package is missing, they are structured types of
one field, the bits of an element: `f["w"]["BF16"]` is an array of uint16. F4 and F6 elements are smaller than a byte
and numpy has no packed types: such a tensor is a flat uint8 array of its packed bytes, and `File.info` tells its
logical shape.
"""

from typing import Any, Optional

import numpy as np

try:
    import ml_dtypes
except ModuleNotFoundError:  # pip brings it; Debian 12 has no package of it
    ml_dtypes = None  # type: ignore[assignment]

#: For reports: which one there is.
ML_DTYPES = "no ml_dtypes" if ml_dtypes is None else f"ml_dtypes {ml_dtypes.__version__}"


def _of_ml_dtypes(name: str, theirs: str, bits: str) -> Any:
    return np.dtype([(name, bits)]) if ml_dtypes is None else getattr(ml_dtypes, theirs)


# number as in st.h, name as in a header, numpy's type of what a view holds
_TABLE: tuple[tuple[int, str, Any], ...] = (
    (1, "BOOL", np.bool_),
    (2, "F4", None),
    (3, "F6_E2M3", None),
    (4, "F6_E3M2", None),
    (5, "U8", np.uint8),
    (6, "I8", np.int8),
    (7, "F8_E5M2", _of_ml_dtypes("F8_E5M2", "float8_e5m2", "u1")),
    (8, "F8_E4M3", _of_ml_dtypes("F8_E4M3", "float8_e4m3fn", "u1")),
    (9, "F8_E8M0", _of_ml_dtypes("F8_E8M0", "float8_e8m0fnu", "u1")),
    (10, "F8_E4M3FNUZ", _of_ml_dtypes("F8_E4M3FNUZ", "float8_e4m3fnuz", "u1")),
    (11, "F8_E5M2FNUZ", _of_ml_dtypes("F8_E5M2FNUZ", "float8_e5m2fnuz", "u1")),
    (12, "I16", np.int16),
    (13, "U16", np.uint16),
    (14, "F16", np.float16),
    (15, "BF16", _of_ml_dtypes("BF16", "bfloat16", "<u2")),
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

#: By number: the same; None for packed bytes.
WHOLE: list[Optional["np.dtype[Any]"]] = [None if number in PACKED else dtype for number, dtype in enumerate(NUMPY)]

#: By numpy dtype: the number.
NUMBERS: dict["np.dtype[Any]", int] = {np.dtype(kind): number for number, _, kind in _TABLE if kind is not None}
