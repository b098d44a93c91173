"""Many small things: tensors of a few KiB, small files, small slices. libst and `libst.compat` against stock safetensors.

Each shot is a process of its own, which has done nothing before; stock and libst take turns, in random order. Before each
shot as much memory is touched and freed as any of them takes: a guest gives memory back to its host, and whoever has it
next waits for the host. What a shot reads is summed up after it was timed, and the sums of all must be equal. Memory is how
far the peak of the process lies above what it had when the shot began.

    many.py BUILD-TREE [--quick] [CASE...]     as table.py; --quick: a tenth of the tensors, fewer rounds
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

SHOT = "--shot" in sys.argv


# ------------------------------------------------------------------ what is done, in a process of its own


def total(arrays: Iterable[np.ndarray]) -> int:
    return sum(int(a.reshape(-1).view(np.uint8).sum(dtype=np.uint64)) for a in arrays)


def stock_load(paths: list[str]) -> Callable[[], Any]:
    from safetensors.numpy import load_file

    return lambda: [load_file(path) for path in paths]


def compat_load(paths: list[str]) -> Callable[[], Any]:
    from libst.compat.numpy import load_file

    return lambda: [load_file(path) for path in paths]


def libst_load(paths: list[str]) -> Callable[[], Any]:
    import libst

    return lambda: [libst.load(path) for path in paths]


def _of_each(paths: list[str], opened: Callable[[str], Any], taken: Callable[[Any], Any]) -> Callable[[], Any]:
    """What is taken of each file while it is open."""

    def work() -> Any:
        found = []
        for path in paths:
            with opened(path) as f:
                found.append(taken(f))
        return found

    return work


def _got(f: Any) -> dict[str, np.ndarray]:
    return {name: f.get_tensor(name) for name in f.keys()}


def stock_get(paths: list[str]) -> Callable[[], Any]:
    from safetensors import safe_open

    return _of_each(paths, lambda path: safe_open(path, "np"), _got)


def compat_get(paths: list[str]) -> Callable[[], Any]:
    from libst.compat import safe_open

    return _of_each(paths, lambda path: safe_open(path, "np"), _got)


def libst_views(paths: list[str]) -> Callable[[], Any]:
    import libst

    return _of_each(paths, libst.open, lambda f: dict(f.items()))


def libst_read(paths: list[str]) -> Callable[[], Any]:
    import libst

    return _of_each(paths, libst.open, lambda f: {name: f.read(name) for name in f})


ROWS = [int(n) for n in random.Random(1).sample(range(100_000), 2000)]


def _rows(embedding: Any) -> dict[int, np.ndarray]:
    return {n: embedding[n : n + 1] for n in ROWS}


def stock_rows(paths: list[str]) -> Callable[[], Any]:
    from safetensors import safe_open

    return _of_each(paths, lambda path: safe_open(path, "np"), lambda f: _rows(f.get_slice("embedding")))


def compat_rows(paths: list[str]) -> Callable[[], Any]:
    from libst.compat import safe_open

    return _of_each(paths, lambda path: safe_open(path, "np"), lambda f: _rows(f.get_slice("embedding")))


def libst_rows(paths: list[str]) -> Callable[[], Any]:
    import libst

    return _of_each(paths, libst.open, lambda f: _rows(f.slice("embedding")))


def libst_rows_at_once(paths: list[str]) -> Callable[[], Any]:
    import libst

    def taken(f: Any) -> dict[int, np.ndarray]:
        return dict(zip(ROWS, f.read_many([("embedding", slice(n, n + 1)) for n in ROWS])))

    return _of_each(paths, libst.open, taken)


def _to_save() -> dict[str, np.ndarray]:
    count = int(os.environ["MANY_COUNT"])
    return {f"model.layers.{i // 7}.mlp.experts.{i % 7}.weight": np.full(256, i, np.float32) for i in range(count)}


def _synced(path: str) -> None:
    for name in (path, os.path.dirname(path)):
        opened = os.open(name, os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)


def _saver(save: Callable[[Any, str], None], paths: list[str]) -> Callable[[], Any]:
    tensors, path = _to_save(), paths[0] + ".saved"
    if os.path.exists(path):
        os.unlink(path)

    def work() -> Any:
        save(tensors, path)
        return path

    return work


def stock_save(paths: list[str]) -> Callable[[], Any]:
    from safetensors.numpy import save_file

    return _saver(lambda tensors, path: (save_file(tensors, path), _synced(path)), paths)


def compat_save(paths: list[str]) -> Callable[[], Any]:
    from libst.compat.numpy import save_file

    return _saver(save_file, paths)


def libst_save(paths: list[str]) -> Callable[[], Any]:
    import libst

    return _saver(lambda tensors, path: libst.save(path, tensors, layout="stock"), paths)


def _status(field: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.split(field + ":")[1].split()[0]) << 10


def shot() -> None:
    who, paths = sys.argv[2], json.loads(sys.stdin.read())
    work = globals()[who](paths)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM from here on
    before = _status("VmRSS")
    begin = time.perf_counter()
    kept = work()
    took = time.perf_counter() - begin
    grown = _status("VmHWM") - before
    if isinstance(kept, str):
        from safetensors.numpy import load_file

        kept = [load_file(kept)]
    print(json.dumps({"took": took, "grown": grown, "sum": sum(total(arrays.values()) for arrays in kept)}))


# ------------------------------------------------------------------ the driver


def measure(paths: list[Path], who: dict[str, str], rounds: int, memory: int) -> dict[str, tuple[float, float]]:
    """Seconds and bytes, by who: medians."""
    found: dict[str, list[dict]] = {name: [] for name in who}
    for _ in range(rounds):
        for name in random.sample(list(who), len(who)):
            warm = np.empty(memory, np.uint8)
            warm[::4096] = 1
            del warm
            shot = subprocess.run(
                [sys.executable, __file__, "--shot", who[name]],
                input=json.dumps([str(p) for p in paths]), capture_output=True, text=True, check=False,
            )  # fmt: skip
            if shot.returncode:
                raise SystemExit(shot.stderr)
            found[name].append(json.loads(shot.stdout))
    sums = {shot["sum"] for shots in found.values() for shot in shots}
    assert len(sums) == 1, sums
    return {
        name: (median(s["took"] for s in shots), median(s["grown"] for s in shots)) for name, shots in found.items()
    }


LOADS = {"stock": "stock_load", "libst.load": "libst_load", "libst.compat": "compat_load"}


def cases(place: Path, quick: bool) -> Iterable[tuple[str, Callable[[], list[Path]], dict[str, str]]]:
    from safetensors.numpy import save_file

    part = 10 if quick else 1
    many, experts, files = 100_000 // part, 20_000 // part, 1_000 // part
    os.environ["MANY_COUNT"] = str(many)

    def one(count: int, size: int) -> list[Path]:
        path = place / f"{count}x{size}.safetensors"
        if not path.exists():
            rows = np.arange(size // 4, dtype=np.float32)
            save_file({f"model.layers.{i // 7}.mlp.experts.{i % 7}.weight": rows + i for i in range(count)}, path)
        return [path]

    def sharded() -> list[Path]:
        folder = place / "shards"
        shards = [f"model-{i + 1:05}-of-00020.safetensors" for i in range(20)]
        if not folder.exists():
            folder.mkdir()
            names: dict[str, str] = {}
            for number, shard in enumerate(shards):
                each = {
                    f"model.layers.{number}.experts.{i}.weight": np.full(256, i, np.float32) for i in range(many // 20)
                }
                save_file(each, folder / shard)
                names |= dict.fromkeys(each, shard)
            (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
        return [folder / shard for shard in shards]

    def small(count: int, shape: tuple[int, int]) -> list[Path]:
        folder = place / f"small-{count}"
        if not folder.exists():
            folder.mkdir()
            for i in range(files):
                save_file(
                    {f"layer.{k}.weight": np.full(shape, k + i, np.float32) for k in range(count)},
                    folder / f"{i}.safetensors",
                )
        return [folder / f"{i}.safetensors" for i in range(files)]

    def embedding() -> list[Path]:
        path = place / "embedding.safetensors"
        if not path.exists():
            save_file({"embedding": np.arange(100_000 * 512, dtype=np.float32).reshape(100_000, 512)}, path)
        return [path]

    yield f"{many:,} tensors of 1 KiB, loaded", lambda: one(many, 1024), LOADS
    yield f"{many:,} tensors of 1 KiB, each asked for", lambda: one(many, 1024), {
        "stock": "stock_get", "views": "libst_views", "libst.compat": "compat_get"}  # fmt: skip
    yield f"{many:,} tensors of 1 KiB in 20 shards, loaded", sharded, {
        "stock": "stock_load", "libst.load": "index_load", "views": "index_views"}  # fmt: skip
    yield f"{experts:,} tensors of 64 KiB, loaded", lambda: one(experts, 65536), LOADS
    for size in (16, 64):
        yield f"{experts:,} tensors of {size} KiB, each asked for", partial(one, experts, size << 10), {
            "stock": "stock_get", "libst.compat": "compat_get"}  # fmt: skip
    yield f"{files:,} files of 60 tensors, loaded", lambda: small(60, (16, 16)), {**LOADS, "f.read": "libst_read"}
    yield f"{files:,} files of 2 tensors, loaded", lambda: small(2, (64, 128)), LOADS
    yield f"{files:,} files of 2 tensors, each asked for", lambda: small(2, (64, 128)), {
        "stock": "stock_get", "libst.compat": "compat_get"}  # fmt: skip
    yield "2,000 rows of an embedding", embedding, {
        "stock": "stock_rows", "f.slice": "libst_rows", "read_many": "libst_rows_at_once", "libst.compat": "compat_rows"}  # fmt: skip
    yield f"{many:,} tensors of 1 KiB, saved", lambda: [place / "many"], {
        "stock, synced": "stock_save", "libst.save": "libst_save", "libst.compat": "compat_save"}  # fmt: skip


def index_load(paths: list[str]) -> Callable[[], Any]:
    return libst_load([os.path.dirname(paths[0])])


def index_views(paths: list[str]) -> Callable[[], Any]:
    return libst_views([os.path.dirname(paths[0])])


def main() -> None:
    from table import MIB, PLACE, QUICK, filesystem, heading, mebibytes, row, seconds, summary

    asked = [a for a in sys.argv[2:] if not a.startswith("--")]
    PLACE.mkdir(parents=True, exist_ok=True)
    heading(f"Many small things, a fresh process a shot; files on {filesystem(PLACE)}")
    try:
        for what, made, who in cases(PLACE, QUICK):
            if asked and not any(word in what for word in asked):
                continue
            found = measure(
                made(), who, 3 if QUICK else 7, (2600 if "64 KiB" in what else 350) * MIB // (10 if QUICK else 1)
            )
            (stock, (took, grown)), *ours = found.items()
            for number, (name, (mine, memory)) in enumerate(ours):
                row(
                    f"  {name}" if number else f"{what}: {name}",
                    took,
                    mine,
                    seconds,
                    at_least=1,
                    peer=stock.split(",")[0],
                )
                row(f"  {name}, memory", grown, memory, mebibytes, at_most=1, peer=stock.split(",")[0])
    finally:
        if not os.environ.get("MANY_KEEP"):
            shutil.rmtree(PLACE)
    summary()


if __name__ == "__main__":
    shot() if SHOT else main()
