"""What each language adds to the C ABI, and what its own package for safetensors takes for the same: one tensor by name,
opening 10,000, reading each of 10,000, and for Python loading a whole file.

All take turns, round by round, on the same warm files; numbers are medians. The reads of Rust and Go are shots: a process
of its own that has opened the file and then takes each tensor once, in random order, beside one of the peer that does the
same; the ratio is the median of the rounds'.

A look-up of some nanoseconds costs each process of a program something else, by where its code and data lie: up to a
fifth more or less. So Rust's and Go's are measured in many processes, in random order with as many of C: the least that
each process has taken, and of these the median.

    bindings.py BUILD-TREE [--quick]     as table.py; build_bindings.sh builds the programs; --quick: 128 MiB for 1 GiB
"""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from statistics import median

import libst
import libst.compat.numpy
import llama
import numpy as np
from loads import lower
from run import catalogue
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from table import BUILD, MIB, PLACE, QUICK, filesystem, heading, note, paired, row, seconds, spread, summary, timed

ROUNDS = 5 if QUICK else 15
GETS = 20_000 if QUICK else 2_000_000
OPENS = 3 if QUICK else 30  # a round
SIZE = (128 if QUICK else 1024) * MIB
COUNT = 10_000
SHOTS = 5 if QUICK else 41
READ = 16 << 10  # bytes of a tensor
PROCESSES = 5 if QUICK else 25  # of each program, of a look-up
GOES = 10 if QUICK else 60  # in each of them
LOOKS = 50_000  # of a go: a millisecond, which often passes without an interruption
NAME = "layers.42.weight"

# No package for Go can be had from where this was made: github.com/nlpodyssey/safetensors is "not available" at the proxy.
GO_PEER = "encoding/json"


