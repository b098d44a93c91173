"""What a user's program takes to load into torch, with libst in the place of safetensors: the drop-in against its peers.

Each figure is a shot: a process of its own, which does the work once. Shots of all peers stand in rounds, in random order
within each; a ratio is that of a round, so that what else the machine does meets both. Shown are medians, the ratio's
median, and what it is at least with 95 % certainty (the order statistic that the binomial distribution gives); a target is
met if that bound meets it. Before each shot as much memory is touched and freed as any peer takes, since a virtual
machine that gave it back to its host waits for the host when it is next used.

    loads.py BUILD-TREE [--quick]     as table.py; --quick: 64 MiB for 1 GiB, 3 rounds
    LOADS_ROUNDS, LOADS_ONLY          how many rounds; only rows that have this in their name
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
from table import BUILD, HERE, MIB, PLACE, QUICK, filesystem, heading, mebibytes, note, paired, summary
from table import row as line

ROOT = HERE.parents[1]
ROUNDS = int(os.environ.get("LOADS_ROUNDS", 3 if QUICK else 9))
ONLY = os.environ.get("LOADS_ONLY", "")
SIZE = (64 if QUICK else 1024) * MIB
SMALL = 10_000
CACHE = ROOT / "build/cache"
TORCH, PEERS = CACHE / "torch", CACHE / "peers"
PACKAGES = {"runai": "runai_model_streamer", "fastsafetensors": "fastsafetensors"}

TOUCH = "import mmap, sys\nm = mmap.mmap(-1, int(sys.argv[1]))\nfor at in range(0, len(m), 4096): m[at] = 1"


def environment() -> dict[str, str]:
    """Where a torch is: Python's own, or Debian's as tests/python/install_torch.sh unpacks it."""
    found = {**os.environ, "LIBST_LIBRARY": str(BUILD / "capi/libst.so.2")}
    paths = [str(ROOT / "bindings/python"), str(PEERS), *sys.path]
    if (TORCH / ".complete").exists():
        libraries = [TORCH / "usr/lib", *(TORCH / "usr/lib").glob("*-linux-gnu")]
        libraries += [folder / name for folder in libraries for name in ("blas", "lapack")]
        found["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, libraries))
        paths = [str(TORCH / "numpy"), str(TORCH / "usr/lib/python3/dist-packages"), *paths]
    return {**found, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def shoot(way: str, row: str, files: list[Path], pretouched: int, cold: bool) -> dict | None:
    """What shot.py measured; None if this peer cannot do it here."""
    if cold:
        for file in files:
            fd = os.open(file, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
    else:
        for file in files:
            with open(file, "rb") as f:
                while f.read(8 * MIB):
                    pass
    subprocess.run([sys.executable, "-c", TOUCH, str(max(pretouched, 64 * MIB))], check=True)
    said = subprocess.run([sys.executable, HERE / "shot.py", way, row, *files], env=environment(), capture_output=True, text=True)
    if said.returncode == 0:
        return json.loads(said.stdout.splitlines()[-1])
    if way in ("stock", "libst"):
        raise SystemExit(said.stdout + said.stderr)
    note(f"{way} is left out of {row}: {said.stderr.strip().splitlines()[-1]}")
    return None


def lower(ratios: list[float]) -> float:
    """What the median is at least, with 95 % certainty: the k-th smallest, with P(fewer than k below it) <= 0.05."""
    n, k, chance = len(ratios), 0, 0.0
    while chance + math.comb(n, k) / 2**n <= 0.05:
        chance += math.comb(n, k) / 2**n
        k += 1
    return sorted(ratios)[max(k - 1, 0)]


def compare(what: str, row: str, files: list[Path], *, at_least: float, cold: bool = False, peers: tuple[str, ...] = ("stock",)) -> None:
    if ONLY not in what:
        return
    size = sum(file.stat().st_size for file in files)
    pretouched = 3 * size if "converted" in row else 2 * size
    shots: dict[str, list[dict]] = {way: [] for way in (*peers, "libst")}
    for _ in range(ROUNDS):
        for way in random.sample(list(shots), len(shots)):
            shot = shoot(way, row, files, pretouched, cold)
            if shot is None:
                del shots[way]
            else:
                shots[way].append(shot)
    ours = shots.pop("libst")
    for peer, theirs in shots.items():
        assert all(a["sum"] == b["sum"] for a, b in zip(theirs, ours)), f"{what}: {peer} and libst do not load the same"
        seconds = [[shot["seconds"] for shot in of] for of in (theirs, ours)]
        bound = lower([a / b for a, b in zip(*seconds)])
        paired(what if peer == peers[0] else f"  against {peer}", *seconds, bound=bound, at_least=at_least, peer=peer)
        if peer != "stock":
            continue
        for name, key in (("anonymous memory", "anonymous"), ("proportional set", "pss")):
            most = [max(shot[key] for shot in of) for of in (theirs, ours)]
            slack = 1 * MIB if row in ("load_and_touch", "from_pretrained", "from_pretrained_converted") else 4 * MIB
            more = most[1] > most[0] + slack
            line(f"  {name}", max(most[0], 1), most[1], mebibytes, at_most=1 if more else None, multiple=True, peer=peer)


# ------------------------------------------------------------------ files

def write(path: Path, dtype: str, shapes: list[list[int]], prefix: str = "") -> Path:
    """Tensors of one element type, with bytes that are no two pages' alike."""
    width = {"F32": 4, "BF16": 2}[dtype]
    at, entries = 0, {}
    for i, shape in enumerate(shapes):
        n = math.prod(shape) * width
        entries[f"{prefix}layers.{i}.weight"] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 64 + 56)
    block = np.random.default_rng(len(shapes)).integers(0, 2**16, 4 * MIB + 7, np.uint16).tobytes()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        left = at
        while left:
            left -= f.write(block[: min(left, len(block))])
        os.fsync(f.fileno())
    return path


