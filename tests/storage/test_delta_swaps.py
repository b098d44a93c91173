"""A sub-module of 200 tensors swapped back and forth 50 times, by a delta and its reverse: each swap writes what the
sub-module has, in place, whatever the size of the model."""

import os
import sys

import numpy as np
import pytest
import st_abi
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(st_abi.ROOT / "bindings" / "python"))
os.environ.setdefault("LIBST_LIBRARY", str(st_abi.LIBRARY))
import libst  # noqa: E402

TENSORS, PART, SWAPS = 200, 16 << 10, 50


def dirtied():
    """Bytes that this process has made dirty, in files of filesystems with a disk."""
    with open("/proc/self/io") as io:
        return int(io.read().split("write_bytes: ")[1].split()[0])


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_swap_costs_the_sub_module(make_disk, kind, tell):
    folder = make_disk(kind, size=400 << 20).mount()
    base, other, forth, back = (folder / name for name in ("base.safetensors", "other.safetensors", "forth", "back"))
    rest = {f"rest.{i}": np.full(1 << 20, i, np.uint8) for i in range(40)}
    random = np.random.default_rng(20261121)
    # Which have nothing to do with each other: a delta holds them whole.
    a, b = ({f"adapter.{i}": random.standard_normal(PART // 4, np.float32) for i in range(TENSORS)} for _ in range(2))
    save_file({**rest, **a}, base)
    save_file({**rest, **b}, other)
    module = TENSORS * PART
    libst.diff(base, other, forth)
    os.unlink(other)
    assert libst.delta_info(forth).data_bytes == module

    inode = base.stat().st_ino
    plan = libst.patch(base, forth, reverse=back)
    before, written = dirtied(), 0
    for i in range(1, SWAPS):
        plan = libst.patch(base, back if i % 2 else forth)
        assert (plan.kind, plan.bytes_copied) == ("patch", 0)
        # The journal, too: the bytes once more, or by an undo record their hashes alone.
        assert module < plan.bytes_written < 2.05 * module
        written += module
    spent = dirtied() - before
    # The journal has the bytes once more; hashes, headers and metadata of the filesystem come on top.
    assert spent < 3 * written, f"{spent} bytes were made dirty to change {written}"
    assert base.stat().st_ino == inode
    read = load_file(base)
    for name, array in {**rest, **(a if SWAPS % 2 == 0 else b)}.items():
        assert read[name].tobytes() == array.tobytes(), name
    with pytest.raises(libst.DeltaError) as caught:
        libst.patch(base, back if SWAPS % 2 == 0 else forth)
    assert caught.value.status == libst.Status.DELTA_BASE
    tell(SWAPS, "swaps of a sub-module", f"{spent / written:.2f} bytes made dirty for a byte changed, on {kind}")


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_a_merge_shares_blocks_with_its_base(make_disk, kind):
    folder = make_disk(kind, size=400 << 20).mount()
    base, other, delta, merged = (folder / name for name in ("base.safetensors", "other.safetensors", "d", "m"))
    tensors = {f"w{i}": np.full(1 << 20, i, np.uint8) for i in range(64)}
    save_file(tensors, base)
    tensors["w9"] = np.zeros(1 << 20, np.uint8)
    save_file(tensors, other)
    libst.diff(base, other, delta)
    os.unlink(other)
    os.sync()
    before = os.statvfs(folder)
    libst.merge(base, [delta], merged)
    os.sync()
    after = os.statvfs(folder)
    assert (before.f_bfree - after.f_bfree) * before.f_frsize < 8 << 20
    read = load_file(merged)
    assert {name: read[name].tobytes() for name in read} == {name: t.tobytes() for name, t in tensors.items()}
