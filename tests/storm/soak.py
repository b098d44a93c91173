#!/usr/bin/env python3
"""A long life: processes on two hosts do everything that libst does to one file, and nothing may grow.

    python3 tests/storm/soak.py --minutes 60 [--rig glusterfs] [--plot soak.svg]

Two hosts are two clients of one server (tests/storage/hosts.py), of GlusterFS unless `--rig` says otherwise. With
`--rig none`, or where there is none, both are this host; `--dir` and `--other-host` name two mounts of one folder. Half
of the processes work on each. Memory, descriptors, mappings and the disk are sampled all the time. In the end the
second half is held against the first, and all against limits; `--plot` draws the four curves. $LIBST_LIBRARY names the
library under test.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
KIB = 1024
MIB = 1024 * KIB
WARM = 30  # steps of a process before it is measured: buffers, pools and caches fill
PATIENCE = 180  # seconds in which a process is warm, or ends when told: a step may wait for a host that went away


class Curve(NamedTuple):
    title: str
    unit: float
    room: float  # by which the second half may be above the first, beside a tenth
    most: float


CURVES = {
    "memory": Curve("Private memory of all processes, MiB (RssAnon)", MIB, 8 * MIB, 512 * MIB),
    "descriptors": Curve("Open descriptors of all processes", 1, 8, 256),
    "mappings": Curve("Mappings of all processes", 1, 40, 4000),
    "disk": Curve("Disk that the folder takes, MiB", MIB, 8 * MIB, 256 * MIB),
}


# --- What a process does ---------------------------------------------------------------------------------------------


class Worker:
    """Shared tensors keep their form; those of its own come, go, and change it."""

    SHARED, SIZE = 6, 40_000

    def __init__(self, path, number):
        import libst
        import numpy

        self.libst, self.numpy = libst, numpy
        self.path, self.number = path, number
        self.own, self.extra = f"own{number}", f"extra{number}"
        self.random = random.Random(number)
        self.file, self.count = None, Counter()

    @classmethod
    def first(cls, path, workers):
        import libst
        import numpy

        tensors = {f"shared{i}": numpy.zeros(cls.SIZE + 1000 * i, "uint8") for i in range(cls.SHARED)}
        tensors |= {f"own{w}": numpy.zeros(5000, "uint8") for w in range(workers)}
        libst.save(path, tensors)

    def value(self, size):
        return self.numpy.frombuffer(self.random.randbytes(size), "uint8")

    def shared(self):
        name = f"shared{self.random.randrange(self.SHARED)}"
        return name, self.value(self.file.info(name).shape[0])

    def update(self):
        self.file.update(*self.shared())

    def update_slice(self):
        name, value = self.shared()
        begin = self.random.randrange(len(value) - 100)
        self.file.update(name, value[begin : begin + 100], at=slice(begin, begin + 100))

    def transaction(self):
        with self.file.transaction() as transaction:
            for _ in range(3):
                transaction.update(*self.shared())

    def publish(self):
        with self.file.transaction(publish=True) as transaction:
            transaction.update(*self.shared())

    def add_or_delete(self):
        with self.file.transaction() as transaction:
            if self.extra in self.file:
                transaction.delete(self.extra)
            else:
                transaction.put(self.extra, self.value(3000))

    def resize(self):
        with self.file.transaction() as transaction:
            transaction.put(self.own, self.value(self.random.choice([5000, 20_000])))

    def compact(self):
        self.libst.compact(self.path)

    def delta(self):
        """From the file to a copy of it that differs in one tensor; it is applied, and taken back."""
        stem = f"{self.path}-{self.number}"
        copy, delta, back = f"{stem}-copy.safetensors", f"{stem}-delta.safetensors", f"{stem}-back.safetensors"
        try:
            tensors = {name: self.file.read(name) for name in self.file}
            tensors[self.own] = self.value(len(tensors[self.own]))
            self.libst.save(copy, tensors)
            self.libst.diff(self.path, copy, delta)
            self.libst.patch(self.path, delta, reverse=back)
            self.libst.patch(self.path, back)
        finally:
            for made in (copy, delta, back):
                Path(made).unlink(missing_ok=True)

    def look(self):
        """A state that is held while the handle goes on."""
        held = [self.file[name] for name in self.file]
        self.file.refresh()
        self.file.read_many(list(self.file))
        assert all(len(tensor) for tensor in held)

    def verify(self):
        findings = self.libst.verify(self.path)
        assert not [f for f in findings if f.status != self.libst.Status.NEEDS_RECOVERY], findings

    def step(self):
        libst = self.libst
        ways = [self.update] * 4 + [self.update_slice, self.transaction] * 2
        ways += [self.publish, self.add_or_delete, self.resize, self.compact, self.delta, self.look, self.verify]
        way = self.random.choice(ways)
        try:
            if self.file is None or self.random.random() < 0.1:
                self.close()
                self.file = libst.open(self.path, "r+")
            self.file.refresh()
            way()
            self.count[way.__name__] += 1
        except (libst.BusyError, libst.DeltaError, libst.NotFoundError):
            self.count["in each other's way"] += 1
        except ValueError:  # a form that another has changed since the look
            self.count["in each other's way"] += 1
        except libst.StorageError as e:
            if e.status != libst.Status.FILE_CHANGED:
                raise
            self.count["in each other's way"] += 1
            self.close()

    def close(self):
        if self.file is not None:
            self.file.close()
            self.file = None


def work(path, number):
    stop = []
    faulthandler.enable()
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    worker = Worker(path, number)
    for _ in range(WARM):
        worker.step()
    print("warm", flush=True)
    while not stop:
        worker.step()
    worker.close()
    print(json.dumps(worker.count))


# --- What is measured ------------------------------------------------------------------------------------------------


def _memory(pid):
    """RssAnon: pages of mapped files are everybody's."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * KIB
    return 0


