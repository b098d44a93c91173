"""How a file that is written is laid out: the orders of its tensors by name, and the options of a save."""

import ctypes

from . import _abi
from ._callbacks import Callbacks
from ._waiting import Waiting

_LAYOUTS = {"keep": _abi.ST_LAYOUT_KEEP, "canonical": _abi.ST_LAYOUT_CANONICAL, "stock": _abi.ST_LAYOUT_STOCK}


def layout_number(layout: str, allowed: tuple[str, ...] = ("keep", "canonical", "stock")) -> int:
    if layout not in allowed:
        raise ValueError(f"layout is one of {', '.join(map(repr, allowed))}, not {layout!r}")
    return _LAYOUTS[layout]


def save_options(
    layout: str, alignment: int, header_reserve: int, waiting: Waiting, callbacks: Callbacks
) -> _abi.SaveOptions:
    options = _abi.SaveOptions()
    _abi.st_save_options_init(options, ctypes.sizeof(options))
    options.layout = layout_number(layout)
    options.alignment = alignment
    options.header_reserve = header_reserve
    options.lock_timeout_ms = waiting.turn_ms
    options.progress = callbacks.progress
    return options
