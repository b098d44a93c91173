"""Every disk that a power cut could have left, by the log of all that reached it.

Writers run on ext4, xfs and btrfs over a disk that logs each write and each flush. What was written
before a flush is on the disk after it; of what was written since, a power cut leaves any part. So for
many moments the disk is built anew with some of the later writes missing or torn at a sector, mounted,
and opened: each transaction must be whole or not at all, and nothing lost that had been acknowledged.
"""

import os
import random
import subprocess
import time
from collections import Counter
from dataclasses import dataclass

import disk
import model
import pytest
import st_abi
from recorder import Recorder, read_log

CHUNK = 1 << 16
SECTOR = 512
MAGIC = b"libst journal 2"


class Image:
    """The bytes of a disk, and a file that a loop device reads, made to hold them."""

    def __init__(self, base, file):
        self.bytes = bytearray(os.path.getsize(base))
        self.chunks = set()  # that may be other than zero
        with open(base, "rb") as f:
            fd, at, size = f.fileno(), 0, len(self.bytes)
            while at < size:
                try:
                    at = os.lseek(fd, at, os.SEEK_DATA)
                except OSError:
                    break
                end = os.lseek(fd, at, os.SEEK_HOLE)
                self.write(at, os.pread(fd, end - at, at))
                at = end
        self.file = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self.file, len(self.bytes))

    def write(self, offset, data):
        self.bytes[offset : offset + len(data)] = data
        self.chunks.update(range(offset // CHUNK, (offset + len(data) - 1) // CHUNK + 1))

    def apply(self, record):
        if record.kind == "Z":
            self.bytes[record.offset : record.offset + record.length] = bytes(record.length)
        else:
            self.write(record.offset, record.data)

    def put_into_file(self, extra):
        """These bytes, and over them (offset, data) in order."""
        os.ftruncate(self.file, 0)
        os.ftruncate(self.file, len(self.bytes))
        view = memoryview(self.bytes)
        for chunk in sorted(self.chunks):
            os.pwrite(self.file, view[chunk * CHUNK : (chunk + 1) * CHUNK], chunk * CHUNK)
        for offset, data in extra:
            os.pwrite(self.file, data, offset)

    def close(self):
        os.close(self.file)


def is_of_libst(record):
    """A tear is only fair to writes of ours: a filesystem may rely on whole blocks for its own."""
    return record.kind == "W" and (record.data[: len(MAGIC)] == MAGIC or model.holds_pattern(record.data))


def tear(record, choose):
    """Some sectors of a write, as (offset, data)."""
    sectors = range(0, record.length, SECTOR)
    if choose.random() < 0.5:  # a beginning
        keep = sectors[: choose.randrange(len(sectors) + 1)]
    else:
        keep = [s for s in sectors if choose.random() < 0.5]
    return [(record.offset + s, record.data[s : s + SECTOR]) for s in keep]


@dataclass
class Interval:
    """What was logged from one flush to the next."""

    start: int
    records: list

    def writes(self, end):
        return [i for i, r in enumerate(self.records[:end]) if r.kind in "WZ"]


def intervals_of(records):
    result, current, start = [], [], 0
    for i, record in enumerate(records):
        if record.kind == "F":
            result.append(Interval(start, current))
            current, start = [], i + 1
        else:
            current.append(record)
    return [*result, Interval(start, current)]


def choose_state(interval, choose):
    """A moment in the interval, and what of its writes had reached the disk: (end, label, pieces)."""
    writes = interval.writes(len(interval.records))
    end = choose.choice([len(interval.records), 1 + choose.choice(writes)])
    writes = interval.writes(end)
    last = choose.choice(writes)
    kinds = {
        "all": writes,
        "none": [],
        "all but one": [w for w in writes if w != last],
        "only one": [last],
        "some": [w for w in writes if choose.random() < 0.5],
    }
    label = choose.choice([*kinds, "some", "torn", "torn"])
    kept = kinds.get(label, writes)
    torn = None
    if label == "torn":
        candidates = [w for w in writes if is_of_libst(interval.records[w])]
        if not candidates:
            label, kept = "some", kinds["some"]
        else:
            torn = choose.choice(candidates)
            kept = [w for w in writes if w == torn or choose.random() < 0.7]
    pieces = []
    for w in kept:
        record = interval.records[w]
        if w == torn:
            pieces += tear(record, choose)
        else:
            pieces.append((record.offset, record.data if record.kind == "W" else bytes(record.length)))
    return end, label, pieces


WRITERS = 4
VERSIONS = 1_000_000  # writer k makes versions from k times this


def histories_of(records):
    """What each writer had said, from the marks."""
    histories = [model.History() for _ in range(WRITERS)]
    for record in records:
        if record.kind != "M":
            continue
        line = record.data.decode()
        words = line.split()
        if words[0] in ("begin", "ack", "fail"):
            histories[int(words[1]) // VERSIONS].add(line)
    return histories


def record_workload(scratch, kind, programs, deltas, bound):
    """First two writers at once on different tensors, then one on all, then some that die and are recovered.
    Answers the log, and the disk before it."""
    count = bound({"ext4": 18, "xfs": 12, "btrfs": 10}[kind], 100)
    with Recorder(scratch, kind, programs) as recorder:
        path = recorder.mount() / "m.safetensors"
        path.write_bytes(model.file_bytes())
        recorder.umount()
        base = scratch / "base.img"
        subprocess.run(["cp", "--sparse=always", recorder.image, base], check=True)
        recorder.command("!forget")
        recorder.mount()

        def start(writer, tensors, reopen):
            options = {"tensors": tensors, "first": writer * VERSIONS + 1, "count": count, "seed": bound.seed + writer}
            return programs.writer(path, lines=recorder.mark, reopen=reopen, steps=3, deltas=deltas, later=4, **options)

        for together in ([(0, "0,2,4", 3), (1, "1,3,5", 0)], [(2, "0,1,2,3,4,5", 7)]):
            for process in [start(*arguments) for arguments in together]:
                assert process.wait(120) == 0
        for version in range(3 * VERSIONS + 1, 3 * VERSIONS + 1 + bound(3, 20)):
            programs.crash_while_applying(path, [0] * len(model.SMALL), version, lines=recorder.mark)
            undone = model.waiting(path) == ["undo"]
            st_abi.recover(path)
            recorder.command(f"fail {version} ST_E_IO\n" if undone else f"ack {version}\n")
        recorder.umount()
        return base, read_log(recorder.log)


# Most of the states on the filesystem that mounts fastest; all three have their share.
QUICK = {"ext4": 160, "xfs": 60, "btrfs": 60}
FULL = {"ext4": 12000, "xfs": 4000, "btrfs": 4000}


@pytest.mark.parametrize("kind, journal", disk.JOURNALS)
def test_any_disk_that_a_power_cut_leaves(kind, journal, scratch, programs, deltas, bound, tell):
    choose = random.Random(bound.seed)
    base, records = record_workload(scratch, kind, programs.with_journals(journal), deltas, bound)
    intervals = [i for i in intervals_of(records) if i.writes(len(i.records))]
    wanted = bound(QUICK, FULL)[kind]

    # Spread the states over the intervals, then go through the log once, in order.
    per_interval = [wanted // len(intervals) + (n < wanted % len(intervals)) for n in range(len(intervals))]
    if wanted < len(intervals):
        chosen = set(choose.sample(range(len(intervals)), wanted))
        per_interval = [int(n in chosen) for n in range(len(intervals))]

    image = Image(base, scratch / "state.img")
    start = [0] * len(model.SMALL)
    labels, states, applied, found = {}, set(), 0, Counter()
    began = time.monotonic()
    with disk.Disk(scratch, kind, backing=scratch / "state.img") as d:
        path = d.mountpoint / "m.safetensors"
        for interval, count in zip(intervals, per_interval):
            for record in records[applied : interval.start]:
                if record.kind in "WZ":
                    image.apply(record)
            applied = interval.start
            for _ in range(count * 4):
                if count == 0:
                    break
                end, label, pieces = choose_state(interval, choose)
                key = (interval.start, end, hash(tuple(pieces)))
                if key in states:
                    continue
                states.add(key)
                count -= 1
                labels[label] = labels.get(label, 0) + 1
                histories = histories_of(records[: interval.start + end])
                image.put_into_file(pieces)
                d.loop.forget_cache()
                d.mount()
                found.update(model.waiting(path))
                try:
                    model.check_file(path, model.allowed_by_all(start, histories))
                except model.Violation as e:
                    at = f"cut at record {interval.start + end} of {len(records)}, {label} of the last writes"
                    raise model.Violation(f"{kind}, {journal}, {at}, seed {bound.seed}: {e}") from None
                finally:
                    d.umount()
    image.close()
    seconds = time.monotonic() - began
    shares = ", ".join(f"{count} {label}" for label, count in sorted(labels.items()))
    detail = f"from {len(intervals)} flushes, in {seconds:.0f} s; of the last writes {shares}; waited: {dict(found)}"
    tell(len(states), f"disks that a power cut could leave, {kind}, {journal}", detail)
    assert len(states) >= 0.9 * wanted and found[journal]