def _disk(folder):
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(at, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total


def sample(pids, folder):
    return {
        "memory": sum(_memory(pid) for pid in pids),
        "descriptors": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
        "mappings": sum(Path(f"/proc/{pid}/maps").read_bytes().count(b"\n") for pid in pids),
        "disk": _disk(folder),
    }


def judged(samples):
    """What is not flat, in words."""
    wrong = []
    for name, curve in CURVES.items():
        values = [s[name] for s in samples]
        half = len(values) // 2
        first, second = statistics.median(values[:half]), statistics.median(values[half:])
        if second > first * 1.1 + curve.room:
            wrong.append(f"{name}: {first / curve.unit:.1f} in the first half, {second / curve.unit:.1f} in the second")
        if max(values) > curve.most:
            wrong.append(
                f"{name}: {max(values) / curve.unit:.1f} at most, and the limit is {curve.most / curve.unit:.1f}"
            )
    return wrong


def draw(samples, file):
    sys.path.insert(0, str(ROOT / "tests" / "bench"))
    import plots

    plots.draw_each(
        {c.title: [(s["seconds"], s[name] / c.unit) for s in samples] for name, c in CURVES.items()}, "seconds", file
    )


class Result(NamedTuple):
    samples: list
    count: Counter
    wrong: list


def where_it_waits(worker):
    """The kernel's functions that each thread is in, the innermost first; in one line, as a test's report shows one."""
    threads = []
    for task in sorted(Path(f"/proc/{worker.pid}/task").iterdir()):
        try:
            stack = (task / "stack").read_text().splitlines()
        except OSError as e:  # it has ended, or only root may see
            stack = [str(e)]
        threads.append(" < ".join(line.split()[-1].split("+")[0] for line in stack[:4]) or "none")
    return "; ".join(threads)


def end_stuck(worker):
    """Python's own part is on stderr (faulthandler), if the kernel lets the process end."""
    print(f"process {worker.pid} waits in {where_it_waits(worker)}")
    worker.send_signal(signal.SIGABRT)
    try:
        worker.wait(timeout=10)
    except subprocess.TimeoutExpired:
        worker.kill()


def is_warm(worker, until):
    ready, _, _ = select.select([worker.stdout], [], [], max(0, until - time.monotonic()))
    return bool(ready) and worker.stdout.readline() == "warm\n"


def ended(worker, until):
    """What it said, or None if it goes on: then it is killed."""
    try:
        return worker.communicate(timeout=max(0, until - time.monotonic()))[0]
    except subprocess.TimeoutExpired:
        end_stuck(worker)
        return None


def soak(folders, seconds, processes=4):
    """On the same folder as each host sees it. Every process must end well."""
    import libst

    paths = [str(Path(folder) / "model.safetensors") for folder in folders]
    Worker.first(paths[0], processes)
    with ExitStack() as stack:
        workers = []
        for w in range(processes):
            command = [sys.executable, __file__, "--work", paths[w % len(paths)], str(w)]
            worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.callback(worker.kill)
            workers.append(worker)
        begin = time.monotonic()
        wrong = [f"process {w} did not get warm" for w in range(processes) if not is_warm(workers[w], begin + PATIENCE)]
        samples, begin = [], time.monotonic()
        while not wrong and (passed := time.monotonic() - begin) < seconds and not any(w.poll() for w in workers):
            samples.append({"seconds": passed, **sample([w.pid for w in workers], folders[0])})
            time.sleep(min(5, seconds / 60))
        for worker in workers:
            worker.terminate()
        told = time.monotonic()
        said = [ended(worker, told + (0 if wrong else PATIENCE)) for worker in workers]
    wrong += [f"process {w} did not end when it was told to" for w, text in enumerate(said) if text is None]
    wrong += [f"process {w} ended with {worker.returncode}" for w, worker in enumerate(workers) if worker.returncode]
    count = sum((Counter(json.loads(text)) for text in said if text), Counter())
    if not wrong:
        wrong = judged(samples) + [str(finding) for finding in libst.verify(paths[0])]
        left = sorted(p.name for p in Path(folders[0]).iterdir() if p.name != "model.safetensors")
        wrong += [f"{name} is left" for name in left]
    return Result(samples, count, wrong)


def _hosts(arguments, stack):
    """The folder that each of two hosts has, and what they are."""
    kind = arguments.rig
    if arguments.dir:
        return [
            arguments.dir,
            arguments.other_host or arguments.dir,
        ], "two mounts" if arguments.other_host else "one host"
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="libst-soak-")))
    sys.path.insert(0, str(ROOT / "tests" / "storage"))
    import clients
    import disk
    import hosts

    if kind != "none" and not disk.why_not() and not clients.lacking(*hosts.NEEDS[kind]):
        disk.enter_own_namespace()
        rig = stack.enter_context(hosts.make(kind, folder / "rig"))
        return rig.mounts, f"two hosts, {kind}"
    return [folder], "one host"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rig", default="glusterfs", choices=["glusterfs", "moosefs", "none"])
    parser.add_argument("--dir", help="an empty folder, in place of a rig")
    parser.add_argument("--other-host", metavar="FOLDER", help="another mount of it")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT / "bindings" / "python"))
    if arguments.work:
        path, number = arguments.work
        return work(path, int(number))
    with ExitStack() as stack:
        folders, where = _hosts(arguments, stack)
        result = soak(folders, arguments.minutes * 60, arguments.processes)
    print(f"{where}, {arguments.processes} processes, {arguments.minutes:g} minutes:", dict(result.count))
    for name, curve in CURVES.items() if result.samples else ():
        values = [s[name] / curve.unit for s in result.samples]
        print(f"{curve.title}: {values[0]:.1f} at first, {max(values):.1f} at most, {values[-1]:.1f} in the end")
    if arguments.plot:
        draw(result.samples, arguments.plot)
    for wrong in result.wrong:
        print("FAILED:", wrong)
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
