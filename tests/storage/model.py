"""The file that the storage tests change, and what may be in it afterwards.

Version v of tensor t is a pattern that shows both in every sector, so that old,
new, torn and foreign bytes can be told apart. A step of training leaves some words
of a version over another one. The writer program makes the same.
"""

from __future__ import annotations

import functools
import json
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import safetensors
import st_abi

# Some of every kind: a few bytes, less and more than a sector and a page, none of them
# aligned as the first has an odd size; t4 is large enough to stream to the journal.
SMALL = [("U8", [3005]), ("F32", [16, 1024]), ("I8", [513]), ("I16", [10000]), ("F64", [280, 125]), ("U8", [1])]
BITS = {"U8": 8, "I8": 8, "I16": 16, "F32": 32, "F64": 64}

_A, _B, _C = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_MASK = (1 << 64) - 1


def nbytes(tensor):
    dtype, shape = tensor
    return int(np.prod(shape, dtype=np.int64)) * BITS[dtype] // 8


def stepped(version, step):
    """What `version` becomes by this step, which is seen where a step changes words. Elsewhere it stays what it was."""
    return version & 0xFFFFFFFF | step << 32


@functools.lru_cache(maxsize=512)
def pattern(t, version, n):
    numbers = np.arange(n // 8 + 1, dtype=np.uint64)
    words = numbers * np.uint64(_C)
    words += np.uint64(((version & 0xFFFFFFFF) * _A + t * _B) & _MASK)
    if step := version >> 32:
        changes = (numbers // 1024 % 3 != 1) & (numbers % 61 == 7)
        words[changes] += np.uint64((step - (version & 0xFFFFFFFF)) * _A & _MASK)
    return words.tobytes()[:n]


def holds_pattern(block):
    """Does any sector of these bytes belong to a tensor?"""
    whole = len(block) // 512 * 512
    words = np.frombuffer(block[:whole], dtype=np.uint8)
    # The tensors do not start at multiples of 8: look at each of the eight phases.
    for phase in range(8):
        usable = words[phase : phase + (len(words) - phase) // 8 * 8].view(np.uint64)
        if len(usable) > 2 and np.any(np.diff(usable)[:-1] == np.uint64(_C)):
            return True
    return False


def version_of(t, data):
    """The version whose pattern begins so; for messages only."""
    word = int.from_bytes(data[:8], "little")
    version = ((word - t * _B) * pow(_A, -1, 1 << 64)) & _MASK if len(data) >= 8 else None
    return version if version is not None and version < 1 << 32 else "none"


def file_bytes(tensors=SMALL, versions=None):
    header, offset = {"__metadata__": {"made by": "tests/storage"}}, 0
    for t, tensor in enumerate(tensors):
        header[f"t{t}"] = {"dtype": tensor[0], "shape": tensor[1], "data_offsets": [offset, offset + nbytes(tensor)]}
        offset += nbytes(tensor)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    versions = versions or [0] * len(tensors)
    parts = [pattern(t, versions[t], nbytes(tensor)) for t, tensor in enumerate(tensors)]
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


SIZES = [nbytes(t) for t in SMALL]
OLD = (0,) * len(SMALL)


def put_model(directory, name="m.safetensors", versions=None):
    path = directory / name
    path.write_bytes(file_bytes(versions=versions))
    return path


def new(t, version=1):
    """The bytes of a version of tensor t."""
    return pattern(t, version, SIZES[t])


def payloads(version, tensors):
    """These tensors of this version, by name."""
    return {f"t{t}": new(t, version) for t in tensors}


def folder_of(path):
    return Path(f"{path}.st-journal")


def journals(path):
    """Names in the journal folder; None if there is no folder."""
    folder = folder_of(path)
    return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else None


def waiting(path):
    """What kinds of record wait in the journal folder: "redo" or "undo" for each."""
    kinds = []
    for name in journals(path) or []:
        sector = (folder_of(path) / name).read_bytes()[:512]
        if sector.startswith(b"libst journal 2"):
            kinds.append("undo" if struct.unpack_from("<Q", sector, 80)[0] & 1 else "redo")
    return kinds


# ------------------------------------------------------- what may be in the file


@dataclass
class Operation:
    version: int
    tensors: list
    is_step: bool = False
    result: str = "pending"  # or "ack", or the name of a status

    def after(self, state):
        """What it makes of a version vector."""
        new = [stepped(v, self.version) if self.is_step else self.version for v in state]
        return tuple(new[t] if t in self.tensors else v for t, v in enumerate(state))

    def may_show(self):
        """Which outcomes the answer allows: {False} nothing changed, {True} it must be there, or both."""
        if self.result == "ack":
            return {True}
        if self.result in ("pending", "ST_E_NEEDS_RECOVERY"):
            return {False, True}
        return {False}


@dataclass
class History:
    """What one writer said, in its order."""

    operations: list = field(default_factory=list)
    other: list = field(default_factory=list)

    def add(self, line):
        words = line.split()
        if words[:1] == ["begin"]:
            tensors = [int(t) for t in words[2].split(",")]
            self.operations.append(Operation(int(words[1]), tensors, words[3:] == ["step"]))
        elif words[:1] in (["ack"], ["fail"]):
            operation = self.operations[-1]
            assert operation.version == int(words[1]) and operation.result == "pending", line
            operation.result = "ack" if words[0] == "ack" else words[2]
        elif line.strip():
            self.other.append(line.strip())

    @classmethod
    def of(cls, text):
        history = cls()
        for line in re.findall(r"[^\n]+\n", text):  # whole lines only
            history.add(line)
        return history

    @property
    def acknowledged(self):
        return sum(o.result == "ack" for o in self.operations)

    @property
    def closed(self):
        return "closed" in self.other

    def results(self):
        return {o.result for o in self.operations}

    def allowed(self, start):
        """Every version vector that the file may hold, given what it held before."""
        states = {tuple(start)}
        for operation in self.operations:
            after = {operation.after(state) for state in states}
            outcomes = operation.may_show()
            states = (states if False in outcomes else set()) | (after if True in outcomes else set())
        return states


def allowed_by_all(start, histories):
    """The same for writers of disjoint tensors at once: any mix of what each allows."""
    states = {tuple(start)}
    for history in histories:
        states = {after for state in states for after in history.allowed(state)}
    return states


class Violation(AssertionError):
    """A promise that was not kept."""


def check_bytes(observed, allowed, tensors=SMALL):
    """The version vector of these tensors, which must be an allowed one."""
    for state in sorted(allowed):
        if all(observed[t] == pattern(t, v, nbytes(tensors[t])) for t, v in enumerate(state)):
            return state
    seen = []
    for t, tensor in enumerate(tensors):
        versions = {state[t] for state in allowed}
        whole = [v for v in versions if observed[t] == pattern(t, v, nbytes(tensor))]
        seen.append(whole[0] if whole else f"torn or foreign (begins as {version_of(t, observed[t])})")
    raise Violation(f"the file holds versions {seen}; allowed: {sorted(allowed)}")


def check_file(path, allowed, tensors=SMALL):
    """Open for writing, which recovers; compare; compare with stock; close. Answers the versions."""
    try:
        with st_abi.File(path) as f:
            names = [f"t{t}" for t in range(len(tensors))]
            if sorted(f.names()) != sorted(names):
                raise Violation(f"tensors {f.names()}")
            observed = [f.read(name) for name in names]
            views = [f.view(name) for name in names]
    except st_abi.StError as e:
        raise Violation(f"cannot be opened and read after recovery: {e}") from e
    if views != observed:
        raise Violation("st_get shows other bytes than st_read")
    state = check_bytes(observed, allowed, tensors)
    if (left := journals(path)) is not None:
        raise Violation(f"the journal folder is left after close, with {left}")
    check_stock(path, observed, tensors)
    return state


def check_stock(path, observed, tensors=SMALL):
    """The stock package opens the file and finds the same bytes."""
    with safetensors.safe_open(path, framework="np") as stock:
        if sorted(stock.keys()) != sorted(f"t{t}" for t in range(len(tensors))):
            raise Violation(f"stock safetensors finds tensors {stock.keys()}")
        for t in range(len(tensors)):
            array = stock.get_tensor(f"t{t}")
            if list(array.shape) != tensors[t][1] or array.tobytes() != observed[t]:
                raise Violation(f"stock safetensors reads other bytes of t{t}")
