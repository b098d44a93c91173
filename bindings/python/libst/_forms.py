"""Element type, shape, size and place of every tensor of a file: a few steps for all of them, few for each."""

from typing import TYPE_CHECKING

from . import _abi
from ._few import FEW, SOME, some_forms
from ._rows import describe_all, shapes

if TYPE_CHECKING:
    from ._pin import Pin

#: dtype, shape
Form = tuple[int, tuple[int, ...]]


def forms_of_file(pin: "Pin") -> list[Form]:
    """Of one file, in the order of `names`."""
    try:
        count = _abi.st_count(pin.handle)
        return some_forms(pin.handle, count) if pin.alone and FEW < count <= SOME else all_forms(pin)[0]
    finally:
        del pin


def all_forms(pin: "Pin") -> tuple[list[Form], list[int], list[int]]:
    """Forms, bytes and file offsets, in the order of `names`. Those of one form share it."""
    try:
        few = pin.few()
        if few is not None:
            return [tensor[1:3] for tensor in few], [tensor[3] for tensor in few], [tensor[4] for tensor in few]
        rows = describe_all(pin.answer, _abi.st_count(pin.handle))
        known: dict[Form, Form] = {}
        forms = zip(rows["dtype"].tolist(), shapes(rows, _abi.st_shard_count(pin.handle) == 1))
        each = [known.setdefault(form, form) for form in forms]
        return each, rows["nbytes"].tolist(), rows["file_offset"].tolist()
    finally:
        del pin
