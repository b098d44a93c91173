"""Changes of the layout of a large file, against loading and saving it with stock safetensors 0.8: time, peak
memory of the process, and bytes that it made dirty; on ext4, xfs and btrfs in images on loop devices.

    layout.py BUILD-TREE [--quick]     as table.py; wants room for three times the file; --quick: 1.5 GiB for 4 GiB

Every figure is of a process of its own, on a file in the page cache. Stock does not sync what it saves; so it is
measured twice: as it is, and with the syncs (file, rename, folder) that make it durable, as libst's changes are.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import disk
from table import MIB, PLACE, QUICK, cells, note

LAYERS = 48 if QUICK else 128
PART = 4 * MIB  # bytes of a tensor; eight a layer

CHANGES = ["delete a middle tensor", "add 16 MiB", "quantise a layer", "edit metadata"]

WORKER = r"""
import json, os, sys, time
import numpy as np
who, change, path = sys.argv[1:]
middle = "layers." + os.environ["LAYER"]
peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024  # ru_maxrss is the parent's, too
sent = lambda: int(open("/proc/self/io").read().split("write_bytes: ")[1].split()[0])  # pages made dirty
extra = np.ones((16 << 20) if change == "add 16 MiB" else 0, np.uint8)
halved = lambda a: a.view(np.uint8)[::2].copy().view(np.int8)  # half the bytes, as F16 to F8 would give
if who == "libst":
    import libst
    begin = time.perf_counter()
    with libst.open(path, "r+") as f, f.transaction(copy=False) as t:
        if change == "delete a middle tensor": t.delete(middle + ".w3")
        elif change == "add 16 MiB": t.put("extra." + who, extra)
        elif change == "edit metadata": t.metadata("note", "edited by " + who)
        else:
            kept = [(n, halved(f[n])) for n in f if n.startswith(middle + ".")]
            for n, a in kept: t.put(n, a)
        plan = t.plan()
    took = time.perf_counter() - begin
else:
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file
    begin = time.perf_counter()
    with safe_open(path, "np") as f: metadata = f.metadata()
    d = load_file(path)
    if change == "delete a middle tensor": del d[middle + ".w3"]
    elif change == "add 16 MiB": d["extra." + who] = extra
    elif change == "edit metadata": metadata["note"] = "edited by " + who
    else:
        for n in [n for n in d if n.startswith(middle + ".")]: d[n] = halved(d[n])
    save_file(d, path + ".new", metadata)
    if who == "stock, durable":
        fd = os.open(path + ".new", os.O_RDONLY); os.fsync(fd); os.close(fd)
    os.rename(path + ".new", path)
    if who == "stock, durable":
        fd = os.open(os.path.dirname(path), os.O_RDONLY); os.fsync(fd); os.close(fd)
    took = time.perf_counter() - begin
result = {"written": sent(), "seconds": took, "peak": peak()}
print(json.dumps(result))
"""

BASELINE = """import libst
print(int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024)"""


def make(path: Path) -> None:
    import libst
    import numpy as np

    with libst.writer(path, {"format": "pt"}, layout="keep") as w:
        for layer in range(LAYERS):
            for part in range(8):
                w.add(f"layers.{layer}.w{part}", np.full(PART // 2, layer * 8 + part, np.float16))


def run(who: str, change: str, path: Path, layer: int) -> dict:
    done = subprocess.run([sys.executable, "-c", WORKER, who, change, str(path)], capture_output=True, text=True, env={**os.environ, "LAYER": str(layer)})
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def main() -> None:
    if why := disk.why_not():
        sys.exit(f"bench: {why}")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    disk.enter_own_namespace()
    PLACE.mkdir(parents=True, exist_ok=True)
    size = LAYERS * 8 * PART
    baseline = int(subprocess.run([sys.executable, "-c", BASELINE], capture_output=True, text=True, check=True).stdout)
    note(f"A file of {size >> 20} MiB, {LAYERS * 8} tensors; a Python process that has only imported libst peaks at {baseline / MIB:.0f} MiB.")
    columns = ["disk", "change", "stock", "stock, durable", "libst", "times stock", "times durable", "libst's memory above that", "stock's peak", "libst wrote", "stock wrote"]
    print("|".join(["", *columns, ""]))
    print("|---" * len(columns) + "|")
    for kind in disk.KINDS:
        folder = Path(tempfile.mkdtemp(prefix=f"bench-{kind}-", dir=PLACE))
        made = disk.Disk(folder, kind, size=int(size * 2.6) + (600 << 20))
        try:
            mounted = made.mount()
            path = mounted / "m.safetensors"
            make(path)
            for i, change in enumerate(CHANGES):  # of a layer that nobody has changed yet, in the middle third
                results = {}
                for k, who in enumerate(["stock", "stock, durable", "libst"]):
                    subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)  # into the page cache
                    os.sync()
                    results[who] = run(who, change, path, LAYERS // 3 + 3 * i + k)
                stock, durable, ours = (results[w] for w in ["stock", "stock, durable", "libst"])
                figures = [
                    kind, change, f"{stock['seconds']:.2f} s", f"{durable['seconds']:.2f} s", f"{ours['seconds']:.3f} s",
                    f"{stock['seconds'] / ours['seconds']:.1f}", f"{durable['seconds'] / ours['seconds']:.1f}",
                    f"{max(ours['peak'] - baseline, 0) / MIB:.0f} MiB", f"{stock['peak'] / MIB:.0f} MiB",
                    f"{ours['written'] / MIB:.1f} MiB", f"{stock['written'] / MIB:.1f} MiB",
                ]  # fmt: skip
                print("|".join(["", *figures, ""]), flush=True)
                cells("changes of the layout", **dict(zip(columns, figures)))
        finally:
            made.close()
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
