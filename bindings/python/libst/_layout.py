"""The orders in which a file has its tensors, by name."""

from . import _abi

_LAYOUTS = {"keep": _abi.ST_LAYOUT_KEEP, "canonical": _abi.ST_LAYOUT_CANONICAL, "stock": _abi.ST_LAYOUT_STOCK}


def layout_number(layout: str, allowed: tuple[str, ...] = ("keep", "canonical", "stock")) -> int:
    if layout not in allowed:
        raise ValueError(f"layout is one of {', '.join(map(repr, allowed))}, not {layout!r}")
    return _LAYOUTS[layout]
