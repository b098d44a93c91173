"""Refuse an argument of another type or range, by its name."""

import operator
from typing import Any, Callable, Literal, Optional, TypeVar, Union

Function = TypeVar("Function", bound=Callable[..., object])

_MOST_32 = 2**32 - 1


def number(name: str, given: Any, most: int = _MOST_32) -> int:
    """The int of anything that Python takes for an index."""
    try:
        found = operator.index(given)
    except TypeError:
        raise TypeError(f"{name} is a number from 0 to {most}, not {given!r}") from None
    if not 0 <= found <= most:
        raise ValueError(f"{name} is a number from 0 to {most}, not {given!r}")
    return found


def function(name: str, given: "Union[Function, Literal[False], None]") -> Optional[Function]:
    """What C, or a function of this package, will call: a wrong one would only be told at its first call, or never."""
    if given is None or given is False:
        return None
    if not callable(given):
        raise TypeError(f"{name} must be callable, not {given!r}")
    return given
