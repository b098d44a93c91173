"""Check with the stock package that of two files exactly the named tensors differ, and that every other byte is equal.

only_changed.py BEFORE AFTER TENSOR...
"""

import json
import sys

from safetensors import deserialize, safe_open

before_path, after_path, *expected = sys.argv[1:]
before, after = (open(p, "rb").read() for p in (before_path, after_path))

old, new = (dict(deserialize(content)) for content in (before, after))
assert old.keys() == new.keys(), "tensors came or went"
assert all((old[n]["dtype"], old[n]["shape"]) == (new[n]["dtype"], new[n]["shape"]) for n in old), (
    "a dtype or shape changed"
)
changed = sorted(n for n in old if old[n]["data"] != new[n]["data"])
assert changed == sorted(expected), f"changed: {changed}, expected: {sorted(expected)}"
with safe_open(after_path, framework="np") as f:  # the other way in
    assert sorted(f.keys()) == sorted(old)
print(f"   stock safetensors reads all {len(new)} tensors; exactly these changed: {', '.join(changed)}")

# And without any library: every byte outside these tensors is the same.
header_end = 8 + int.from_bytes(before[:8], "little")
header = json.loads(before[8:header_end])
outside = bytearray(before)
for name in expected:
    begin, end = (header_end + o for o in header[name]["data_offsets"])
    outside[begin:end] = after[begin:end]
assert outside == after, "bytes outside these tensors changed"
touched = sum(header[n]["data_offsets"][1] - header[n]["data_offsets"][0] for n in expected)
print(f"   byte by byte: the other {len(before) - touched:,} of {len(before):,} bytes are the same")
