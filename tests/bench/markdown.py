"""The report's text: tables of the figures that the parts recorded, and the plots. It measures nothing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from plot_list import PLOTS

TITLES = {
    "run": "Opening and changing",
    "many": "Many small things, each in a fresh process",
    "commits": "One durable change",
    "transactions": "Transactions",
    "journals": "Redo and undo journals",
    "local": "Reading from a local disk",
    "distance": "Reading from an object store",
    "remote": "Models behind URLs",
    "two_hosts": "Several hosts",
    "layout": "Changing the layout",
    "bindings": "The bindings",
    "loads": "Loads into torch, each in a fresh process",
    "stock_benches": "Stock's own benchmarks",
    "deltas": "Deltas",
    "scaling": "Curves: opening and changing",
    "latency": "Curves: far away",
}


@dataclass
class Outcome:
    """Of one part: its figures, as lines of table.py's JSON, if it failed its last words, and when it was measured."""

    part: str
    figures: list[dict]
    failure: str = ""
    day: str = ""


def write(path: Path, outcomes: list[Outcome], plots: list[str], facts: dict[str, str], quick: bool) -> None:
    blocks = ["# libst against its peers"]
    if quick:
        blocks.append("**A quick run on small files, which tries the programs out: its figures say nothing.**")
    blocks.append(
        "Written by `tests/bench/report`; [tests/README.md](../README.md) says what is compared. Figures are medians of alternating rounds. "
        "A ratio is how many times as fast as the peer libst is; where its target is a maximum, or the peer is a bare "
        "system call, it is libst's multiple of the peer's."
    )
    blocks.append(table(["", ""], [[name, value] for name, value in facts.items()]))
    sections = {} if quick else sections_of(path)  # of parts that were measured when it was written
    for outcome in outcomes:
        title = TITLES.get(outcome.part, outcome.part)
        sections[title] = "\n\n".join([f"## {title}", *section(outcome, plots)])
    order = list(TITLES.values())
    shown = [text for _, text in sorted(sections.items(), key=lambda s: order.index(s[0]) if s[0] in order else len(order))]
    blocks.append(verdict(shown, outcomes))
    path.write_text("\n\n".join([*blocks, *shown]) + "\n")


def sections_of(report: Path) -> dict[str, str]:
    """By their titles."""
    text = report.read_text() if report.exists() else ""
    return {part.partition("\n")[0]: "## " + part.rstrip("\n") for part in text.split("\n## ")[1:]}


def verdict(sections: list[str], outcomes: list[Outcome]) -> str:
    lines = [line.strip("| ").split(" | ") for text in sections for line in text.splitlines() if line.endswith((" met |", " MISSED |"))]
    missed = [f"- missed: {what}: {found}, target {wanted}" for what, _, _, _, found, wanted, met in lines if met == "MISSED"]
    failed = [f"- failed: {TITLES.get(o.part, o.part)}" for o in outcomes if o.failure]
    return "\n".join([f"{len(lines) - len(missed)} of {len(lines)} targets met.", "", *missed, *failed]).rstrip()


def section(outcome: Outcome, plots: list[str]) -> list[str]:
    blocks = [f"Measured on {outcome.day}."] if outcome.day else []
    if outcome.failure:
        blocks.append(f"This part failed.\n\n```\n{outcome.failure}\n```")
    for kind, group in groupby(outcome.figures, key=lambda f: (f["kind"], f.get("table", ""), f.get("plot", ""))):
        figures = list(group)
        if kind[0] == "note":
            blocks += [f["text"] for f in figures]
        elif kind[0] == "row":
            heads = ["", "peer", "the peer", "libst", "ratio", "target", ""]
            blocks.append(table(heads, [[f["what"], f["peer"], *f["shown"], shown_ratio(f), target(f["target"]), f["met"]] for f in figures], left=2))
        elif kind[0] == "cells":
            blocks.append(table(list(figures[0]["cells"]), [list(f["cells"].values()) for f in figures], left=2))
    for name in dict.fromkeys(f["plot"] for f in outcome.figures if f["kind"] == "point"):
        title, file = PLOTS[name].title, PLOTS[name].file
        blocks.append(f"![{title}](plots/{file})" if file in plots else f"**{title}**")
        blocks.append(points([f for f in outcome.figures if f["kind"] == "point" and f["plot"] == name], name))
    return blocks


def shown_ratio(row: dict) -> str:
    """With what it is at least, where that is known."""
    return ratio(row["ratio"]) + (f" (≥ {ratio(row['bound'])})" if "bound" in row else "")


def points(figures: list[dict], name: str) -> str:
    """The plot's figures, a line for each x."""
    plot = PLOTS[name]
    series = list(dict.fromkeys(f["series"] for f in figures))
    found = {(f["x"], f["series"]): f["y"] for f in figures}
    lines = [[plot.show_x(x), *(milliseconds(found.get((x, s))) for s in series)] for x in sorted({f["x"] for f in figures})]
    return table([plot.x, *(f"{s}, ms" for s in series)], lines, left=0)


def milliseconds(s: float | None) -> str:
    return "" if s is None else f"{s * 1e3:,.3g}" if s < 1 else f"{s * 1e3:,.0f}"


def ratio(value: float) -> str:
    return f"{value:.2f}×" if value < 10 else f"{value:,.0f}×"


def target(text: str) -> str:
    return "" if text == "-" else text.replace(">= ", "≥ ").replace("<= ", "≤ ").replace("x", "×")


def table(heads: list[str], lines: list[list[str]], left: int = 1) -> str:
    """The first `left` columns to the left, the others to the right."""
    rule = ["---" if i < left else "---:" for i in range(len(heads))]
    return "\n".join("| " + " | ".join(str(c).replace("|", "\\|") for c in line) + " |" for line in [heads, rule, *lines])
