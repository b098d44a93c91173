"""A sub-module of 200 tensors swapped back and forth by a delta and its reverse, against stock safetensors 0.8, which loads
the model, replaces the tensors and saves it: time, bytes made dirty and peak memory of each.

    deltas.py BUILD-TREE [--quick]     as table.py; wants room for three times the model; --quick: 512 MiB for 2 GiB

In one run, alternating, on files in the page cache. Stock does not sync what it saves; so it is measured twice: as it is,
and with the syncs (file, rename, folder) that make it durable, as libst's changes are.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from table import MIB, PLACE, QUICK, cells, mebibytes, note, seconds, times

REST = (448 if QUICK else 1984) * MIB
TENSORS, PART = 200, 320 << 10
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


def main() -> None:
    import libst
    import numpy as np

    PLACE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE) as scratch:
        base, other, forth, back = (Path(scratch) / name for name in ("base", "other", "forth", "back"))
        modules = [{f"adapter.{i}": np.full(PART // 4, i + k, np.float32) for i in range(TENSORS)} for k in (0, 1000)]
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


if __name__ == "__main__":
    main()
