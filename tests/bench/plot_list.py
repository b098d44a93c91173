"""The plots of the report: the names that table.point has for them, and what stands at their axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


def size(n: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} {unit}"
        n /= 1024
    return f"{n:.0f} GiB"


def number(n: float) -> str:
    return f"{n:,.0f}"


class Plot(NamedTuple):
    title: str
    file: str
    x: str
    show_x: Callable[[float], str] = number
    log_x: int = 0  # base; 0: linear
    log_y: bool = True


PLOTS = {
    "open against tensors": Plot("Time to open, by number of tensors", "open.svg", "tensors", log_x=10),
    "update against file": Plot("Time to change 4 MiB, by size of the file", "update_file.svg", "size of the file", size, log_x=2),
    "update against payload": Plot("Time to change a tensor, by its size", "update_payload.svg", "size of the tensor", size, log_x=2),
    "load against latency": Plot("Time to load a model, by distance of the store", "load_latency.svg", "latency of a request, ms"),
    "load against workers": Plot("Time to load a model, by number of workers", "load_workers.svg", "workers", log_x=2),
}
