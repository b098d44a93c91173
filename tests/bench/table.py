"""What the parts of the benchmark share: their settings, and their figures. These are printed as a table and, if the
environment's BENCH_JSON names a file, added to it as lines of JSON for `report`. Nothing is asserted: a row says what was
measured, the target, and whether it was met.

    PART.py BUILD-TREE [--quick]     as run.sh calls it; --quick: smaller files, fewer rounds; for trying the programs out
    BENCH_DIR                        where files go: a real disk, not tmpfs (default: BUILD-TREE/bench-tmp)

A line of JSON has "part" (the program), "kind", and of a
    note     text
    row      group, what, peer, values and shown (the peer's, libst's), ratio, target, met; bound, if measured in pairs
    cells    table, cells (by column): a line of a table of the part's own
    point    plot, series, x, y
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
BUILD = Path(sys.argv[1]).resolve()
QUICK = "--quick" in sys.argv
PLACE = Path(os.environ.get("BENCH_DIR", BUILD / "bench-tmp"))
MIB = 1 << 20

rows: list[dict] = []


# ------------------------------------------------------------------ figures as text

def seconds(s: float) -> str:
    for unit, scale in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if s >= scale:
            return f"{s / scale:.2f} {unit}" if scale >= 1e-3 else f"{s / scale:.1f} {unit}"
    return f"{s * 1e9:.0f} ns"


def mebibytes(n: float) -> str:
    return f"{n / MIB:.1f} MiB"


def per_second(rate: float) -> str:
    return f"{rate:.0f}/s"


def times(ratio: float) -> str:
    return f"{ratio:,.2f}x" if ratio < 10 else f"{ratio:,.0f}x"


# ------------------------------------------------------------------ figures as they come

def _record(kind: str, **figure: object) -> None:
    if file := os.environ.get("BENCH_JSON"):
        with open(file, "a") as f:
            f.write(json.dumps({"part": Path(sys.argv[0]).stem, "kind": kind, **figure}) + "\n")


def note(text: str) -> None:
    """What a reader of the figures must know."""
    _record("note", text=text)
    print(text, flush=True)


def heading(text: str) -> None:
    """Before the first row."""
    print()
    note(text)
    print(f"{'':58} {'peer':>6} {'the peer':>11} {'libst':>11} {'ratio':>9} {'target':>9}")


def row(what: str, other: float, ours: float, show, *, at_least: float | None = None, at_most: float | None = None, peer: str = "stock", multiple: bool = False) -> None:
    """A line: how many times as good as the peer, or (at_most, multiple) what multiple of the peer's. An indented name belongs to the last full one."""
    ratio = ours / other if at_most or multiple else other / ours
    target = f">= {at_least:g}x" if at_least else f"<= {at_most:.3g}x" if at_most else "-"
    met = "" if target == "-" else "met" if (ratio >= at_least if at_least else ratio <= at_most) else "MISSED"
    group = rows[-1]["group"] if what.startswith(" ") else what.split(":")[0]
    full = f"{group}: {what.strip()}" if what.startswith(" ") else what
    rows.append(dict(what=full, group=group, peer=peer, values=[other, ours], shown=[show(other), show(ours)], ratio=ratio, target=target, met=met))
    _record("row", **rows[-1])
    print(f"{what:58} {peer:>6} {show(other):>11} {show(ours):>11} {times(ratio):>9} {target:>9}  {met}".rstrip(), flush=True)


def paired(what: str, others: list[float], ours: list[float], *, bound: float, at_least: float | None, peer: str) -> None:
    """A line of seconds that were measured in rounds: medians, the median of the rounds' ratios, and what that is at least,
    by which the target is judged."""
    ratio = median(other / our for other, our in zip(others, ours))
    group = rows[-1]["group"] if what.startswith(" ") else what.split(":")[0]
    full = f"{group}: {what.strip()}" if what.startswith(" ") else what
    both = [f"{seconds(median(of))} (min {seconds(min(of))})" for of in (others, ours)]
    target = f">= {at_least:g}x" if at_least else "-"
    met = "" if target == "-" else "met" if bound >= at_least else "MISSED"
    rows.append(dict(what=full, group=group, peer=peer, values=[median(others), median(ours)], shown=both, ratio=ratio, bound=bound, target=target, met=met))
    _record("row", **rows[-1])
    print(f"{what:58} {peer:>6} {both[0]:>11} {both[1]:>11} {times(ratio):>9} at least {times(bound)} {target:>9}  {met}", flush=True)


def spread(what: str, others: list[float], ours: list[float], *, at_most: float, peer: str) -> None:
    """A line of nanoseconds that some processes of each took: medians, and from where to where they went. The ratio, which
    is to be at most so much, is the medians'."""
    both = [f"{median(of) * 1e9:.1f} ns ({min(of) * 1e9:.1f} to {max(of) * 1e9:.1f})" for of in (others, ours)]
    ratio = median(ours) / median(others)
    met = "met" if ratio <= at_most else "MISSED"
    target = f"<= {at_most:.3g}x"
    rows.append(dict(what=what, group=what.split(":")[0], peer=peer, values=[median(others), median(ours)], shown=both, ratio=ratio, target=target, met=met))
    _record("row", **rows[-1])
    print(f"{what:58} {peer:>6} {both[0]:>11} {both[1]:>11} {times(ratio):>9} {target:>9}  {met}", flush=True)


def cells(table: str, **columns: str) -> None:
    """A line of a table of the part's own, which prints it itself."""
    _record("cells", table=table, cells=columns)


def point(plot: str, series: str, x: float, y: float) -> None:
    _record("point", plot=plot, series=series, x=x, y=y)


def summary() -> None:
    missed = [r["what"] for r in rows if r["met"] == "MISSED"]
    print(f"\n{sum(r['met'] == 'met' for r in rows)} targets met, {len(missed)} missed" + "".join(f"\n  missed: {m}" for m in missed))


# ------------------------------------------------------------------ measuring

def timed(work, repeat: int = 1) -> float:
    """Seconds of one call; freeing what the last one gives does not count."""
    begin = time.perf_counter()
    for _ in range(repeat):
        kept = work()
    took = time.perf_counter() - begin
    del kept
    return took / repeat


def program(*command: object, environment: dict[str, str] | None = None) -> dict[str, list[float]]:
    """Seconds by name, from a program that prints "<what> <nanoseconds>" a line."""
    out = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, env={**os.environ, **(environment or {})}).stdout
    found: dict[str, list[float]] = {}
    for line in out.splitlines():
        what, ns = line.split()
        found.setdefault(what, []).append(int(ns) / 1e9)
    return found


def filesystem(path: Path) -> str:
    """As in the mount table. `stat -f` has one word for ext2, ext3 and ext4."""
    asked = subprocess.run(["findmnt", "-no", "FSTYPE", "-T", path], capture_output=True, text=True, check=True)
    return asked.stdout.strip()
