"""The indices that stock takes, and its sentences about others."""

import operator
from typing import Any, Optional

from ._errors import SafetensorError


def stock_index(index: Any, shape: tuple[int, ...]) -> Any:
    """The index for `TensorSlice`, once it is sure that stock would take it."""
    # First what most ask, in few steps.
    if type(index) is slice or type(index) is int:
        if shape and _is_plain(index, shape[0]):
            return index
    elif type(index) is tuple:
        if len(index) <= len(shape) and all(map(_is_plain, index, shape)):
            return index
    elif index is Ellipsis and 0 not in shape:
        return index
    if isinstance(index, list):
        if index:
            raise SafetensorError("Non empty lists are not implemented")
        index = slice(0, 0)
    parts = list(index) if isinstance(index, tuple) else [index]
    ellipses = [place for place, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1:
        raise SafetensorError("Only one ellipsis (...) is allowed in slice index")
    if ellipses:
        missing = max(len(shape) - len(parts) + 1, 0)
        parts[ellipses[0] : ellipses[0] + 1] = [slice(None)] * missing
    checked = [_part(part, place, shape) for place, part in enumerate(parts)]
    complaint = _complaint(checked, shape)
    if complaint:
        shown = ", ".join(map(_shown, checked))
        raise SafetensorError(f"Error during slicing [{shown}] with shape {list(shape)}: {complaint}")
    return tuple(checked)


def _is_plain(part: Any, extent: int) -> bool:
    """Whether it is an integer or a slice that lies inside, of Python's own integers."""
    if type(part) is not slice:
        return type(part) is int and 0 <= part < extent
    start, stop, step = part.start, part.stop, part.step
    return (
        (extent > 0 if start is None else type(start) is int and 0 <= start < extent)
        and (stop is None or type(stop) is int and 0 <= stop <= extent)
        and (step is None or type(step) is int and step > 0)
    )


def _part(part: Any, place: int, shape: tuple[int, ...]) -> Any:
    if isinstance(part, slice):
        start, stop = _bound(part.start), _bound(part.stop)
        step = None if part.step is None else operator.index(part.step)
        if step is not None and step < 1:
            raise SafetensorError(f"Slice step must be a positive integer, got {step}")
        return slice(start, stop, step)
    number = _integer(part)
    if number is None or not -(2**31) <= number < 2**31:
        raise SafetensorError(f"Unsupported slice index at position {place}: expected slice, int, or ellipsis")
    if number >= 0:
        return number
    extent = shape[place] if place < len(shape) else 0
    if number + extent < 0:
        raise SafetensorError(f"Invalid index {number} for dimension {place} of size {extent}")
    return number + extent


def _integer(part: Any) -> Optional[int]:
    try:
        return int(operator.index(part))
    except TypeError:
        return None


def _bound(bound: Any) -> Any:
    if bound is None:
        return None
    number = operator.index(bound)
    if number < 0:
        raise OverflowError("can't convert negative int to unsigned")
    if number >= 2**64:
        raise OverflowError("int too big to convert")
    return number


def _complaint(parts: list[Any], shape: tuple[int, ...]) -> str:
    if len(parts) > len(shape):
        return "more slicing indexes than dimensions in tensor"
    for place, (part, extent) in reversed(list(enumerate(zip(parts, shape)))):
        if isinstance(part, slice):
            start = part.start or 0
            last = (extent if part.stop is None else part.stop) - 1
            outside = start if start >= extent else last
        else:
            outside = part
        if outside >= extent:
            return f"index {outside} out of bounds for tensor dimension #{place} of size {extent}"
    return ""


def _shown(part: Any) -> str:
    if not isinstance(part, slice):
        return str(part)
    text = f"{'' if part.start is None else part.start}:{'' if part.stop is None else part.stop}"
    return text if part.step is None else f"{text}:{part.step}"
