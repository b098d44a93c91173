"""Curves: time to open against the number of tensors, time of an update against the size of the file and of the change.

    scaling.py BUILD-TREE [--quick]     as table.py; --quick: short curves

Large files are sparse where that changes nothing: an update writes its tensor, which has its blocks before anything is
timed, and its journal. Stock reads and writes the whole file, so its curve ends where that takes seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import libst
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from table import BUILD, MIB, PLACE, QUICK, filesystem, note, point, program, seconds, timed

KIB = 1 << 10
COUNTS = [10, 1_000, 10_000] if QUICK else [10, 100, 1_000, 10_000, 100_000, 1_000_000]
FILES = [64 * MIB << i for i in ((0, 2) if QUICK else range(0, 9, 2))]  # to 16 GiB
STOCK_TO = 1024 * MIB
PAYLOADS = [4 * KIB << i for i in (range(0, 11, 5) if QUICK else range(0, 17, 2))]  # to 256 MiB
CHANGED = 4 * MIB  # where the size of the file varies
ROUNDS = 3 if QUICK else 9


def header(sizes: dict[str, int]) -> bytes:
    """Of a file of bytes."""
    entries, at = {}, 0
    for name, size in sizes.items():
        entries[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    return len(text).to_bytes(8, "little") + text


def make(path: Path, sizes: dict[str, int]) -> None:
    """Sparse: no tensor has a block."""
    with path.open("wb") as f:
        begin = f.write(header(sizes))
        f.truncate(begin + sum(sizes.values()))


def show(plot: str, series: str, x: float, y: float) -> None:
    point(plot, series, x, y)
    print(f"{plot:32} {series:36} {x:>14,} {seconds(y):>12}", flush=True)


# ------------------------------------------------------------------ opening

def stock_keys(path: Path) -> int:
    with safe_open(path, framework="np") as f:
        return len(f.keys())


def libst_keys(path: Path) -> int:
    with libst.open(path) as f:
        return len(list(f))


def c_open(path: Path, repeat: int) -> float:
    out = subprocess.run([BUILD / "tests/bench/open_bench", path], input=f"{repeat}\n", check=True, capture_output=True, text=True).stdout
    return int(out.split()[0]) / 1e9


def opening() -> None:
    path = PLACE / "open.safetensors"
    for count in COUNTS:
        make(path, {f"layers.{i}.w": 1 for i in range(count)})
        found: dict[str, list[float]] = {"stock, keys": [], "libst in Python, keys": [], "libst, C ABI": []}
        rounds = ROUNDS if count <= 10_000 else 3
        repeat = max(1, 10_000 // count)
        for _ in range(rounds):
            found["stock, keys"].append(timed(lambda: stock_keys(path), repeat))
            found["libst in Python, keys"].append(timed(lambda: libst_keys(path), repeat))
            found["libst, C ABI"].append(c_open(path, repeat))
        for series, times in found.items():
            show("open against tensors", series, count, median(times))


# ------------------------------------------------------------------ changing

def updates(path: Path, tensor: str) -> Iterator[tuple[str, float]]:
    os.sync()
    found = program(BUILD / "tests/bench/update_bench", path, tensor, ROUNDS)
    yield "libst, durable", median(found["steady"])
    yield "pwrite + fdatasync", median(found["raw"])


def stock_change(path: Path, tensor: str) -> float:
    """Load, change, save. What it leaves to the system to write does not count, and is not durable."""

    def change() -> None:
        tensors = load_file(path)
        tensors[tensor] = tensors[tensor] ^ 1
        save_file(tensors, path)

    took = timed(change)
    os.sync()
    return took


def file_sizes() -> None:
    for size in FILES:
        path = PLACE / "large.safetensors"
        rest = size - CHANGED
        make(path, {"before": rest // 2, "changed": CHANGED, "behind": rest - rest // 2})
        for series, time in updates(path, "changed"):
            show("update against file", series, size, time)
        if size <= STOCK_TO:
            show("update against file", "stock: load and save", size, median(stock_change(path, "changed") for _ in range(3 if size < STOCK_TO else 1)))
        path.unlink()


def payloads() -> None:
    path = PLACE / "payloads.safetensors"
    make(path, {str(size): size for size in PAYLOADS})
    for size in PAYLOADS:
        for series, time in updates(path, str(size)):
            show("update against payload", series, size, time)
    for size in PAYLOADS:
        show("update against payload", f"stock: load and save {sum(PAYLOADS) // MIB} MiB", size, stock_change(path, str(size)))


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    note(f"Curves; files on {filesystem(PLACE)}")
    try:
        opening()
        file_sizes()
        payloads()
    finally:
        shutil.rmtree(PLACE)


if __name__ == "__main__":
    main()
