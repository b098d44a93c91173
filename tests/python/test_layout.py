"""Transactions that change the layout: put, delete, rename, metadata, their plan; refresh and compact."""

import ctypes
import os
import subprocess
import sys

import libst
import numpy as np
import pytest
from conftest import TENSORS, at_once, raw_file, refused
from safetensors import safe_open
from safetensors.numpy import load_file


def same(path, tensors, metadata=None):
    loaded = load_file(path)
    assert set(loaded) == set(tensors)
    for name, array in tensors.items():
        assert loaded[name].dtype == array.dtype and loaded[name].tobytes() == array.tobytes()
    if metadata is not None:
        with safe_open(path, "np") as f:
            assert (f.metadata() or {}) == metadata


def test_everything_in_one_transaction(model):
    with libst.open(model, "r+") as f:
        w = f["w"]
        with f.transaction() as t:
            t.update("b", TENSORS["b"] + 1)
            t.put("new", np.ones((2, 2), np.float16))
            t.put("scalar", np.arange(3, dtype=np.uint8))
            t.delete("flags")
            t.rename("w", "weight")
            t.update("weight", TENSORS["w"] * 2)
            t.metadata("format", "pt")
            t.metadata("author", None)
        tensors = {
            **TENSORS,
            "b": TENSORS["b"] + 1,
            "new": np.ones((2, 2), np.float16),
            "scalar": np.arange(3, dtype=np.uint8),
            "weight": TENSORS["w"] * 2,
        }
        del tensors["flags"], tensors["w"]
        assert set(f) == set(tensors) and dict(f.metadata) == {"format": "pt"}
        assert (f["weight"] == tensors["weight"]).all()
        assert (w == TENSORS["w"]).all()  # the old file
        assert f.stats().commits == 1
    same(model, tensors, {"format": "pt"})
    del w  # which kept the file open
    assert os.listdir(model.parent) == [model.name]


def test_refusals_leave_the_transaction_as_it_was(model):
    with libst.open(model, "r+") as f:
        with f.transaction() as t:
            for call, error in [
                (lambda: t.delete("none"), libst.NotFoundError),
                (lambda: t.rename("none", "x"), libst.NotFoundError),
                (lambda: t.rename("w", "b"), libst.FormatError),
                (lambda: t.metadata("none", None), libst.NotFoundError),
                (lambda: t.metadata("epoch", 3), TypeError),
                (lambda: t.put("__metadata__", np.ones(1)), ValueError),
                (lambda: t.rename("w", "__metadata__"), ValueError),
                (lambda: t.put("p", libst.Packed("F4", (3,), np.ones(1, np.uint8))), libst.FormatError),
                (lambda: t.put("p", libst.Packed("U8", (3,), np.ones(1, np.uint8))), ValueError),
                (lambda: t.put("p", np.ones(1, np.longdouble)), TypeError),  # an element type that the format has not
                (lambda: t.update("none", np.ones(1)), libst.NotFoundError),
                (lambda: t.update("w", np.ones(1, np.float32)), ValueError),
            ]:
                with pytest.raises(error):
                    call()
            t.delete("w")
            with pytest.raises(libst.NotFoundError):
                t.update("w", TENSORS["w"])
            t.put("w", np.ones(1))
    same(model, {**TENSORS, "w": np.ones(1)})


def test_a_name_may_go_round(model):
    with libst.open(model, "r+") as f, f.transaction() as t:
        t.rename("w", "tmp")
        t.rename("b", "w")
        t.rename("tmp", "b")
    same(model, {**TENSORS, "w": TENSORS["b"], "b": TENSORS["w"]})


def test_payloads_are_borrowed_or_copied(model):
    array = np.arange(1 << 20, dtype=np.uint8)
    with libst.open(model, "r+") as f:
        with f.transaction(copy=True) as t:
            t.put("big", array)
            t.put("small", array[:10])
            array[:] = 0
        same(model, {**TENSORS, "big": np.arange(1 << 20, dtype=np.uint8), "small": np.arange(10, dtype=np.uint8)})


