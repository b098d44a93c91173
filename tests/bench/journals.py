"""Redo against undo journals, on fresh loop-mounted xfs and btrfs: what an update of each size costs, next to a bare
pwrite + fdatasync of the same bytes. From which size on undo is worth it is a constant of core/journal/undo.cpp; this
table is where it comes from. Needs root.

    journals.py BUILD-TREE [--quick]     as table.py
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from statistics import median

import disk
import table
from table import BUILD, QUICK, cells, program

PLACE = table.PLACE / "journals"
KIB = 1 << 10
SIZES = [64 * KIB, 256 * KIB, 512 * KIB, 1024 * KIB, 2048 * KIB, 4096 * KIB, 16384 * KIB, 65536 * KIB]
IMAGE = 1 << 30


def put_model(path: Path) -> None:
    """A tensor of each size, none aligned; each has a small one behind it."""
    header, at, sizes = {}, 0, []
    for size in SIZES:
        for name, n in ((f"t{size}", size), (f"after{size}", 4500)):
            header[name] = {"dtype": "U8", "shape": [n], "data_offsets": [at, at + n]}
            sizes.append(n)
            at += n
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(at))


def measure(path: Path, size: int, journal: str, rounds: int) -> dict[str, list[float]]:
    found = program(BUILD / "tests/bench/update_bench", path, f"t{size}", rounds, environment={"ST_JOURNAL": journal})
    return {what: [1e3 * s for s in times] for what, times in found.items()}


def compare(kind: str, size: int, path: Path) -> None:
    """By turns, so that whatever else the machine does falls on both."""
    got: dict[str, list[float]] = {}
    for _ in range(2 if QUICK else 5):
        for journal in ("redo", "undo"):
            disk.sync_filesystem(path.parent)
            for what, times in measure(path, size, journal, 3 if size > 8 << 20 else 5).items():
                got.setdefault("raw" if what == "raw" else f"{journal} {what}", []).extend(times)
    m = {what: median(times) for what, times in got.items()}
    names = ("raw", "redo steady", "undo steady", "redo fresh-whole", "undo fresh-whole")
    columns = [m[c] for c in names]
    ratios = (m["undo steady"] / m["redo steady"], m["undo fresh-whole"] / m["redo fresh-whole"])
    print(f"{kind:6} {size // KIB:7} " + " ".join(f"{c:9.2f}" for c in columns) + "  " + " ".join(f"{r:7.2f}x" for r in ratios), flush=True)
    shown = {name: f"{m[name]:.2f} ms" for name in names}
    cells("redo and undo journals", disk=kind, size=f"{size // KIB:,} KiB", **shown)


def main() -> None:
    if why := disk.why_not():
        sys.exit(f"journals.py: {why}")
    disk.enter_own_namespace()
    PLACE.mkdir(parents=True, exist_ok=True)
    print("milliseconds, medians; steady: st_update on a warm handle, whole: open, st_update, close")
    print(f"{'':6} {'':7} {'':9} {'steady':>19} {'whole':>19}  {'undo/redo':>17}")
    print(f"{'':6} {'KiB':>7} {'raw':>9} {'redo':>9} {'undo':>9} {'redo':>9} {'undo':>9}  {'steady':>8} {'whole':>8}")
    try:
        for kind in ("xfs", "btrfs"):
            with disk.Disk(PLACE, kind, size=IMAGE) as d:
                path = d.mount() / "model.safetensors"
                put_model(path)
                for size in SIZES:
                    compare(kind, size, path)
    finally:
        shutil.rmtree(PLACE)


if __name__ == "__main__":
    main()
