"""Draw the curves: SVG files from points, which are lines of table.py's JSON. Prints the names of the files.

    plots.py POINTS FOLDER
"""

from __future__ import annotations

import json
import sys
from itertools import cycle
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402
from plot_list import PLOTS, Plot  # noqa: E402

matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "libst", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
OURS, PEERS = ["#1f6fb4", "#0b3c66", "#63b3ed"], ["#c44e52", "#7f7f7f", "#dd8452"]


def shown_seconds(s: float, _: int = 0) -> str:
    for unit, scale in (("s", 1), ("ms", 1e-3)):
        if s >= scale:
            return f"{s / scale:g} {unit}"
    return f"{s * 1e6:g} µs"


def draw(plot: Plot, points: list[dict], file: Path) -> None:
    figure, axes = plt.subplots(figsize=(7, 4))
    ours, peers = cycle(OURS), cycle(PEERS)
    xs = sorted({p["x"] for p in points})
    for series in dict.fromkeys(p["series"] for p in points):
        mine = series.startswith("libst")
        line = sorted((p["x"], p["y"]) for p in points if p["series"] == series)
        axes.plot(*zip(*line), marker="o" if mine else "s", markersize=4, linewidth=2 if mine else 1.3, color=next(ours if mine else peers), label=series)
    if plot.log_x:
        axes.set_xscale("log", base=plot.log_x)
    axes.set_yscale("log" if plot.log_y else "linear")
    axes.xaxis.set_major_locator(FixedLocator(xs))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: plot.show_x(x)))
    axes.yaxis.set_major_formatter(FuncFormatter(shown_seconds))
    axes.set_xlabel(plot.x)
    axes.set_title(plot.title, loc="left")
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def draw_each(curves: dict[str, list[tuple[float, float]]], x: str, file: Path) -> None:
    """Curves that have nothing in common but their x: one above the other."""
    figure, rows = plt.subplots(len(curves), sharex=True, figsize=(7, 1.7 * len(curves)))
    for axes, (title, points) in zip(rows, curves.items()):
        axes.plot(*zip(*points), color=OURS[0], linewidth=1.5)
        axes.set_ylim(bottom=0)
        axes.set_title(title, loc="left", fontsize=9)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    rows[-1].set_xlabel(x)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def main() -> None:
    points = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    folder = Path(sys.argv[2])
    for name in dict.fromkeys(p["plot"] for p in points):
        draw(PLOTS[name], [p for p in points if p["plot"] == name], folder / PLOTS[name].file)
        print(PLOTS[name].file)


if __name__ == "__main__":
    main()