def test_plan_says_what_the_commit_does(model):
    with libst.open(model, "r+") as f, f.transaction() as t:
        assert t.plan().kind == "nothing"
        t.update("b", TENSORS["b"])
        plan = t.plan()
        assert (plan.kind, plan.file_size) == ("patch", model.stat().st_size)
        assert plan.bytes_written > TENSORS["b"].nbytes  # and the journal
        t.put("big", np.zeros(100_000, np.uint8))
        plan = t.plan()
        assert plan.kind == "publish" and plan.bytes_written >= plan.data_offset + 100_000
        assert plan.space_needed >= plan.file_size - plan.bytes_shared and plan.space_free > 0 and plan.how
        before = model.read_bytes(), os.listdir(model.parent)
        t.plan()
        assert (model.read_bytes(), os.listdir(model.parent)) == before
        t.commit()
        assert model.stat().st_size == plan.file_size


# What was staged comes from a journal, which is no old file.
@pytest.mark.parametrize("sharded", [False, True])
def test_plan_counts_as_copied_what_the_old_files_have_alone(tmp_path, sharded):
    path, kept = tmp_path / "model.safetensors", 700_001
    path.write_bytes(raw_file([(name, "U8", [kept], bytes(kept)) for name in ("ab" if sharded else "a")]))
    if sharded:
        libst.reshard(path, tmp_path / "sharded", max_shard_size=kept)
        path = tmp_path / "sharded"
    with libst.open(path, "r+") as f, f.transaction(copy=True) as t:
        t.put("staged", np.zeros(200_000, np.uint8))  # into the last shard alone
        plan = t.plan()
        assert plan.kind == "publish" and plan.bytes_shared + plan.bytes_copied == kept
        if plan.bytes_shared == 0 and not sharded:
            assert f" {kept} bytes are copied" in plan.how


def test_update_alone_may_be_published(model):
    inode = model.stat().st_ino
    with libst.open(model, "r+") as f:
        old = f["b"]
        f.update("b", TENSORS["b"] + 1)
        assert model.stat().st_ino == inode and old[0] == TENSORS["b"][0] + 1
        with f.transaction(publish=True) as t:
            t.update("b", TENSORS["b"] + 2)
        assert model.stat().st_ino != inode and old[0] == TENSORS["b"][0] + 1 and f["b"][0] == TENSORS["b"][0] + 2


def test_other_handles_follow(model):
    with libst.open(model, "r+") as f, libst.open(model, "r+") as g:
        staged = g.transaction()
        staged.update("b", TENSORS["b"] + 5)
        with f.transaction() as t:
            t.delete("w")
            t.put("n", np.ones(3))
        assert "w" in g and "n" not in g
        staged.commit()  # into the file that took the place
        with g.transaction() as t:
            t.rename("n", "m")
        f.refresh()
        assert set(f) == (set(TENSORS) - {"w"}) | {"m"} and (f["b"] == TENSORS["b"] + 5).all()
        lost = g.transaction()
        lost.rename("m", "o")
        with f.transaction() as t:
            t.delete("m")
        with refused("FILE_CHANGED"):
            lost.commit()
    assert os.listdir(model.parent) == [model.name]


def test_writers_of_all_kinds_at_once_lose_nothing(model):
    """Publishes and patches of many handles: each adds its own and counts in one that all share."""

    def work(k):
        with libst.open(model, "r+", lock_timeout=None) as f:
            for i in range(8):
                with f.transaction() as t:
                    t.put(f"t{k}.{i}", np.full(1000, k * 100 + i))
                f.refresh()
                f.update(f"t{k}.{i}", np.full(1000, k * 100 + i + 1))

    at_once(work, *range(4))
    same(model, {**TENSORS, **{f"t{k}.{i}": np.full(1000, k * 100 + i + 1) for k in range(4) for i in range(8)}})
    assert os.listdir(model.parent) == [model.name]


