"""Many writers of one file, and many tensors in one transaction, against raw writes, in one table.

    transactions.py BUILD-TREE [--quick]     as table.py
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from statistics import median

from table import BUILD, MIB, PLACE, QUICK, filesystem, heading, per_second, program, row, seconds

PROCESSES = 8
ROUNDS = 1 if QUICK else 3
CHANGES = 5 if QUICK else 25  # of each process, a round


def make(path: Path, count: int, nbytes: int, shape: list[int] | None = None) -> None:
    entries = {f"t{i:04}": {"dtype": "U8", "shape": shape or [nbytes], "data_offsets": [i * nbytes, (i + 1) * nbytes]} for i in range(count)}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-(len(header) + 8) % 4096)
    with path.open("wb") as f:
        f.write(len(header).to_bytes(8, "little") + header)
        for _ in range(count):
            for at in range(0, nbytes, 64 * MIB):
                f.write(os.urandom(min(64 * MIB, nbytes - at)))
        os.fsync(f.fileno())


def measured(*arguments: object) -> dict[str, float]:
    """Medians, in seconds, of what the program tells."""
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        os.sync()
        for what, times in program(BUILD / "tests/bench/transactions_bench", *arguments).items():
            found.setdefault(what, []).extend(times)
    return {what: median(times) for what, times in found.items()}


def side_by_side() -> None:
    path = PLACE / "side-by-side.safetensors"
    make(path, PROCESSES, 4 * MIB)
    rates = {n: {what: n * CHANGES / s for what, s in measured("side-by-side", path, n, CHANGES).items()} for n in (1, PROCESSES)}
    many = rates[PROCESSES]
    row(f"{PROCESSES} processes, a 4 MiB tensor each: commits, against one", rates[1]["libst"], many["libst"], per_second, multiple=True, peer="one")
    row("  raw pwrite + fdatasync: 8 processes, against one", rates[1]["raw"], many["raw"], per_second, multiple=True, peer="raw")
    row("  commits against raw, 8 processes each: time of a commit", 1 / many["raw"], 1 / many["libst"], seconds, at_least=0.5, peer="raw")
    row("  commits against raw, one process each", rates[1]["raw"], rates[1]["libst"], per_second, multiple=True, peer="raw")


def together() -> None:
    path = PLACE / "together.safetensors"
    make(path, 1_000, 4096)
    m = measured("together", path)
    row("1,000 tensors of 4 KiB: one transaction, against 1,000 updates", m["singles"], m["transaction"], seconds, peer="single")
    row("  one transaction, against 1,000 pwrite + one fdatasync", m["raw"], m["transaction"], seconds, at_most=2, peer="raw")
    row("  the same, the first transaction of a handle", m["raw"], m["first-transaction"], seconds, multiple=True, peer="raw")


def rows() -> None:
    path = PLACE / "rows.safetensors"
    size = (64 if QUICK else 1024) * MIB
    make(path, 1, size, [size // 4096, 4096])
    m = measured("rows", path, 20 if QUICK else 100)
    row(f"10 rows of 4 KiB of a tensor of {size // MIB} MiB, against 10 pwrite + one fdatasync", m["raw"], m["libst"], seconds, at_most=2, peer="raw")


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    heading(f"Transactions: files on {filesystem(PLACE)}; a rate is better if it is higher, a time if it is lower")
    try:
        side_by_side()
        together()
        rows()
    finally:
        shutil.rmtree(PLACE)


if __name__ == "__main__":
    main()
