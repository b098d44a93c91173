"""Curves: time to load a model from an object store through gcsfuse, from a cold cache, against how far away the store is
and against how many workers load it together. The rig is that of distance.py. Needs root, to mount.

    latency.py BUILD-TREE [--quick]     as table.py; --quick: short curves
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import disk
from clients import lacking
from distance import STOCK, TENSOR, Bench, model
from object_store import Gcsfuse, ObjectStore
from table import MIB, QUICK, note, point, seconds

SIZE = (16 if QUICK else 64) * MIB
LATENCIES = [0, 10] if QUICK else [0, 5, 10, 20, 50, 100]  # ms
LATENCY = 30  # where workers vary
WORKERS = [1, 2] if QUICK else [1, 2, 4, 8]
SHARED = SIZE // 2  # of the workers on one descriptor, which are too slow for more; their time is scaled
ROUNDS = 1 if QUICK else 2


def show(plot: str, series: str, x: float, y: float) -> None:
    point(plot, series, x, y)
    print(f"{plot:32} {series:36} {x:>14,} {seconds(y):>12}", flush=True)


def distances(store: ObjectStore, mountpoint: Path) -> None:
    for latency in LATENCIES:
        with Gcsfuse(store, mountpoint, latency=latency) as mount:
            bench = Bench(mount)
            for _ in range(ROUNDS):
                bench.workers("plain")
                bench.workers("contiguous", 1)
                bench.workers("contiguous", 4)
            for how in ("mmap", "pread"):
                bench.python(how, STOCK, how)
        for series, key in {
            "libst": ("contiguous", 1),
            "libst, 4 workers": ("contiguous", 4),
            "one plain sequential read": ("plain",),
            "stock, mmap": ("mmap",),
            "stock, pread": ("pread",),
        }.items():
            show("load against latency", series, latency, bench[key])


def workers(store: ObjectStore, mountpoint: Path) -> None:
    with Gcsfuse(store, mountpoint, latency=LATENCY) as mount:
        bench = Bench(mount)
        for n in WORKERS:
            for _ in range(ROUNDS):
                bench.workers("contiguous", n)
                bench.workers("strided", n)
            bench.workers("shared", n, TENSOR, file="small")
            show("load against workers", "libst, a contiguous part each", n, bench["contiguous", n])
            show("load against workers", "libst, every n-th tensor", n, bench["strided", n])
            show("load against workers", "read(2) on one descriptor", n, bench["shared", n, TENSOR] * (SIZE / SHARED))


def main() -> None:
    why_not = disk.why_not() or lacking("gcsfuse", "fake-gcs-server", "toxiproxy")
    if why_not:
        raise SystemExit(why_not)
    disk.enter_own_namespace()
    note(f"Curves; {SIZE // MIB} MiB on an object store, through gcsfuse, cold cache; workers: {LATENCY} ms away, those on one descriptor {SHARED // MIB} MiB, scaled")
    with tempfile.TemporaryDirectory() as folder, ObjectStore(folder) as store:
        store.put("model", model(SIZE))
        store.put("small", model(SHARED))
        distances(store, Path(folder) / "mnt")
        workers(store, Path(folder) / "mnt")


if __name__ == "__main__":
    main()