class Program:
    """One of the programs that wait for "WHAT N" and tell how long N times took."""

    def __init__(self, name: str, *arguments: object) -> None:
        self.process = subprocess.Popen([BUILD / "tests/bench" / name, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, what: str, n: int) -> float:
        """Seconds of one. Done twice, of which the second counts: the program slept while others were timed, and a
        processor takes tens of milliseconds to be fast again."""
        self.once(what, n)
        return self.once(what, n)

    def once(self, what: str, n: int) -> float:
        print(what, n, file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline()) / 1e9 / n

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait()


def medians(works: dict) -> dict:
    """Seconds of each by turns: `works` are functions that measure once."""
    found = {what: [] for what in works}
    for work in works.values():
        work()  # warm
    for _ in range(ROUNDS):
        for what, work in works.items():
            found[what].append(work())
    return {what: median(times) for what, times in found.items()}


def lookups(programs: dict[str, tuple[list[object], list[str]]]) -> dict[str, list[float]]:
    """Seconds of each look-up, one figure a process: `programs` are the arguments of one, and what is asked of it."""
    found = {what: [] for _, asked in programs.values() for what in asked}
    for _ in range(PROCESSES):
        for name in random.sample(list(programs), len(programs)):
            arguments, asked = programs[name]
            with Program(*arguments) as program:
                goes = {what: [program.once(what, LOOKS) for _ in range(GOES)] for what in random.sample(asked, len(asked))}
            for what, took in goes.items():
                found[what].append(min(took))
    return found


def python_calls(small: Path) -> None:
    from libst import compat

    with safe_open(small, framework="np") as theirs, libst.open(small) as ours, Program("get_bench", small, NAME) as c:
        drop_in = compat.safe_open(small, "np")
        m = medians({
            "c": lambda: c("get", GETS),
            "stock": lambda: timed(lambda: theirs.get_tensor(NAME), GETS // 100),
            "view": lambda: timed(lambda: ours[NAME], GETS // 100),
            "compat": lambda: timed(lambda: drop_in.get_tensor(NAME), GETS // 100),
        })  # fmt: skip
    row("Python, a tensor of 4 bytes: f[name], against get_tensor", m["stock"], m["view"], seconds, at_least=1)
    row("  libst.compat's get_tensor, a copy as stock's", m["stock"], m["compat"], seconds)
    row("  f[name], against st_get in C", m["c"], m["view"], seconds, multiple=True, peer="C")


def python_loads(model: Path) -> None:
    """Each twice in a row, of which the second counts: a virtual machine takes free memory from its guest in pieces of a
    huge page, and whoever has them next waits for the host, a second for a GiB, whatever it does with them."""
    load = libst.compat.numpy.load_file
    works = {
        "stock": lambda: load_file(model),
        "owned": lambda: load(model),
        "views": lambda: load(model, backend="view"),
    }
    first, second = {what: [] for what in works}, {what: [] for what in works}
    for _ in range(ROUNDS // 2):
        for what, work in works.items():
            first[what].append(timed(work))
            second[what].append(timed(work))
    m, given = ({what: median(times) for what, times in found.items()} for found in (second, first))
    row(f"Python, load_file of {SIZE // MIB} MiB again in one process, warm: libst.compat, owned memory", m["stock"], m["owned"], seconds, at_least=3)
    row('  libst.compat, backend="view"', m["stock"], m["views"], seconds, at_least=50)
    row("  owned memory, after a while without", given["stock"], given["owned"], seconds)


def reads(program: str, rows: dict[str, tuple[str, str]], file: Path) -> None:
    """Pairs of shots of each row, which are the peer and the row as the program calls them."""

    def shot(way: str, what: str) -> tuple[float, int]:
        said = subprocess.run([BUILD / "tests/bench" / program, way, what, file, str(COUNT)], check=True, capture_output=True, text=True).stdout
        took, total = map(int, said.split())
        return took / 1e9 / COUNT, total

    for title, (peer, what) in rows.items():
        found: dict[str, list[float]] = {peer: [], "libst": []}
        for _ in range(SHOTS):
            sums = set()
            for way in random.sample(list(found), 2):
                took, total = shot(way, what)
                found[way].append(took)
                sums.add(total)
            assert len(sums) == 1, f"{title}: {peer} and libst do not read the same"
        ratios = [theirs / ours for theirs, ours in zip(found[peer], found["libst"])]
        paired(title, found[peer], found["libst"], bound=lower(ratios), at_least=0.95, peer=peer)


PROMISE = (
    "A read by libst is a system call, since a truncated file must be an error and no signal. Its peers with pread have "
    "this promise; the others copy from a mapping, as a libst program does with a view"
)


def rust(small: Path, large: Path, many: Path) -> None:
    if not (BUILD / "tests/bench/bindings_bench_rust").exists():
        note("Rust is left out: there is no cargo")
        return
    found = lookups({"c": (["get_bench", small, NAME], ["get"]), "rust": (["bindings_bench_rust", small, NAME, large], ["view"])})
    spread("Rust, a tensor of 4 bytes: file.view(name), against st_get in C", found["get"], found["view"], at_most=1.05, peer="C")
    with Program("bindings_bench_rust", small, NAME, large) as r:
        m = medians({what: lambda what=what: r(what, OPENS) for what in ("open", "crate-open", "names", "crate-names")})
    row(f"Rust, open {COUNT:,} tensors: against the crate's mmap + deserialize", m["crate-open"], m["open"], seconds, at_least=5, peer="crate")
    row("  and list the names", m["crate-names"], m["names"], seconds, peer="crate")
    note(PROMISE)
    names = {
        f"Rust, each of {COUNT:,} tensors of {READ >> 10} KiB: file.tensor(name)": ("crate", "tensor"),
        "  file.read(name), a new Vec": ("crate", "read"),
        "  file.read(name), against pread into a new Vec": ("pread", "read"),
        "  file.read_into(name, reused)": ("crate", "read_into"),
        "  file.read_into(name, reused), against pread": ("pread", "read_into"),
        "  file.view(name), copied to a new Vec": ("crate", "copy"),
        "  file.view(name), copied to a reused one": ("crate", "copy_into"),
    }
    reads("bindings_bench_rust", names, many)


def go(small: Path, large: Path, many: Path) -> None:
    if not (BUILD / "tests/bench/bindings_bench_go").exists():
        note("Go is left out: there is no Go that can build the binding")
        return
    note(f"Go's package github.com/nlpodyssey/safetensors is not to be had here; its place takes a reader with {GO_PEER} (go/header.go)")
    found = lookups({"go": (["bindings_bench_go", small, NAME, large], ["empty", "c", "view"])})
    both = [empty + c for empty, c in zip(found["empty"], found["c"])]
    spread("Go, a tensor of 4 bytes: f.View(name), against empty cgo call + C", both, found["view"], at_most=1.25, peer="cgo+C")
    with Program("bindings_bench_go", small, NAME, large) as g:
        m = medians({what: lambda what=what: g(what, OPENS) for what in ("open", "json", "names", "json-names")})
    row(f"Go, open {COUNT:,} tensors: against {GO_PEER}", m["json"], m["open"], seconds, at_least=5, peer="json")
    row("  and list the names", m["json-names"], m["names"], seconds, peer="json")
    note(PROMISE)
    note("The reader in Go has made all names and descriptions when it is open, which the rows above count; libst makes them when it is asked")
    names = {
        f"Go, each of {COUNT:,} tensors of {READ >> 10} KiB: f.View(name)": ("mmap", "view"),
        "  f.Info(name)": ("mmap", "info"),
        "  f.Info(name), a third time": ("mmap", "info-again"),
        "  f.Get(name)": ("mmap", "get"),
        "  f.Get(name), against pread": ("pread", "get"),
        "  f.ReadInto(name, reused)": ("mmap", "readinto"),
        "  f.ReadInto(name, reused), against pread": ("pread", "readinto"),
        "  f.View(name), copied to a new slice": ("mmap", "copy"),
        "  f.View(name), copied to a reused one": ("mmap", "copyinto"),
        "  f.Names(), of all, a name": ("mmap", "names"),
        "  f.Names(), a third time, a name": ("mmap", "names-again"),
    }
    reads("bindings_bench_go", names, many)


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    heading(f"The bindings; files on {filesystem(PLACE)}")
    try:
        small, large, model = PLACE / "small.safetensors", PLACE / f"{COUNT}.safetensors", PLACE / "model.safetensors"
        save_file({f"layers.{i}.weight": np.ones(1, np.float32) for i in range(100)}, small)
        catalogue(large, COUNT)
        python_calls(small)
        many = PLACE / "many.safetensors"
        bits = np.random.default_rng(1).integers(0, 256, (COUNT, READ), np.uint8)
        save_file({f"layers.{i}.weight": bits[i].view(np.float32).reshape(64, -1) for i in range(COUNT)}, many)
        rust(small, large, many)
        go(small, large, many)
        llama.write(model, SIZE)
        python_loads(model)
    finally:
        shutil.rmtree(PLACE)
    summary()


if __name__ == "__main__":
    main()
