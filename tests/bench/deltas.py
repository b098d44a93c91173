"""A sub-module of 200 tensors swapped back and forth by a delta and its reverse, against stock safetensors 0.8, which loads
the model, replaces the tensors and saves it: time, bytes made dirty and peak memory of each.

    deltas.py BUILD-TREE [--quick]     as table.py; wants room for three times the model; --quick: 512 MiB for 2 GiB

In one run, alternating, on files in the page cache. Stock does not sync what it saves; so it is measured twice: as it is,
and with the syncs (file, rename, folder) that make it durable, as libst's changes are.

Then a step of training: weights of bf16, N(0, 0.02), of which Adam-like steps change a few percent. The size of the delta
against the model, and against an index of 32 bits and a value for each changed element; the time of a diff, and of an apply,
with files in the page cache, against a rate and against `zstd --patch-from`.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import libst
import ml_dtypes
import numpy as np
from table import MIB, PLACE, QUICK, cells, heading, mebibytes, note, row, seconds, times

REST = (448 if QUICK else 1984) * MIB
TENSORS, PART = 200, 320 << 10
TRAINED = (16 if QUICK else 64) * MIB  # elements
ROUNDS = 3 if QUICK else 7

WORKER = r"""
import json, os, sys, time
who, base, module = sys.argv[1:4]
peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024
sent = lambda: int(open("/proc/self/io").read().split("write_bytes: ")[1].split()[0])  # pages made dirty
if who == "libst":
    import libst
    begin = time.perf_counter()
    plan = libst.patch(base, module)
    assert plan.kind == "patch"
    took = time.perf_counter() - begin
else:
    from safetensors.numpy import load_file, save_file
    begin = time.perf_counter()
    model = load_file(base)
    model.update(load_file(module))
    save_file(model, base + ".new")
    if who == "stock, durable":
        fd = os.open(base + ".new", os.O_RDONLY); os.fsync(fd); os.close(fd)
    os.rename(base + ".new", base)
    if who == "stock, durable":
        fd = os.open(os.path.dirname(base), os.O_RDONLY); os.fsync(fd); os.close(fd)
    took = time.perf_counter() - begin