def test_mode_owner_and_attributes_are_carried_over(model):
    os.chmod(model, 0o640)
    os.setxattr(model, "user.note", b"\0kept")
    if os.geteuid() == 0:
        os.chown(model, 12345, 23456)
    before = model.stat()
    with libst.open(model, "r+") as f, f.transaction() as t:
        t.delete("w")
    after = model.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino and os.getxattr(model, "user.note") == b"\0kept"


def acl(*entries):
    return b"\2\0\0\0" + b"".join(
        tag.to_bytes(2, "little") + perm.to_bytes(2, "little") + who.to_bytes(4, "little") for tag, perm, who in entries
    )


NOBODY = 0xFFFFFFFF


def test_acl_is_carried_over_and_no_other_inherited(model):
    name = "system.posix_acl_access"
    given = acl((1, 6, NOBODY), (2, 4, 1234), (4, 0, NOBODY), (16, 4, NOBODY), (32, 0, NOBODY))
    try:
        os.setxattr(model, name, given)
    except OSError as e:
        pytest.skip(f"no ACLs here: {e}")
    with libst.open(model, "r+") as f, f.transaction() as t:
        t.delete("w")
    assert os.getxattr(model, name) == given
    os.removexattr(model, name)
    os.chmod(model, 0o640)
    os.setxattr(
        model.parent,
        "system.posix_acl_default",
        acl((1, 7, NOBODY), (2, 7, 4321), (4, 7, NOBODY), (16, 7, NOBODY), (32, 7, NOBODY)),
    )
    with libst.open(model, "r+") as f, f.transaction() as t:
        t.delete("b")
    assert name not in os.listxattr(model) and model.stat().st_mode & 0o777 == 0o640


