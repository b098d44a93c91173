"""What a durable change of one tensor costs: against a bare pwrite + fdatasync of the same bytes, SQLite and LMDB on this
disk, and with undo records on fresh loop-mounted xfs and btrfs, which needs root and is left out without.

    commits.py BUILD-TREE [--quick]     as table.py
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from statistics import median

import disk
import table
from table import BUILD, MIB, QUICK, filesystem, heading, note, program, row, seconds
from transactions import make

PLACE = table.PLACE / "commits"
SIZES = {4096: ("4 KiB", 2.0), MIB: ("1 MiB", 2.0), 4 * MIB: ("4 MiB", 2.6), 64 * MIB: ("64 MiB", 1.9)}
UNDO = (MIB, 4 * MIB)
SHARES_BLOCKS = ("xfs", "btrfs")


def rounds(nbytes: int) -> int:
    if QUICK:
        return 5
    return 300 if nbytes <= 4 * MIB else 20  # 64 MiB is written four times a round


def measured(folder: Path, nbytes: int, environment: dict[str, str] | None = None) -> dict[str, float]:
    """Medians, in seconds: raw, libst, and the peers that were there when the program was built."""
    here = folder / "one-size"
    here.mkdir()
    try:
        path = here / "model.safetensors"
        make(path, 2, nbytes)
        os.sync()
        found = program(BUILD / "tests/bench/commits_bench", path, "t0000", rounds(nbytes), here, environment=environment)
        return {what: median(times) for what, times in found.items()}
    finally:
        shutil.rmtree(here)


def redo() -> None:
    heading(f"One tensor changed, durably, on a steady handle: files on {filesystem(PLACE)}, redo records, medians of {rounds(4096)} (64 MiB: {rounds(64 * MIB)})")
    for nbytes, (shown, target) in SIZES.items():
        m = measured(PLACE, nbytes, {"ST_JOURNAL": "redo"})
        row(f"change {shown}: st_update, against pwrite + fdatasync", m["raw"], m["libst"], seconds, at_most=target, peer="raw")
        for peer, shown_peer, small in (("sqlite", "an UPDATE of SQLite (WAL, synchronous=FULL)", 1.4), ("lmdb", "a put of LMDB", 1.0)):
            if peer in m:
                row(f"  against {shown_peer}", m[peer], m["libst"], seconds, at_most=small if nbytes == 4096 else None, multiple=True, peer=peer)
        row(f"change {shown}: durable by the journal alone, the file follows", m["raw"], m["journal"], seconds, multiple=True, peer="raw")
        if "sqlite" in m:
            row("  against SQLite, which checkpoints later", m["sqlite"], m["journal"], seconds, multiple=True, peer="sqlite")
        row("  with the st_sync that follows", m["raw"], m["journal"] + m["follow"], seconds, multiple=True, peer="raw")
    lacking = {"sqlite", "lmdb"} - m.keys()
    if lacking:
        note(f"Not there when the benchmarks were built, and left out: {', '.join(sorted(lacking))}")


def undo() -> None:
    if why := disk.why_not():
        note(f"Undo records are left out: {why}")
        return
    disk.enter_own_namespace()
    for kind in SHARES_BLOCKS:
        heading(f"One tensor changed, durably, on a steady handle: a loop-mounted {kind}, undo records, medians of {rounds(MIB)}")
        with disk.Disk(PLACE, kind, size=1 << 30) as d:
            folder = d.mount()
            for nbytes in UNDO:
                m = measured(folder, nbytes, {"ST_JOURNAL": "undo"})
                row(f"{kind}, undo, change {SIZES[nbytes][0]}: st_update, against pwrite + fdatasync", m["raw"], m["libst"], seconds, multiple=True, peer="raw")


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    try:
        redo()
        undo()
    finally:
        shutil.rmtree(PLACE)
    table.summary()


if __name__ == "__main__":
    main()
