"""A model in an object store 30 ms away, through the real gcsfuse: stock, cattensors, one plain reader, and libst.

512 MiB of 4 MiB tensors whose names stand in another order than their bytes, every time with a cold cache (unmounted
and mounted again). The rig is that of tests/storage. Needs root, to mount.

    distance.py BUILD-TREE [--quick]     as table.py; --quick: 128 MiB, one round
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import disk
import numpy as np
from clients import lacking
from object_store import Gcsfuse, ObjectStore
from table import BUILD, MIB, QUICK, heading, row, seconds, summary

LATENCY = 30  # ms
TENSOR = 4 * MIB
SIZE = (128 if QUICK else 512) * MIB
SHARED = 64 * MIB  # of the workers on one descriptor, which are too slow for more; their time is scaled
ROUNDS = 1 if QUICK else 3

# How a Python program reads a model. Imports do not count.
STOCK = """
import sys, time
from safetensors import safe_open
from safetensors.numpy import load_file
how, path = sys.argv[1:]
begin = time.perf_counter()
if how == "load_file":
    kept = load_file(path)
else:
    with safe_open(path, framework="np", backend=how) as f:
        kept = [f.get_tensor(name) for name in f.keys()]
print(round((time.perf_counter() - begin) * 1e9))
"""
CATTENSORS = """
import sys, time
from cattensors.reader import warm_parallel_chunked
begin = time.perf_counter()
warm_parallel_chunked(sys.argv[1])
print(round((time.perf_counter() - begin) * 1e9))
"""


def model(size: int) -> bytes:
    """Tensor i of the file is the (37 i mod n)-th by name."""
    count = size // TENSOR
    names = [f"layers.{37 * i % count:04}.weight" for i in range(count)]
    assert len(set(names)) == count
    entries = {n: {"dtype": "F32", "shape": [1024, 1024], "data_offsets": [i * TENSOR, (i + 1) * TENSOR]} for i, n in enumerate(names)}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-(len(header) + 8) % 64)
    return len(header).to_bytes(8, "little") + header + np.random.default_rng(0).bytes(size)


class Bench:
    """Seconds that a command says it took, from a cold cache, and the median of such."""

    def __init__(self, mount: Gcsfuse) -> None:
        self.mount = mount
        self.found: dict[tuple, list[float]] = {}

    def cold(self, key: tuple, command: list, file: str) -> None:
        self.mount.remount()
        (self.mount.mountpoint / file).stat()
        out = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout
        self.found.setdefault(key, []).append(int(out) / 1e9)

    def workers(self, mode: str, *arguments: object, file: str = "model") -> None:
        command = [BUILD / "tests/bench/workers_bench", mode, self.mount.mountpoint / file, *arguments]
        self.cold((mode, *arguments), command, file)

    def python(self, key: str, program: str, *arguments: object) -> None:
        self.cold((key,), [sys.executable, "-c", program, *arguments, self.mount.mountpoint / "model"], "model")

    def __getitem__(self, key: tuple) -> float:
        return median(self.found[key])


def measure(bench: Bench) -> None:
    for _ in range(ROUNDS):
        bench.workers("plain")
        for n in (1, 2, 4):
            bench.workers("contiguous", n)
            bench.workers("strided", n)
        bench.python("cattensors", CATTENSORS)
    for how in ("mmap", "pread", "load_file"):
        bench.python(how, STOCK, how)
    bench.workers("shared", 4, TENSOR, file="small")

    plain, alone = bench["plain",], bench["contiguous", 1]
    shared = bench["shared", 4, TENSOR] * (SIZE / SHARED)
    row(f"{SIZE // MIB} MiB at {LATENCY} ms: one process, against a plain sequential read", plain, alone, seconds, at_most=1.1, peer="read")
    row("  against stock, tensor by tensor, by mmap", bench["mmap",], alone, seconds, at_least=12)
    row("  against stock, tensor by tensor, by pread", bench["pread",], alone, seconds, at_least=5)
    row("  against stock load_file", bench["load_file",], alone, seconds)
    row("  against the warm-up of cattensors", bench["cattensors",], alone, seconds, peer="catten")
    row("  into memory of its own, against a plain sequential read", plain, bench["strided", 1], seconds, multiple=True, peer="read")
    for n in (2, 4):
        row(f"  {n} workers, a contiguous part each, against a plain read", plain, bench["contiguous", n], seconds, multiple=True, peer="read")
    for n in (2, 4):
        row(f"  {n} workers, every {n}th tensor, against one descriptor", shared, bench["strided", n], seconds, at_least=20, peer="shared")


def main() -> None:
    why_not = disk.why_not() or lacking("gcsfuse", "fake-gcs-server", "toxiproxy")
    if why_not:
        raise SystemExit(why_not)
    disk.enter_own_namespace()
    heading(f"An object store {LATENCY} ms away, gcsfuse, cold cache; 4 workers on one descriptor: {SHARED // MIB} MiB, scaled")
    with tempfile.TemporaryDirectory() as folder, ObjectStore(folder) as store:
        store.put("model", model(SIZE))
        store.put("small", model(SHARED))
        with Gcsfuse(store, Path(folder) / "mnt", latency=LATENCY) as mount:
            measure(Bench(mount))
    summary()


if __name__ == "__main__":
    main()
