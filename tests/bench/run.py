"""libst against stock safetensors 0.8: time to open, memory of the index, cost of a change.

Every pair alternates (stock, libst, stock, …) on the same warm files; numbers are medians.

    run.py BUILD-TREE [--quick]     as table.py; --quick: 128 MiB for 1 GiB, fewer rounds
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median

import libst
import llama
import numpy as np
import safetensors
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from table import (
    BUILD,
    HERE,
    MIB,
    PLACE,
    QUICK,
    filesystem,
    heading,
    mebibytes,
    note,
    program,
    row,
    seconds,
    summary,
    timed,
)

ROUNDS = 3 if QUICK else 15
KEYS_AT_LEAST = {1_000: 5, 10_000: 7, 100_000: 12}  # by the number of tensors: how many times as fast as stock


# ------------------------------------------------------------------ opening

def catalogue(path: Path, count: int) -> None:
    """Many tiny tensors with the names of a transformer."""
    names = (f"model.layers.{i}.{name}" for i in range(count) for name in llama.LAYER)
    entries = {n: {"dtype": "BF16", "shape": [2, 2], "data_offsets": [8 * i, 8 * i + 8]} for i, n in zip(range(count), names)}
    header = json.dumps({"__metadata__": {"format": "pt"}} | entries, separators=(",", ":")).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8 * count))


def stock_open(path: str) -> None:
    with safe_open(path, framework="np"):
        pass


def stock_keys(path: str) -> list[str]:
    with safe_open(path, framework="np") as f:
        return list(f.keys())


def libst_open(path: str) -> None:
    with libst.open(path):
        pass


def libst_keys(path: str) -> list[str]:
    with libst.open(path) as f:
        return list(f.keys())


def opening(count: int) -> None:
    path = PLACE / f"{count}.safetensors"
    catalogue(path, count)
    name = str(path)
    assert sorted(stock_keys(name)) == sorted(libst_keys(name))
    times = max(1, 20_000 // count)
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})  # both on one: another would be asleep between two rounds, and slow at first
    bench = subprocess.Popen([BUILD / "tests/bench/open_bench", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    got: dict[str, list[float]] = {k: [] for k in ("stock keys", "C open", "C describe", "libst keys", "stock open", "libst open")}
    for _ in range(ROUNDS):
        got["stock keys"].append(timed(lambda: stock_keys(name), times))
        print(times, file=bench.stdin, flush=True)
        counted, described = map(int, bench.stdout.readline().split())
        got["C open"].append(counted / 1e9)
        got["C describe"].append(described / 1e9)
        got["libst keys"].append(timed(lambda: libst_keys(name), times))
        got["stock open"].append(timed(lambda: stock_open(name), times))
        got["libst open"].append(timed(lambda: libst_open(name), times))
    bench.stdin.close()
    assert bench.wait() == 0
    os.sched_setaffinity(0, processors)
    m = {k: median(v) for k, v in got.items()}
    row(f"open {count:,} tensors: C ABI, st_open + st_count + st_close", m["stock keys"], m["C open"], seconds, at_least=15)
    row("  C ABI, and st_at of every tensor", m["stock keys"], m["C describe"], seconds)
    row("  Python, open and list the keys", m["stock keys"], m["libst keys"], seconds, at_least=KEYS_AT_LEAST[count])
    row("  Python, open only", m["stock open"], m["libst open"], seconds)


def memory(count: int) -> None:
    def grown(who: str) -> tuple[float, float]:
        runs = [subprocess.run([sys.executable, HERE / "resident.py", who, PLACE / f"{count}.safetensors"], check=True, capture_output=True, text=True).stdout.split() for _ in range(3)]
        return median(int(r[0]) for r in runs), median(int(r[1]) for r in runs)

    stock, c_abi, python = grown("stock"), grown("c-abi"), grown("python")
    row(f"index of {count:,} tensors in memory: C ABI", stock[0], c_abi[0], mebibytes, at_most=1 / 3)
    row("  C ABI, anonymous memory only", stock[1], c_abi[1], mebibytes, multiple=True)
    row("  Python", stock[0], python[0], mebibytes, at_most=1 / 3)


# ------------------------------------------------------------------ changing

def updates(path: Path, tensor: str, rounds: int) -> dict[str, float]:
    os.sync()
    return {what: median(times) for what, times in program(BUILD / "tests/bench/update_bench", path, tensor, rounds).items()}


def stock_change(path: Path, tensor: str) -> None:
    tensors = load_file(path)
    tensors[tensor] = -tensors[tensor]
    save_file(tensors, path, metadata={"format": "pt"})


def changing() -> None:
    path = PLACE / "large.safetensors"
    size = 128 if QUICK else 1024
    small, large = "model.layers.0.self_attn.k_proj.weight", "model.embed_tokens.weight"
    llama.write(path, size * MIB)
    stock_times = []
    for _ in range(3):
        os.sync()  # the last round's pages, which stock leaves to the system
        stock_times.append(timed(lambda: stock_change(path, small)))
    m = updates(path, small, ROUNDS)
    row(f"change 4 MiB of {size} MiB: st_update, durable", median(stock_times), m["steady"], seconds, at_least=300)
    row("  the first update on a fresh handle", median(stock_times), m["fresh-first"], seconds)
    row("  open, update, close", median(stock_times), m["fresh-whole"], seconds)
    row("  against pwrite + fdatasync of the same bytes", m["raw"], m["steady"], seconds, at_most=4, peer="raw")
    row("  the same, first update on a fresh handle", m["raw"], m["fresh-first"], seconds, multiple=True, peer="raw")
    m = updates(path, large, max(3, ROUNDS // 2))
    what = llama.nbytes(llama.tensors(size * MIB)[large]) / MIB
    row(f"change {what:.0f} MiB of {size} MiB: against pwrite + fdatasync", m["raw"], m["steady"], seconds, at_most=2.5, peer="raw")
    row("  the same, first update on a fresh handle", m["raw"], m["fresh-first"], seconds, multiple=True, peer="raw")


def changing_rows() -> None:
    """By turns with the whole tensor, as an array of indices in any order is worth it up to some part of the rows."""
    path, count = PLACE / "rows.safetensors", 100_000 if QUICK else 1_000_000
    values = np.random.default_rng(1).random((count, 32), np.float32)
    save_file({"rows": values}, path)
    order = np.random.default_rng(2).permutation(count)
    parts = {part: (order[: int(count * part)], values[order[: int(count * part)]]) for part in (0.01, 0.05, 0.25, 1)}
    whole, some = [], {part: [] for part in parts}
    with libst.open(path, "r+") as f:
        for _ in range(ROUNDS):
            whole.append(timed(partial(f.update, "rows", values)))
            for part, (at, given) in parts.items():
                some[part].append(timed(partial(f.update, "rows", given, at=at)))
    for number, (part, times) in enumerate(some.items()):
        title = f"change rows of 128 bytes of {count:,}, in any order: {part:.0%} of them" if number == 0 else f"  {part:.0%} of them"
        row(title, median(whole), median(times), seconds, multiple=True, peer="whole")


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    kind = filesystem(PLACE)
    heading(f"stock safetensors {safetensors.__version__}, libst {libst.__version__}, {os.cpu_count()} processors, files on {kind}")
    if kind == "tmpfs":
        note("tmpfs has no disk behind it: fdatasync is free, and these numbers say nothing about changes. Set BENCH_DIR.")
    try:
        for count in [1_000, 10_000] if QUICK else [1_000, 10_000, 100_000]:
            opening(count)
        memory(count)
        changing()
        changing_rows()
    finally:
        shutil.rmtree(PLACE)
    summary()


if __name__ == "__main__":
    main()
