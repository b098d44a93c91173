"""Element type, shape, size and place of every tensor of a file: a few steps for all of them, none for each."""

import ctypes

import numpy as np

from . import _abi
from ._handle import Handle
from ._rows import describe_all
from .errors import check

#: dtype, shape
Form = tuple[int, tuple[int, ...]]

_MANY = 32  # from so many on numpy's columns cost less than ctypes' structs


def all_forms(handle: Handle) -> tuple[list[Form], list[int], list[int]]:
    """Forms, bytes and file offsets, in the order of `names`. Of one file: its shapes lie in one array (st_at).

    Those of one form share it: tuples by the thousand would set the cycle collector going, over all that torch has."""
    count = _abi.st_count(handle)
    try:
        if count < _MANY:
            tensors = (_abi.Tensor * count)()
            check(_abi.st_at(handle, 0, count, ctypes.addressof(tensors)))
            forms = [(t.dtype, tuple(t.shape[: t.rank])) for t in tensors]
            return forms, [t.nbytes for t in tensors], [t.file_offset for t in tensors]
        rows = describe_all(handle)
        shapes, ranks = rows["shape"], rows["rank"]
        first = int(shapes.min())
        dims = tuple((ctypes.c_uint64 * (int((shapes // 8 + ranks).max()) - first // 8)).from_address(first))
        places = ((shapes - np.uint64(first)) // 8).tolist()
        known: dict[Form, Form] = {}
        each = [
            known.setdefault(form, form)
            for dtype, place, rank in zip(rows["dtype"].tolist(), places, ranks.tolist())
            for form in ((dtype, dims[place : place + rank]),)
        ]
        return each, rows["nbytes"].tolist(), rows["file_offset"].tolist()
    finally:
        del handle
