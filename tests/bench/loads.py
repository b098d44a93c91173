"""What a user's program takes to load into torch, with libst in the place of safetensors: the drop-in against its peers.

Each figure is a shot: a process of its own, which does the work once. Shots of all peers stand in rounds, in random order
within each; a ratio is that of a round, so that what else the machine does meets both. Shown are medians, the ratio's
median, and what it is at least with 95 % certainty (the order statistic that the binomial distribution gives); a target is
met if that bound meets it. Before each shot as much memory is touched and freed as any peer takes, since a virtual
machine that gave it back to its host waits for the host when it is next used.

A cold load stands beside fio, too, which reads the same files past the page cache, with as many requests at once as were
fastest here. A cold load is to be 1.1 times as fast as the best of its peers, or 0.95 times as fast as fio. With root there
is an xfs besides the filesystem of the benchmark, and a store of objects behind gcsfuse, 30 ms away.

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
import tempfile
from collections.abc import Callable
from pathlib import Path

import disk
import numpy as np
from clients import lacking
from object_store import Gcsfuse, ObjectStore
from table import BUILD, HERE, MIB, PLACE, QUICK, filesystem, heading, mebibytes, note, paired, summary
from table import row as line

ROOT = HERE.parents[1]
ROUNDS = int(os.environ.get("LOADS_ROUNDS", 3 if QUICK else 9))
ONLY = os.environ.get("LOADS_ONLY", "")
SIZE = (64 if QUICK else 1024) * MIB
SMALL = 10_000
LATENCY = 30  # ms
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


def evict(files: list[Path]) -> None:
    """Cold: nothing of them in the page cache."""
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def warm(files: list[Path]) -> None:
    for file in files:
        with open(file, "rb") as f:
            while f.read(8 * MIB):
                pass


def fio(files: list[Path], depth: int) -> float:
    """Seconds to read it all past the page cache, so many requests of 1 MiB at once."""
    size = min(file.stat().st_size for file in files) // MIB * len(files)
    command = ["fio", "--name=read", f"--filename={':'.join(map(str, files))}", f"--size={size}M", "--rw=read", "--bs=1M"]
    command += ["--direct=1", "--ioengine=io_uring", f"--iodepth={depth}", "--readonly", "--file_service_type=sequential", "--output-format=json"]
    read = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["jobs"][0]["read"]
    return sum(file.stat().st_size for file in files) / read["bw_bytes"]


def best_depth(files: list[Path]) -> int:
    return min((4, 8, 16, 32), key=lambda depth: min(fio(files, depth) for _ in range(2)))


def shoot(way: str, row: str, files: list[Path], pretouched: int) -> dict | None:
    """What shot.py measured; None if this peer cannot do it here."""
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


def compare(what: str, row: str, files: list[Path], *, at_least: float, prepare: Callable[[list[Path]], None] = warm, peers: tuple[str, ...] = ("stock",), direct: bool = False, rounds: int = ROUNDS) -> None:
    """Rows of one load: against each peer and, if there are several, against the best of each round. `direct`: and fio."""
    if ONLY not in what:
        return
    size = sum(file.stat().st_size for file in files)
    pretouched = 3 * size if "converted" in row else 2 * (SIZE if row == "save" else size)
    shots: dict[str, list[dict]] = {way: [] for way in (*peers, "libst")}
    depth, raw = best_depth(files) if direct else 0, []
    for _ in range(rounds):
        for way in random.sample([*shots, *(["fio"] if direct else [])], len(shots) + direct):
            prepare(files)
            if way == "fio":
                raw.append(fio(files, depth))
                continue
            shot = shoot(way, row, files, pretouched)
            if shot is None:
                del shots[way]
            else:
                shots[way].append(shot)
    ours = shots.pop("libst")
    mine = [shot["seconds"] for shot in ours]
    for peer, theirs in shots.items():
        assert all(a["sum"] == b["sum"] for a, b in zip(theirs, ours)), f"{what}: {peer} and libst do not load the same"
        against(what if peer == peers[0] else f"  against {peer}", [shot["seconds"] for shot in theirs], mine, at_least if peer == "stock" else None, peer)
        if peer != "stock":
            continue
        for name, key in (("anonymous memory", "anonymous"), ("proportional set", "pss")):
            most = [max(shot[key] for shot in of) for of in (theirs, ours)]
            slack = 1 * MIB if row in ("load_and_touch", "from_pretrained", "from_pretrained_converted") else 4 * MIB
            more = most[1] > most[0] + slack
            line(f"  {name}", max(most[0], 1), most[1], mebibytes, at_most=1 if more else None, multiple=True, peer=peer)
    if len(shots) > 1:
        best = [min(shot["seconds"] for shot in of) for of in zip(*shots.values())]
        as_fast_as_the_disk = direct and bound(raw, mine) >= 0.95
        against("  against the best of each round", best, mine, None if as_fast_as_the_disk else at_least if not direct else 1.1, "best")
        if direct:
            against(f"  against fio, {depth} requests at once", raw, mine, 0.95 if as_fast_as_the_disk else None, "fio")


def bound(others: list[float], ours: list[float]) -> float:
    return lower([a / b for a, b in zip(others, ours)])


def against(what: str, others: list[float], ours: list[float], at_least: float | None, peer: str) -> None:
    paired(what, others, ours, bound=bound(others, ours), at_least=at_least, peer=peer)


# ------------------------------------------------------------------ files

def write(path: Path, dtype: str, shapes: list[list[int]], prefix: str = "", name: str = "layers.{}.weight") -> Path:
    """Tensors of one element type, with bytes that are no two pages' alike."""
    width = {"F32": 4, "BF16": 2}[dtype]
    at, entries = 0, {}
    for i, shape in enumerate(shapes):
        n = math.prod(shape) * width
        entries[prefix + name.format(i)] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
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


