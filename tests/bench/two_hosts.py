"""libst on a filesystem of several hosts, beside bare calls on the same mounts: GlusterFS, one brick and two clients on this
machine (tests/storage/hosts.py). Both take turns, so that whatever else the machine does falls on both. Needs root.

    two_hosts.py BUILD-TREE [--quick]     as table.py
    HOSTS_RIG                         another of the rigs (default: glusterfs)
    HOSTS_TRACE                       a folder; then only one update, and each call of it, by strace, goes there
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

os.environ["ST_BUILD"] = str(Path(sys.argv[1]).resolve())

import disk
import hosts
import libst
import st_abi
import table
from clients import lacking
from table import MIB, QUICK, heading, note, per_second, row, seconds, summary

PLACE = table.PLACE / "hosts"
RIG = os.environ.get("HOSTS_RIG", "glusterfs")
TRACE = os.environ.get("HOSTS_TRACE")
UPDATE = 4 * MIB
TENSORS = 8
BULK = (64 if QUICK else 256) * MIB
ROUNDS = 5 if QUICK else 21
SPELL = 2.0 if QUICK else 5.0  # seconds of four workers


def put_model(path: Path, sizes: list[int]) -> int:
    """Tensors of these sizes, with bytes that are not zero; answers where they begin."""
    entries, at = {}, 0
    for i, n in enumerate(sizes):
        entries[f"t{i}"] = {"dtype": "U8", "shape": [n], "data_offsets": [at, at + n]}
        at += n
    header = json.dumps(entries).encode()
    with open(path, "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header)
        for n in sizes:
            f.write(os.urandom(MIB) * (n // MIB))
        f.flush()
        os.fsync(f.fileno())
    return 8 + len(header)


def bare_write(fd: int, value: bytes, offset: int) -> None:
    left = memoryview(value)
    while left:
        done = os.pwrite(fd, left, offset)
        left, offset = left[done:], offset + done
    os.fsync(fd)


def clocked(work, *arguments) -> float:
    begin = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - begin


def updates(mount: Path) -> None:
    path, bare = mount / "model.safetensors", mount / "bare"
    put_model(path, [UPDATE] * TENSORS)
    begin = put_model(bare, [UPDATE] * TENSORS)
    values = [os.urandom(UPDATE) for _ in range(4)]
    got: dict[str, list[float]] = {"bare": [], "libst": []}
    fd = os.open(bare, os.O_RDWR)
    with st_abi.File(path) as file:
        for i in range(ROUNDS + 2):
            tensor, value = i % TENSORS, values[i % len(values)]
            took = clocked(bare_write, fd, value, begin + tensor * UPDATE)
            ours = clocked(file.update, f"t{tensor}", value)
            if i >= 2:
                got["bare"].append(took)
                got["libst"].append(ours)
    os.close(fd)
    row("an update of 4 MiB: one worker, an open handle", median(got["bare"]), median(got["libst"]), seconds, at_most=3, peer="bare")


def work(way: str, path: str, worker: int, begin: int, ready, until, count) -> None:
    value, done = os.urandom(UPDATE), 0
    file = st_abi.File(path) if way == "libst" else None
    fd = os.open(path, os.O_RDWR)
    ready.wait()
    end = time.monotonic() + until
    while time.monotonic() < end:
        if file:
            file.update(f"t{worker}", value)
        else:
            bare_write(fd, value, begin + worker * UPDATE)
        done += 1
    os.close(fd)
    if file:
        file.close()
    count[worker] = done


def spell(way: str, mounts: list[Path]) -> float:
    """Changes a second of four workers, of whom two are on each host, each at a tensor of its own."""
    begin = put_model(mounts[0] / f"four-{way}", [UPDATE] * 4)
    context = multiprocessing.get_context("fork")
    ready, count = context.Barrier(4), context.Array("l", 4)
    workers = [context.Process(target=work, args=(way, str(mounts[i % 2] / f"four-{way}"), i, begin, ready, SPELL, count)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0, f"a worker ended with {worker.exitcode}"
    return sum(count) / SPELL


def four(mounts: list[Path]) -> None:
    got: dict[str, list[float]] = {"bare": [], "libst": []}
    for _ in range(1 if QUICK else 3):
        for way in got:
            got[way].append(spell(way, mounts))
    # Changes a second: the more the better.
    row("four workers on two hosts, 4 MiB each: changes a second", median(got["bare"]), median(got["libst"]), per_second, at_least=0.5, peer="bare", multiple=True)


def sequential(path: Path, buffer: bytearray) -> None:
    with open(path, "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        view = memoryview(buffer)
        while n := f.readinto(view):
            view = view[n:] or memoryview(buffer)


def bulk(mount: Path) -> None:
    path = mount / "bulk.safetensors"
    put_model(path, [8 * MIB] * (BULK // (8 * MIB)))
    buffer = bytearray(MIB)
    got: dict[str, list[float]] = {"bare": [], "reader": [], "writer": []}
    rounds = 3 if QUICK else 7

    def forget() -> None:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    for _ in range(rounds):
        for way in got:
            forget()
            if way == "bare":
                got[way].append(clocked(sequential, path, buffer))
            else:
                with libst.open(path, "r+" if way == "writer" else "r") as file:
                    got[way].append(clocked(file.read_many, list(file)))
    for way in ("reader", "writer"):
        row(f"a bulk load of {BULK // MIB} MiB: all tensors, cold, by a {way}", median(got["bare"]), median(got[way]), seconds, at_least=0.95, peer="bare")


def trace(mount: Path) -> None:
    """One update by itself, after one that warms the handle."""
    path = mount / "model.safetensors"
    put_model(path, [UPDATE] * TENSORS)
    code = (
        "import os, st_abi, sys\n"
        f"value = os.urandom({UPDATE})\n"
        "with st_abi.File(sys.argv[1]) as file:\n"
        "    file.update('t0', value)\n"
        "    os.getpriority(os.PRIO_PROCESS, 0)\n"
        "    file.update('t1', value)\n"
        "    os.getpriority(os.PRIO_PROCESS, 0)\n"
    )
    command = ["strace", "-f", "-r", "-T", "-y", "-o", f"{TRACE}/update.strace", sys.executable, "-c", code, path]
    subprocess.run(list(map(str, command)), check=True)


def main() -> None:
    if why := disk.why_not() or lacking(*hosts.NEEDS[RIG]):
        note(f"Several hosts are left out: {why}")
        return
    disk.enter_own_namespace()
    PLACE.mkdir(parents=True, exist_ok=True)
    try:
        with hosts.make(RIG, PLACE / "rig") as rig:
            if TRACE:
                return trace(rig.mounts[0])
            heading(f"Two hosts on {RIG}, beside bare calls on the same mounts: pwrite and fsync; read, a MiB at a time")
            updates(rig.mounts[0])
            four(rig.mounts)
            bulk(rig.mounts[0])
    finally:
        disk.detach_below(PLACE)
        shutil.rmtree(PLACE)
    summary()


if __name__ == "__main__":
    main()