def large(dtype: str, size: int) -> list[list[int]]:
    """As models have them: mostly matrices of 16 MiB or so, and as many vectors."""
    width = {"F32": 4, "BF16": 2}[dtype]
    rows = 1024
    columns = (4 if QUICK else 16) * MIB // width // rows
    return [shape for _ in range(size // (rows * columns * width)) for shape in ([rows, columns], [rows])]


def main() -> None:
    if not (TORCH / ".complete").exists() and subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode:
        note("Loads into torch are left out: there is none. PYTHON=... CACHE=build/cache bash tests/python/install_torch.sh")
        return
    PLACE.mkdir(parents=True, exist_ok=True)
    heading(f"Loads into torch, a fresh process each, {ROUNDS} rounds; files on {filesystem(PLACE)}")
    missing = [name for name, package in PACKAGES.items() if not (PEERS / package).exists()]
    if missing:
        note(f"Not installed, and left out: {', '.join(missing)}")
    others = tuple(name for name in PACKAGES if name not in missing)
    name = f"{SIZE // MIB} MiB"
    try:
        fp32 = [write(PLACE / "fp32.safetensors", "F32", large("F32", SIZE))]
        bf16 = [write(PLACE / "bf16.safetensors", "BF16", large("BF16", SIZE))]
        six = [write(PLACE / f"model-{i}-of-6.safetensors", "F32", large("F32", SIZE // 6), f"{i}.") for i in range(1, 7)]
        small = [write(PLACE / "small.safetensors", "F32", [[16, 16]] * SMALL)]
        few = [write(PLACE / "few.safetensors", "F32", [[4, 4]] * 4)]
        for what, files in (("fp32", fp32), ("bf16", bf16), ("6 shards", six)):
            compare(f"from_pretrained of {name}, {what}, warm", "from_pretrained", files, at_least=0.97)
        compare(f"from_pretrained of {name}, bf16 converted to fp32, warm", "from_pretrained_converted", bf16, at_least=0.97)
        compare(f"load {name} and touch all, warm", "load_and_touch", fp32, at_least=1.05)
        compare(f"load {name} in 6 shards and touch all, warm", "load_and_touch", six, at_least=1.05)
        compare(f"load {name} and touch all, cold", "load_and_touch", fp32, at_least=1.3, cold=True, peers=("stock", *others))
        compare(f"load {name} in 6 shards and touch all, cold", "load_and_touch", six, at_least=1.3, cold=True, peers=("stock", *others))
        compare("a bare loop over the tensors, warm", "loop", fp32, at_least=0.97)
        for what, row in (("get_tensor", "loop"), ("get_slice", "small_slices"), ("shape and dtype", "shapes"), ("load(bytes)", "from_bytes")):
            compare(f"{SMALL:,} tensors of 1 KiB: {what}", row, small, at_least=0.8)
        compare("a tiny file's load_file, 200 times", "tiny", few, at_least=0.8)
    finally:
        shutil.rmtree(PLACE)
    summary()


if __name__ == "__main__":
    main()