def test_target_of_a_link_is_replaced(model, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(model.name)
    with libst.open(link, "r+") as f, f.transaction() as t:
        t.delete("w")
    assert link.is_symlink() and "w" not in load_file(model)


def test_hard_links_are_refused_unless_told(model, tmp_path):
    os.link(model, tmp_path / "other")
    with libst.open(model, "r+") as f:
        f.update("b", TENSORS["b"] + 1)  # in place, for both names
        t = f.transaction()
        t.delete("w")
        with refused("HARD_LINKS"):
            t.commit()
        with f.transaction(break_links=True) as t:
            t.delete("w")
    assert "w" in load_file(tmp_path / "other") and "w" not in load_file(model)


def test_cancelling_leaves_the_old_file(model):
    before = model.read_bytes()

    def stop(done, total):
        if done > 5_000_000:
            raise KeyError("enough")

    with libst.open(model, "r+") as f:
        with pytest.raises(KeyError), f.transaction(copy=False, progress=stop) as t:
            t.put("big", np.ones(2 << 20))
        assert set(f) == set(TENSORS)
    assert model.read_bytes() == before and os.listdir(model.parent) == [model.name]


def test_killed_publish_leaves_a_temporary_that_recover_removes(model):
    program = """
import libst, numpy, os, signal, sys
f = libst.open(sys.argv[1], "r+")
t = f.transaction(copy=False, progress=lambda done, total: done > 5_000_000 and os.kill(os.getpid(), signal.SIGKILL))
t.put("big", numpy.ones(2 << 20))
t.commit()
"""
    before = model.read_bytes()
    subprocess.run([sys.executable, "-c", program, str(model)])
    left = [name for name in os.listdir(model.parent) if name.startswith(f".{model.name}.st-tmp-")]
    assert len(left) == 1 and model.read_bytes() == before
    libst.recover(model)
    assert left[0] not in os.listdir(model.parent)
    same(model, TENSORS)


def test_header_reserve_takes_later_growth(model):
    with libst.open(model, "r+") as f:
        with f.transaction(header_reserve=4000, alignment=4096) as t:
            t.metadata("k", "v")
        offset = f.io_info().data_offset
        assert offset % 4096 == 0
        with f.transaction() as t:
            t.metadata("more", "m" * 3000)
        assert f.io_info().data_offset == offset
        libst.compact(model)
        f.refresh()
        assert f.io_info().data_offset < offset
    same(model, TENSORS)


def test_compact_of_a_file_of_libst_is_stocks_order(model):
    with libst.open(model, "r+") as f:
        with f.transaction() as t:
            for name in list(TENSORS):
                t.rename(name, "z" + name)
            t.put("a", np.ones(3, np.float64))
            t.put("c", np.ones(3, np.uint8))
        libst.compact(model)
        f.refresh()
        order = list(f)
    tensors = {**{"z" + name: a for name, a in TENSORS.items()}, "a": np.ones(3, np.float64), "c": np.ones(3, np.uint8)}
    libst.save(model.with_name("canonical"), tensors, layout="canonical")
    with libst.open(model.with_name("canonical")) as f:
        assert list(f) == order


def test_read_only_handles_refresh_but_do_not_change(model):
    with libst.open(model) as f, libst.open(model, "r+") as g:
        with g.transaction() as t:
            t.delete("w")
        assert "w" in f
        f.refresh()
        assert "w" not in f
        with refused("READ_ONLY"):
            f.transaction()
    with libst.open_memory(model.read_bytes()) as f:
        f.refresh()


def test_zero_struct_sizes_are_refused():
    from libst import _abi

    plan = _abi.Plan()
    assert _abi.st_txn_plan(None, plan) == libst.Status.INVALID_ARGUMENT
    options = _abi.TxnOptions()
    assert _abi.st_compact(b"/nonexistent", ctypes.byref(options)) == libst.Status.INVALID_ARGUMENT


# ---------------------------------------------------------------- alignment

ODD = {"flag": np.ones(3, np.bool_), "half": np.arange(3, dtype=np.float16), "wide": np.arange(5, dtype=np.float64)}


def unaligned(path):
    """The names of tensors that begin at no multiple of their element's size."""
    with libst.open(path) as f:
        return [name for name in f if f.info(name).file_offset % f[name].itemsize]


def test_what_is_saved_lies_aligned_after_odd_sizes_too(tmp_path):
    path = tmp_path / "m.safetensors"
    libst.save(path, ODD)
    assert unaligned(path) == []
    same(path, ODD)
    with libst.writer(path) as w:
        for name, array in ODD.items():
            w.add(name, array)
    assert unaligned(path) == []
    same(path, ODD)
    libst.save(path, dict(reversed(ODD.items())))
    with libst.open(path) as f:
        assert list(f) == ["wide", "half", "flag"]  # an order that does it stays


@pytest.mark.parametrize("change", ["put", "shrink", "delete"])
def test_a_publish_keeps_tensors_aligned(tmp_path, change):
    path = tmp_path / "m.safetensors"
    before = {"a": np.zeros(4, np.uint8), "b": np.zeros(4, np.uint8), "c": np.arange(2, dtype=np.float64)}
    libst.save(path, before)
    with libst.open(path, "r+") as f, f.transaction() as t:
        if change == "put":
            t.put("odd", np.ones(3, np.uint8))
            t.put("wide", np.ones(3, np.float32))
        elif change == "shrink":
            t.put("a", np.ones(3, np.uint8))
        else:
            t.delete("a")
    assert unaligned(path) == []
    after = dict(before)
    if change == "put":
        after |= {"odd": np.ones(3, np.uint8), "wide": np.ones(3, np.float32)}
    elif change == "shrink":
        after["a"] = np.ones(3, np.uint8)
    else:
        del after["a"]
    same(path, after)


def test_a_file_of_another_writer_keeps_its_order(tmp_path):
    """All of it would have to move, where now blocks are shared."""
    path = tmp_path / "m.safetensors"
    forms = [("flag", "U8", [3], b"abc"), ("wide", "F64", [2], bytes(16)), ("half", "F16", [1], b"hi")]
    path.write_bytes(raw_file(forms))
    with libst.open(path, "r+") as f, f.transaction() as t:
        t.put("new", np.ones(2, np.float32))
    with libst.open(path) as f:
        assert list(f) == ["flag", "wide", "half", "new"]
