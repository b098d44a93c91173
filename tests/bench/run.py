"""libst against stock safetensors 0.8, in one run: time to open, memory of the index, cost of a change.

Every pair alternates (stock, libst, stock, …) on the same warm files; numbers are medians. Nothing is
asserted: the table says what was measured, the target, and whether it was met.

    run.py BUILD-TREE [--quick]     --quick: 128 MiB for 1 GiB, fewer rounds; for trying the programs out
    BENCH_DIR                       where the files go: a real disk, not tmpfs (default: BUILD-TREE/bench-tmp)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "demo"))

import libst  # noqa: E402
import llama  # noqa: E402
import safetensors  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

BUILD = Path(sys.argv[1]).resolve()
QUICK = "--quick" in sys.argv
PLACE = Path(os.environ.get("BENCH_DIR", BUILD / "bench-tmp"))
MIB = 1 << 20
ROUNDS = 3 if QUICK else 15

rows: list[dict] = []


def timed(work, times: int = 1) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - begin) / times


def seconds(s: float) -> str:
    return f"{s:.2f} s" if s >= 1 else f"{s * 1e3:.2f} ms" if s >= 1e-3 else f"{s * 1e6:.0f} us"


def mebibytes(n: float) -> str:
    return f"{n / MIB:.1f} MiB"


def row(what: str, other: float, ours: float, show, *, at_least: float | None = None, at_most: float | None = None, peer: str = "stock", multiple: bool = False) -> None:
    """A line: how many times as good as the peer, or (at_most, multiple) what multiple of the peer's. An indented name belongs to the last full one."""
    ratio = ours / other if at_most or multiple else other / ours
    target = f">= {at_least:g}x" if at_least else f"<= {at_most:.3g}x" if at_most else "-"
    met = "" if target == "-" else "met" if (ratio >= at_least if at_least else ratio <= at_most) else "MISSED"
    group = next(r["group"] for r in reversed(rows)) if what.startswith(" ") else what.split(":")[0]
    full = f"{group}: {what.strip()}" if what.startswith(" ") else what
    rows.append(dict(what=full, group=group, peer=peer, other=other, libst=ours, ratio=ratio, target=target, met=met))
    print(f"{what:58} {peer:>6} {show(other):>11} {show(ours):>11} {f'{ratio:,.2f}x' if ratio < 10 else f'{ratio:,.0f}x':>9} {target:>9}  {met}".rstrip(), flush=True)


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
    m = {k: median(v) for k, v in got.items()}
    row(f"open {count:,} tensors: C ABI, st_open + st_count + st_close", m["stock keys"], m["C open"], seconds, at_least=8)
    row("  C ABI, and st_at of every tensor", m["stock keys"], m["C describe"], seconds)
    row("  Python, open and list the keys", m["stock keys"], m["libst keys"], seconds, at_least=4)
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
    out = subprocess.run([BUILD / "tests/bench/update_bench", path, tensor, str(rounds)], check=True, capture_output=True, text=True).stdout
    found: dict[str, list[float]] = {}
    for line in out.splitlines():
        what, ns = line.split()
        found.setdefault(what, []).append(int(ns) / 1e9)
    return {what: median(times) for what, times in found.items()}


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


def filesystem(path: Path) -> str:
    return subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True).stdout.strip()


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    kind = filesystem(PLACE)
    print(f"stock safetensors {safetensors.__version__}, libst {libst.__version__}, {os.cpu_count()} processors, files on {kind}")
    if kind == "tmpfs":
        print("tmpfs has no disk behind it: fdatasync is free, and these numbers say nothing about changes. Set BENCH_DIR.")
    print(f"\n{'':58} {'peer':>6} {'the peer':>11} {'libst':>11} {'ratio':>9} {'target':>9}")
    try:
        for count in [1_000, 10_000] if QUICK else [1_000, 10_000, 100_000]:
            opening(count)
        memory(count)
        changing()
    finally:
        shutil.rmtree(PLACE)
    missed = [r["what"] for r in rows if r["met"] == "MISSED"]
    print(f"\n{sum(r['met'] == 'met' for r in rows)} targets met, {len(missed)} missed" + "".join(f"\n  missed: {m}" for m in missed))
    (BUILD / "bench.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