def cold_rows(name: str, where: str, fp32: list[Path], six: list[Path], peers: tuple[str, ...]) -> None:
    for what, files in ((f"load {name} and touch all, cold{where}", fp32), (f"load {name} in 6 shards and touch all, cold{where}", six)):
        compare(what, "load_and_touch", files, at_least=1.3, prepare=evict, peers=peers, direct=True)


def models(place: Path) -> tuple[list[Path], list[Path]]:
    """One file, and six shards."""
    one = [write(place / "fp32.safetensors", "F32", large("F32", SIZE))]
    return one, [write(place / f"model-{i}-of-6.safetensors", "F32", large("F32", SIZE // 6), f"{i}.") for i in range(1, 7)]


def on_xfs(name: str, peers: tuple[str, ...]) -> None:
    with disk.Disk(PLACE, "xfs", size=3 * SIZE + 300 * MIB, direct_io=True) as made:
        cold_rows(name, " on xfs", *models(made.mount()), peers)


def far_away(peers: tuple[str, ...]) -> None:
    """Through gcsfuse, mounted anew before each shot."""
    if "fastsafetensors" in peers:
        note("fastsafetensors is left out of loads through gcsfuse: its O_DIRECT reads of 512 MiB take longer than five minutes")
        peers = tuple(peer for peer in peers if peer != "fastsafetensors")
    size = (32 if QUICK else 512) * MIB
    with tempfile.TemporaryDirectory() as folder, ObjectStore(folder) as store:
        model = write(PLACE / "far.safetensors", "F32", large("F32", size))
        store.put("far.safetensors", model.read_bytes())
        with Gcsfuse(store, Path(folder) / "mnt", latency=LATENCY) as mount:
            file = mount.mountpoint / "far.safetensors"

            def cold(files: list[Path]) -> None:
                mount.remount()
                file.stat()

            compare(f"load {size // MIB} MiB through gcsfuse {LATENCY} ms away", "load_and_touch", [file], at_least=1.5, prepare=cold, peers=peers, rounds=min(ROUNDS, 5))


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
        fp32, six = models(PLACE)
        bf16 = [write(PLACE / "bf16.safetensors", "BF16", large("BF16", SIZE))]
        small = [write(PLACE / "small.safetensors", "F32", [[16, 16]] * SMALL)]
        few = [write(PLACE / "few.safetensors", "F32", [[4, 4]] * 4)]
        for what, files in (("fp32", fp32), ("bf16", bf16), ("6 shards", six)):
            compare(f"from_pretrained of {name}, {what}, warm", "from_pretrained", files, at_least=0.97)
        compare(f"from_pretrained of {name}, bf16 converted to fp32, warm", "from_pretrained_converted", bf16, at_least=0.97)
        compare(f"load {name} and touch all, warm", "load_and_touch", fp32, at_least=1.05)
        compare(f"load {name} in 6 shards and touch all, warm", "load_and_touch", six, at_least=1.05)
        cold_rows(name, "", fp32, six, ("stock", *others))
        compare("a bare loop over the tensors, warm", "loop", fp32, at_least=0.97)
        for what, row in (("get_tensor", "loop"), ("get_slice", "small_slices"), ("shape and dtype", "shapes"), ("load(bytes)", "from_bytes")):
            compare(f"{SMALL:,} tensors of 1 KiB: {what}", row, small, at_least=0.8)
        compare("a tiny file's load_file, 200 times", "tiny", few, at_least=0.8)
        part = 10 if QUICK else 1
        experts = [write(PLACE / "experts.safetensors", "F32", [[128, 128]] * (20_000 // part))]
        compare(f"{20_000 // part:,} tensors of 64 KiB, loaded and touched", "load_and_touch", experts, at_least=1)
        files = [write(PLACE / f"small-{i}.safetensors", "F32", [[16, 16]] * 60, f"{i}.") for i in range(1_000 // part)]
        compare(f"{len(files):,} files of 60 tensors, loaded and touched", "load_and_touch", files, at_least=1)
        pairs = [write(PLACE / f"pair-{i}.safetensors", "F32", [[64, 128]] * 2, f"{i}.") for i in range(1_000 // part)]
        compare(f"{len(pairs):,} files of 2 tensors, loaded and touched", "load_and_touch", pairs, at_least=0.8)
        embedding = [write(PLACE / "embedding.safetensors", "F32", [[100_000, 512]], name="embedding")]
        compare("2,000 rows of an embedding, warm", "rows", embedding, at_least=1)
        compare("2,000 rows of an embedding, cold", "rows", embedding, at_least=1, prepare=evict)
        os.environ["SAVED_COLUMNS"] = str(SIZE // 300 // 4096)
        saved = PLACE / "saved.safetensors"
        saved.touch()
        compare(f"{name} in 300 tensors, saved durably", "save", [saved], at_least=1, prepare=lambda files: files[0].write_bytes(b""))
        for file in (*experts, *files, *pairs, *embedding, saved):
            file.unlink()
        for file in (*fp32, *bf16, *six):
            file.unlink()
        if why := disk.why_not():
            note(f"Loads from xfs and through gcsfuse are left out: {why}")
        else:
            disk.enter_own_namespace()
            on_xfs(name, ("stock", *others))
            if why := lacking("gcsfuse", "fake-gcs-server", "toxiproxy"):
                note(f"Loads through gcsfuse are left out: {why}")
            else:
                far_away(("stock", *others))
    finally:
        shutil.rmtree(PLACE)
    summary()


if __name__ == "__main__":
    main()
