"""Change one 4 MiB tensor of a large file the stock way and the libst way; print both times.

two_ways.py FILE
"""

import os
import sys
import time

import libst
import ml_dtypes  # noqa: F401  (the stock package needs it for BF16)
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

path = sys.argv[1]
name = "model.layers.0.self_attn.k_proj.weight"


def stock_tensor(tensor):
    with safe_open(path, framework="np") as f:
        return f.get_tensor(tensor)


def fingerprint(but):
    """What stock reads in all other tensors."""
    return {n: hash(t.tobytes()) for n, t in load_file(path).items() if n != but}


original = stock_tensor(name)
others = fingerprint(name)
megabytes = os.path.getsize(path) / (1 << 20)
print(
    f"   {megabytes:,.0f} MiB, {len(others) + 1} tensors; the one to change: {name} {list(original.shape)}, "
    f"{original.nbytes / (1 << 20):.0f} MiB\n"
)

wanted = (original.astype("float32") * 1.5).astype(original.dtype)
begin = time.perf_counter()
tensors = load_file(path)
tensors[name] = wanted
save_file(tensors, path, metadata={"format": "pt"})
stock_seconds = time.perf_counter() - begin
del tensors
print(
    f"   stock   load_file, change, save_file      {stock_seconds * 1000:10,.1f} ms   "
    f"rewrites {megabytes:,.0f} MiB, and is not yet on disk"
)
assert (stock_tensor(name) == wanted).all()

os.sync()  # stock left a gigabyte for the disk to write; do not let libst wait for that
wanted = (original.astype("float32") * 0.5).astype(original.dtype)
inode = os.stat(path).st_ino
begin = time.perf_counter()
with libst.open(path, "r+") as f:
    f.update(name, wanted)
libst_seconds = time.perf_counter() - begin
print(
    f"   libst   open, update, close               {libst_seconds * 1000:10,.1f} ms   "
    f"writes the tensor and its journal; durable, atomic"
)
print(f"\n   {stock_seconds / libst_seconds:,.0f} times as fast")

assert (stock_tensor(name) == wanted).all(), "stock does not see the update"
assert fingerprint(name) == others, "another tensor changed"
assert os.stat(path).st_ino == inode
print("   stock reads the new tensor, and the same bytes in all others")
