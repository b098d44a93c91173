"""Follows the index of a sharded checkpoint with the stock safetensors package, again and again, until standard
input closes.

    stock_shard_reader.py INDEX    prints how often; exits 1 at the first failure, 77 if there is no stock package

What libst promises to stock readers while others change shards together: whoever reads the index and then looks into
the shards finds each tensor in the shard that is named, unless the index has been replaced since. So a look that fails
counts only if the index is the same file afterwards; the same text may have come back, as a delta that was taken back
brings it. A tensor that moves (s0.17) is never patched in place: its bytes are of one version.
"""

import json
import pathlib
import select
import sys
import time

try:
    import numpy as np
    from safetensors import safe_open
except ImportError as e:
    print(e, flush=True)
    sys.exit(77)

FIRST_SLOT = 16  # as in shard_scene.h


def is_whole(data: bytes, cell: int) -> bool:
    """As version_of() in tensor_file.cpp, of what is written all over the tensor."""
    words = np.frombuffer(data + bytes(-len(data) % 8), "<u8")
    with np.errstate(over="ignore"):
        x = words[0] * np.uint64(0x9E3779B97F4A7C15) + np.uint64(cell << 40) + np.arange(len(words), dtype="<u8")
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    x[:2] = words[0]
    return x.tobytes()[: len(data)] == data


def look(index: dict, folder: pathlib.Path) -> str:
    """What is wrong, if anything."""
    total = 0
    for shard in sorted(set(index["weight_map"].values())):
        with safe_open(folder / shard, framework="np") as f:
            there = set(f.keys())
            for name in (n for n, s in index["weight_map"].items() if s == shard):
                if name not in there:
                    return f"{name} is not in {shard}"
                total += f.get_slice(name).get_shape()[0]
                slot, dot, _ = name.partition(".")
                if dot:
                    assert is_whole(f.get_tensor(name).tobytes(), FIRST_SLOT + int(slot[1:])), f"{name} is torn"
    told = index["metadata"]["total_size"]
    return "" if total == told else f"total_size is {told}, but there are {total} bytes"


def state(path: pathlib.Path) -> tuple:
    s = path.stat()
    return s.st_ino, s.st_mtime_ns


def main(path: pathlib.Path) -> None:
    print("ready", flush=True)
    looked = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        before, text = state(path), path.read_text()
        wrong = look(json.loads(text), path.parent)
        assert not wrong or state(path) != before, f"{wrong}, by the index {text}"
        looked += not wrong
        time.sleep(0.002)  # leave the processor to the writers
    print(looked, flush=True)


main(pathlib.Path(sys.argv[1]))
