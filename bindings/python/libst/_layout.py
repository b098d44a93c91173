"""How a file that is written is laid out: the orders of its tensors by name, and the options of a save."""

from . import _abi
from ._arguments import number
from ._callbacks import Callbacks
from ._sized import sized

_LAYOUTS = {"keep": _abi.ST_LAYOUT_KEEP, "canonical": _abi.ST_LAYOUT_CANONICAL, "stock": _abi.ST_LAYOUT_STOCK}


def layout_number(layout: str, allowed: tuple[str, ...] = ("keep", "canonical", "stock")) -> int:
    if layout not in allowed:
        raise ValueError(f"layout is one of {', '.join(map(repr, allowed))}, not {layout!r}")
    return _LAYOUTS[layout]


def save_options(
    layout: str, alignment: int, header_reserve: int, timeout_ms: int, callbacks: Callbacks
) -> _abi.SaveOptions:
    return sized(
        _abi.SaveOptions,
        layout=layout_number(layout),
        alignment=number("alignment", alignment),
        header_reserve=number("header_reserve", header_reserve, 2**64 - 1),
        lock_timeout_ms=timeout_ms,
        progress=callbacks.progress,
    )