print(json.dumps({"seconds": took, "peak": peak(), "written": sent()}))
"""


def run(who: str, base: Path, module: Path) -> dict[str, float]:
    subprocess.run(["cat", base, module], stdout=subprocess.DEVNULL, check=True)  # into the page cache
    os.sync()
    done = subprocess.run([sys.executable, "-c", WORKER, who, str(base), str(module)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def bfloat16(values):
    bits = values.view("u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("u2")  # to the nearest, or to the even one


def stepped(weights, rates, rate):
    return bfloat16(weights - np.float32(rate) * rates)


def rate_of(weights, rates, share):
    """By which so many elements change."""
    low, high = 1e-9, 1e-3
    old = bfloat16(weights)
    for _ in range(40):
        rate = (low * high) ** 0.5
        low, high = (rate, high) if np.mean(stepped(weights, rates, rate) != old) < share else (low, rate)
    return rate


def timed(what, *args):
    took = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        what(*args)
        took.append(time.perf_counter() - begin)
    return statistics.median(took)


def swap(base, ways):
    libst.patch(base, next(ways))


def raw_writes(base: Path, other: Path, journal: Path, delta: Path) -> tuple[float, float]:
    """The pages that differ, written over those of `base`: with a sync; and without one, but beside a journal as long as
    the delta, which is synced. `base` is as before in the end."""
    old, new = np.memmap(base, np.uint8, "r"), np.memmap(other, np.uint8, "r")
    pages = [i for i in range(0, len(old), 4096) if not np.array_equal(old[i : i + 4096], new[i : i + 4096])]
    runs: list[list[int]] = []
    for page in pages:
        if runs and runs[-1][1] == page and page - runs[-1][0] < MIB:
            runs[-1][1] += 4096
        else:
            runs.append([page, page + 4096])
    contents = [bytes(new[begin:end]) for begin, end in runs], [bytes(old[begin:end]) for begin, end in runs]
    record = b"x" * delta.stat().st_size
    fd, log = os.open(base, os.O_RDWR), os.open(journal, os.O_RDWR | os.O_CREAT)
    took: tuple[list[float], list[float]] = [], []
    for _ in range(ROUNDS):
        for which, pieces in enumerate(contents):
            begin = time.perf_counter()
            if which:
                os.pwrite(log, record, 0)
                os.fdatasync(log)
            for (at, _), piece in zip(runs, pieces):
                os.pwrite(fd, piece, at)
            if not which:
                os.fdatasync(fd)
            took[which].append(time.perf_counter() - begin)
            os.fdatasync(fd)
    os.close(fd)
    os.close(log)
    return statistics.median(took[0]), statistics.median(took[1])


def journal_only(base: Path, ways: Iterator[Path]) -> float:
    took = []
    with libst.open(base, "r+") as file:
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            file.patch(next(ways), journal_only=True)
            took.append(time.perf_counter() - begin)
            file.sync()
    return statistics.median(took)


def steps_of_training(scratch: Path) -> None:
    heading(f"A step of training: {mebibytes(TRAINED * 2)} of bf16. Medians of {ROUNDS}.")
    random = np.random.default_rng(20261124)
    weights = random.normal(0, 0.02, TRAINED).astype(np.float32)
    gradients = random.normal(0, 1, TRAINED).astype(np.float32)
    rates = gradients / (np.abs(gradients) + np.float32(0.3))
    base, other, delta, back, packed = (scratch / name for name in ("base", "other", "delta", "back", "packed"))
    layers = np.array_split(bfloat16(weights), 16)
    for percent, least in ((2.1, 60), (5.2, 28), (13, 13)):
        rate = rate_of(weights[: 1 << 20], rates[: 1 << 20], percent / 100)
        after = np.array_split(stepped(weights, rates, rate), 16)
        count = sum(int(np.count_nonzero(a != b)) for a, b in zip(layers, after))
        for path, arrays in ((base, layers), (other, after)):
            libst.save(path, {f"layer.{i}": a.view(ml_dtypes.bfloat16) for i, a in enumerate(arrays)})
        diff = timed(libst.diff, base, other, delta)
        size, model = delta.stat().st_size, base.stat().st_size
        row(f"{100 * count / TRAINED:.1f} % changed: the delta", model, size, mebibytes, at_least=least, peer="model")
        row("  an index of 32 bits and a value", count * 6, size, mebibytes, peer="int32")
        row("  diff", model / 1.5e9, diff, seconds, at_least=1, peer="1.5 GB/s")
        if zstd := shutil.which("zstd"):
            pack = [zstd, "-qf", "-1", "--long=31", f"--patch-from={base}", str(other), "-o", str(packed)]
            unpack = [zstd, "-qdf", "--long=31", f"--patch-from={base}", str(packed), "-o", str(back)]
            row("  diff", timed(subprocess.check_call, pack), diff, seconds, peer="zstd")
            row("  its size", packed.stat().st_size, size, mebibytes, peer="zstd")
            unpacked = timed(subprocess.check_call, unpack)
        libst.patch(base, delta, reverse=back)
        ways = itertools.cycle((back, delta))
        applied = timed(swap, base, ways)
        row("  apply, durable", model / 2.5e9, applied, seconds, at_least=1, peer="2.5 GB/s")
        written, buffered = raw_writes(base, other, scratch / "journal", delta)
        row("  apply, durable, against pwrite of the changed pages + fdatasync", written, applied, seconds, at_most=1.15, peer="raw")
        later = journal_only(base, ways)
        row("  apply, durable by its journal, against pwrite of the pages without a sync, and a synced journal", buffered, later, seconds, at_most=1.3, peer="raw")
        if zstd:
            row("  apply", unpacked, applied, seconds, peer="zstd")


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE) as scratch:
        base, other, forth, back = (Path(scratch) / name for name in ("base", "other", "forth", "back"))
        random = np.random.default_rng(20261121)
        modules = [
            {f"adapter.{i}": random.standard_normal(PART // 4, np.float32) for i in range(TENSORS)} for _ in range(2)
        ]
        for path, module in ((base, modules[0]), (other, modules[1])):
            with libst.writer(path) as w:
                for i in range(REST // (4 * MIB)):
                    w.add(f"rest.{i}", np.full(4 * MIB, i % 251, np.uint8))
                for name, array in module.items():
                    w.add(name, array)
        libst.diff(base, other, forth)
        other.unlink()
        libst.patch(base, forth, reverse=back)
        results: dict[str, list[dict[str, float]]] = {"stock": [], "stock, durable": [], "libst": []}
        turn = 0
        for _ in range(ROUNDS):
            for who, all_of_it in results.items():
                turn += 1
                all_of_it.append(run(who, base, back if turn % 2 else forth))
        medians = {
            who: {key: statistics.median(r[key] for r in all_of_it) for key in all_of_it[0]}
            for who, all_of_it in results.items()
        }
    size = REST + TENSORS * PART
    note(
        f"{TENSORS} tensors, {mebibytes(TENSORS * PART)}, of a model of {mebibytes(size)} swapped; medians of {ROUNDS}."
    )
    columns = ["who", "time", "times libst's", "bytes made dirty", "peak memory"]
    print("|".join(["", *columns, ""]))
    print("|---" * len(columns) + "|")
    for who, m in medians.items():
        ratio = m["seconds"] / medians["libst"]["seconds"]
        figures = [who, seconds(m["seconds"]), times(ratio), mebibytes(m["written"]), mebibytes(m["peak"])]
        print("|".join(["", *figures, ""]), flush=True)
        cells("swapping a sub-module", **dict(zip(columns, figures)))
    with tempfile.TemporaryDirectory(dir=PLACE) as scratch:
        steps_of_training(Path(scratch))


if __name__ == "__main__":
    main()
