"""Reading from a local disk: a whole model into memory, warm and cold; the first tensor; one of many by name.

    local.py BUILD-TREE [--quick]     as table.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from statistics import median

import libst
import llama
from run import catalogue
from safetensors import safe_open
from safetensors.numpy import load_file
from table import BUILD, MIB, PLACE, QUICK, filesystem, heading, program, row, seconds, summary, timed

SIZE = (128 if QUICK else 1024) * MIB
ROUNDS = 3 if QUICK else 9


def bench(mode: str, path: Path, rounds: int) -> dict[str, list[float]]:
    return program(BUILD / "tests/bench/read_bench", mode, path, rounds)


def evict(path: Path) -> None:
    """Cold: nothing of the file in the page cache."""
    with path.open("rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm_load(path: Path) -> None:
    stock, ours, raw = [], [], {"fresh": [], "touched": [], "many": []}
    for _ in range(ROUNDS):
        stock.append(timed(lambda: load_file(path)))
        ours += bench("load", path, 3)["load"][1:]  # the first makes the process grow
        for what, times in bench("raw", path, 1).items():
            raw[what] += times
    stock, ours, raw = median(stock), median(ours), {what: median(times) for what, times in raw.items()}
    row(f"load {SIZE // MIB} MiB again in one process, warm, into owned memory: against load_file", stock, ours, seconds, at_least=3)
    row("  against two threads' pread into touched memory", raw["touched"], ours, seconds, at_least=0.9, peer="pread")
    row("  against two threads' pread into fresh memory", raw["fresh"], ours, seconds, peer="pread")
    row("  st_read_many into touched memory, against the same", raw["touched"], raw["many"], seconds, at_least=0.9, peer="pread")
    if hasattr(libst, "load"):
        row("  libst.load, against load_file", stock, median(timed(lambda: libst.load(path)) for _ in range(ROUNDS)), seconds, at_least=3)


def cold_load(path: Path) -> None:
    def fio() -> float:
        """Seconds to read it all, past the page cache, 1 MiB a request, 16 at a time."""
        command = ["fio", "--name=read", f"--filename={path}", f"--size={path.stat().st_size // MIB}M", "--rw=read", "--bs=1M"]
        command += ["--direct=1", "--ioengine=io_uring", "--iodepth=16", "--readonly", "--output-format=json"]
        read = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["jobs"][0]["read"]
        return path.stat().st_size / read["bw_bytes"]

    found: dict[str, list[float]] = {"fio": [], "load": [], "direct": [], "stock": []}
    for _ in range(max(3, ROUNDS // 3)):
        for mode in ("load", "direct"):
            evict(path)
            found[mode] += bench(mode, path, 1)["load"]
        evict(path)
        found["stock"].append(timed(lambda: load_file(path)))
        evict(path)
        found["fio"].append(fio())
    m = {what: median(times) for what, times in found.items()}
    row(f"load {SIZE // MIB} MiB, cold, past the cache: against fio's direct read", m["fio"], m["direct"], seconds, at_least=0.9, peer="fio")
    row("  through the cache, against fio's direct read", m["fio"], m["load"], seconds, peer="fio")
    row("  through the cache, against load_file", m["stock"], m["load"], seconds)


def first_tensor(path: Path) -> None:
    with safe_open(path, framework="np") as f:
        name = f.offset_keys()[0]

    def stock() -> int:
        with safe_open(path, framework="np") as f:
            return f.get_tensor(name).view("u1").ravel()[0]

    def python() -> int:
        with libst.open(path) as f:
            return f[name].view("u1").ravel()[0]

    times = [(timed(stock), timed(python)) for _ in range(ROUNDS * 3)]
    ours = bench("first", path, ROUNDS * 3)["first"]
    theirs = median(t[0] for t in times)
    row("open and look at the first tensor: C ABI", theirs, median(ours), seconds, at_least=5)
    row("  Python", theirs, median(t[1] for t in times), seconds, at_least=5)


def lookup(count: int) -> None:
    path = PLACE / f"{count}.safetensors"
    catalogue(path, count)
    found = bench("lookup", path, ROUNDS)  # thousandths
    row(f"one of {count:,} by name: st_get, against std::unordered_map", median(found["map"]) / 1000, median(found["st_get"]) / 1000, seconds, at_most=2, peer="map")


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    heading(f"Reading from {filesystem(PLACE)}")
    try:
        path = PLACE / "model.safetensors"
        llama.write(path, SIZE)
        warm_load(path)
        cold_load(path)
        first_tensor(path)
        for count in (1_000, 100_000):
            lookup(count)
    finally:
        shutil.rmtree(PLACE)
    summary()


if __name__ == "__main__":
    main()
