"""Element type, shape, size and place of every tensor of a file: a few steps for all of them, few for each."""

from functools import partial
from typing import Any

from . import _abi
from ._handle import Handle
from ._rows import describe_all, shapes

#: dtype, shape
Form = tuple[int, tuple[int, ...]]


def _answer(handle: Handle, function: Any, *args: Any) -> Any:
    return function(handle, *args)


def all_forms(handle: Handle) -> tuple[list[Form], list[int], list[int]]:
    """Forms, bytes and file offsets, in the order of `names`: of one file, which is open.

    Those of one form share it: tuples by the thousand would set the cycle collector going, over all that torch has."""
    try:
        rows = describe_all(partial(_answer, handle), _abi.st_count(handle))
        known: dict[Form, Form] = {}
        forms = zip(rows["dtype"].tolist(), shapes(rows, _abi.st_shard_count(handle) == 1))
        each = [known.setdefault(form, form) for form in forms]
        return each, rows["nbytes"].tolist(), rows["file_offset"].tolist()
    finally:
        del handle
