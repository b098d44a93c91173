"""Tensors of torch as views of files, and libst.compat.torch against safetensors.torch."""

import copy
import gc
import json
import mmap
import os
import re
import resource
import shutil
import struct
import sys
import threading
import time
from pathlib import Path

import libst
import libst.compat.torch as compat
import ml_dtypes
import numpy as np
import pytest
import safetensors.torch as stock
import torch
from conftest import is_mapped, raw_file, refused
from libst import _torch
from libst._pin import Pin
from libst._torch import TORCH_NAMES
from libst.compat import SafetensorError, _ahead
from libst.compat import safe_open as compat_open
from safetensors import SafetensorError as StockError
from safetensors import safe_open as stock_open
from torch.overrides import TorchFunctionMode
from ways import WAYS

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
DTYPES += [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
TENSORS = {str(dtype): torch.arange(12).reshape(3, 4).to(dtype) for dtype in DTYPES}
TENSORS |= {"scalar": torch.tensor(2.5), "empty": torch.empty(0, 3)}


def same(a, b):
    assert set(a) == set(b)
    for name, tensor in a.items():
        assert tensor.dtype == b[name].dtype and tensor.shape == b[name].shape and torch.equal(tensor, b[name]), name


@pytest.fixture
def path(tmp_path):
    stock.save_file(TENSORS, tmp_path / "model.safetensors", {"format": "pt"})
    return tmp_path / "model.safetensors"


def test_views_are_of_the_file_and_keep_it(path):
    with libst.open(path, mapping="copy-on-write") as f:
        view = f.torch("torch.float32")
        assert view.data_ptr() == f["torch.float32"].__array_interface__["data"][0]
        same({name: f.torch(name) for name in f}, TENSORS)
    del f
    gc.collect()
    assert torch.equal(view, TENSORS["torch.float32"]) and is_mapped(path)
    part = view[1:]
    del view
    gc.collect()
    assert torch.equal(part, TENSORS["torch.float32"][1:])
    del part
    gc.collect()
    assert not is_mapped(path)


MIB = 1 << 20


@pytest.fixture
def large(tmp_path):
    """64 MiB: one tensor of nearly all of it, a small one, and one between them."""
    tensors = {"large": torch.arange(15 * MIB).float(), "small": torch.ones(1024), "third": torch.ones(MIB)}
    stock.save_file(tensors, tmp_path / "large.safetensors")
    return tmp_path / "large.safetensors"


def anonymous():
    """Bytes of memory that this process has for itself."""
    return 1024 * int(re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


def mapped(path):
    """Of all mappings of a file: how many bytes' pages are there, and how many of them are this process's own."""
    about = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.M)
    about = [mapping for mapping in about if mapping.partition("\n")[0].endswith(f" {path}")]
    return [
        sum(1024 * int(re.search(rf"^{field}:\s+(\d+) kB", mapping, re.M)[1]) for mapping in about)
        for field in ("Rss", "Anonymous")
    ]


def through_file(path):
    with libst.open(path) as f:
        return {name: f.torch(name) for name in f}


def through_slices(path):
    with compat_open(path, framework="pt") as f:
        return {name: f.get_slice(name)[...] for name in f.keys()}


WRITABLE = {
    "load_file": compat.load_file,
    "get_slice": through_slices,
    "torch": through_file,
    "load": lambda path: libst.load(path, framework="torch", mapping="copy-on-write"),
}


@pytest.mark.parametrize("load", WRITABLE.values(), ids=WRITABLE)
def test_what_is_loaded_is_shared_until_it_is_written(large, load):
    expected = stock.load_file(large)["large"].sum()
    content = large.read_bytes()
    before = anonymous()
    tensors = load(large)
    assert tensors["large"].sum() == expected and is_mapped(large)
    assert anonymous() - before < 8 * MIB
    tensors["third"].fill_(7)
    assert 4 * MIB <= mapped(large)[1] < 8 * MIB and anonymous() - before < 12 * MIB
    assert large.read_bytes() == content
    small = tensors.pop("small")
    del tensors
    gc.collect()
    assert small.sum() == 1024 and anonymous() - before < 12 * MIB


@pytest.mark.parametrize("load", WRITABLE.values(), ids=WRITABLE)
def test_an_optimiser_steps_on_what_is_loaded(path, load):
    content = path.read_bytes()
    weight = torch.nn.Parameter(load(path)["torch.float32"])
    optimiser = torch.optim.SGD([weight], lr=1.0)
    (weight * 2).sum().backward()
    optimiser.step()
    assert torch.equal(weight, TENSORS["torch.float32"] - 2)
    assert path.read_bytes() == content
    same(stock.load_file(path), TENSORS)


@pytest.mark.parametrize("load", WRITABLE.values(), ids=WRITABLE)
def test_a_tensor_is_the_whole_of_its_storage(path, load):
    """Or who saves, pickles or copies one would take the file with it."""
    for name, tensor in load(path).items():
        assert tensor.storage().nbytes() == tensor.nelement() * tensor.element_size(), name


@pytest.mark.parametrize("load", ["load_file", "torch", "load"])
def test_a_tensor_is_no_view_of_another_one(path, load):
    """That would be kept with it, and cost time and memory."""
    assert {name for name, tensor in WRITABLE[load](path).items() if tensor._base is not None} <= {"scalar"}


class Unchanging(TorchFunctionMode):
    """As torch.func.grad, export and FakeTensorMode of newer versions: see the next test."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.resize_:
            raise RuntimeError("in-place operation (aten::resize_) that would mutate a captured Tensor")
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("load", WRITABLE.values(), ids=WRITABLE)
def test_what_lets_no_tensor_be_changed_lets_files_be_loaded(path, load):
    with Unchanging():
        tensors = load(path)
    same(tensors, TENSORS)


@pytest.mark.skipif(not hasattr(torch, "func"), reason="this torch is older than 2.0")
@pytest.mark.parametrize("load", WRITABLE.values(), ids=WRITABLE)
def test_files_are_loaded_within_transforms(path, load):
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    ones = torch.ones(3, 4)
    assert torch.equal(
        torch.func.grad(lambda x: (load(path)["torch.float32"] * x).sum())(ones), TENSORS["torch.float32"]
    )
    with FakeTensorMode(allow_non_fake_inputs=True):
        made = load(path)["torch.float32"]
    assert type(made) is FakeTensor and made.shape == (3, 4)


@pytest.mark.parametrize("load", WRITABLE.values(), ids=WRITABLE)
def test_a_patch_by_this_process_does_not_show_in_what_is_loaded(path, load):
    tensors = load(path)
    with libst.open(path, "r+") as f:
        f.update("torch.float32", np.zeros((3, 4), "f4"))
        same(tensors, TENSORS)
        assert f.torch("torch.float32").tolist() == [[0] * 4] * 3
        f.torch("torch.float32").add_(1)
        f.update("torch.float32", f.torch("torch.float32"))
        assert f["torch.float32"].tolist() == [[1] * 4] * 3
    same(tensors, TENSORS)


def _kernel_populates():
    with mmap.mmap(-1, 4096) as scratch:
        try:
            scratch.madvise(22)  # MADV_POPULATE_READ
        except OSError:
            return False
    return True


populates = pytest.mark.skipif(
    os.cpu_count() == 1 or not _kernel_populates(),
    reason="one processor, or a kernel before 5.14, which does not populate mappings",
)


def in_memory(path):
    """Of a file's bytes, how many are in the page cache. Who looks by reading would bring them there."""
    with libst.open(path) as f:
        return f.stats().bytes_resident


def await_ahead():
    """Returns when nothing is read ahead any more."""
    for thread in threading.enumerate():
        if thread.name == _ahead.NAME:
            thread.join()


@pytest.mark.parametrize("far", [0, 1 << 60])  # from which the kernel's own way of reading ahead is left to it
def test_a_cold_file_is_read_ahead_of_who_touches_it(large, monkeypatch, far):
    monkeypatch.setattr(_ahead, "_FAR", far)
    with open(large, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if in_memory(large) > 8 * MIB:
        pytest.skip("files here stay in memory")
    before = anonymous()
    tensors = compat.load_file(large)
    await_ahead()
    deadline = time.monotonic() + 60  # what is on its way from the disk counts as missing
    while in_memory(large) < 32 * MIB and time.monotonic() < deadline:
        time.sleep(0.01)
    assert in_memory(large) >= 32 * MIB and anonymous() - before < 8 * MIB and len(tensors) == 3


@pytest.mark.parametrize("far", [pytest.param(0, marks=populates), 1 << 60])
def test_files_that_wait_to_be_read_ahead_are_not_open_and_only_read_while_wanted(large, tmp_path, monkeypatch, far):
    read, begun, goes_on, one = set(), threading.Event(), threading.Event(), _ahead._Threads(1)

    def watched(opens):
        return lambda path, *args, **kwargs: (read.add(path), opens(path, *args, **kwargs))[1]

    monkeypatch.setattr(_ahead, "_FAR", far)
    monkeypatch.setattr(_ahead, "_is_cold", lambda *_: True)
    monkeypatch.setattr(_ahead, "_readers", one)
    monkeypatch.setattr(_ahead, "_followers", one)
    one.add([lambda _: (begun.set(), goes_on.wait(60))], _ahead.Wanted())
    assert begun.wait(60)
    before = len(os.listdir("/proc/self/fd"))
    paths = [str(shutil.copy(large, tmp_path / f"{i}.safetensors")) for i in range(20)]
    loaded = [compat.load_file(path) for path in paths[:19]]
    monkeypatch.setattr(Pin, "torch_all", refuse_load)
    with pytest.raises(MemoryError):
        compat.load_file(paths[19])
    assert len(os.listdir("/proc/self/fd")) == before
    del loaded[5:]
    monkeypatch.setattr(_ahead, "open", watched(open), raising=False)
    monkeypatch.setattr(os, "open", watched(os.open))
    goes_on.set()
    await_ahead()
    assert read == set(paths[:5])


def refuse_load(_):
    raise MemoryError


def test_a_small_file_is_read_where_a_larger_one_or_those_of_an_index_are_mapped(path, large, tmp_path):
    tensors = compat.load_file(path)
    assert not is_mapped(path)
    same(tensors, TENSORS)
    tensors["scalar"] += 1
    compat.save_file(tensors, tmp_path / "saved.safetensors")  # no two share memory
    assert compat.load_file(path)["scalar"] == 2.5
    kept = compat.load_file(large)
    assert is_mapped(large) and kept
    libst.reshard(path, tmp_path / "shards", 1 << 20)
    shard = next((tmp_path / "shards").glob("*.safetensors"))
    kept = compat.load_file(tmp_path / "shards" / "model.safetensors.index.json")
    assert is_mapped(shard)
    same(kept, TENSORS)
    for wrong in (tmp_path / "none", "nul\0", 77):
        with pytest.raises(Exception) as told:
            compat_open(wrong, "pt")
        with pytest.raises(told.type, match=re.escape(str(told.value))):
            compat.load_file(wrong)


@populates
def test_the_pages_of_a_warm_file_are_mapped_ahead_of_who_touches_them(large):
    large.read_bytes()
    tensors = compat.load_file(large)
    await_ahead()
    assert mapped(large) == [os.path.getsize(large) + -os.path.getsize(large) % 4096, 0]
    assert tensors["large"][-1] == 15 * MIB - 1


@populates
def test_the_pages_of_several_warm_files_are_mapped_ahead(large, tmp_path):
    paths = [shutil.copy(large, tmp_path / f"{i}.safetensors") for i in range(3)]
    loaded = [compat.load_file(path) for path in paths]
    begun = [thread for thread in threading.enumerate() if thread.name == _ahead.NAME]
    for thread in begun:
        thread.join()
    assert len(begun) <= 1  # one after the other
    size = os.path.getsize(large)
    assert [mapped(path) for path in paths] == 3 * [[size + -size % 4096, 0]]
    assert all(tensors["large"][-1] == 15 * MIB - 1 for tensors in loaded)


def lines_of_maps():
    return Path("/proc/self/maps").read_text().count("\n")


@pytest.fixture
def busy(monkeypatch):
    """The thread that maps pages ahead, and which has work that lasts as long as the test."""
    threads, begun, goes_on = _ahead._Threads(1), threading.Event(), threading.Event()
    threads.add([lambda _: (begun.set(), goes_on.wait(60))], _ahead.Wanted())
    assert begun.wait(60)
    monkeypatch.setattr(_ahead, "_mapper", threads)
    yield threads
    goes_on.set()
    for thread in threading.enumerate():
        if thread.name == _ahead.NAME:
            thread.join(60)
            assert not thread.is_alive()
    assert not threads._pieces


@populates
def test_what_is_loaded_and_dropped_does_not_stay_mapped(tmp_path, busy):
    stock.save_file({"a": torch.zeros(4 * MIB)}, tmp_path / "16.safetensors")
    for _ in range(2000):
        compat.load_file(tmp_path / "16.safetensors")
    assert not is_mapped(tmp_path / "16.safetensors")
    assert len(busy._pieces) < 100
    wanted = [compat.load_file(tmp_path / "16.safetensors") for _ in range(100)]
    assert len(busy._pieces) >= 200 and len(wanted) == 100


def test_no_pause_is_made_for_pieces_that_nobody_wants(busy):
    busy._pause = 3600
    wanted = _ahead.Wanted()
    wanted.by_nobody()
    busy.add([lambda _: time.sleep(3600)], wanted)


def test_of_several_files_the_one_that_was_loaded_last_is_mapped_next():
    """Their reader begins with the first."""
    one, begun, goes_on, order = _ahead._Threads(1), threading.Event(), threading.Event(), []
    one.add([lambda _: (begun.set(), goes_on.wait(60))], _ahead.Wanted())
    assert begun.wait(60)
    for name in "first", "last":
        pieces = [lambda _, at=at: order.append(at) for at in (f"{name}, 0", f"{name}, 1")]
        one.add(pieces, _ahead.Wanted(), next_ones=True)
    one.add([lambda _: order.append("read")], _ahead.Wanted())
    goes_on.set()
    await_ahead()
    assert order == ["last, 0", "last, 1", "first, 0", "first, 1", "read"]


@populates
def test_pages_are_mapped_ahead_in_a_forked_child_of_a_process_that_does_so(large, tmp_path):
    other = shutil.copy(large, tmp_path / "other.safetensors")
    tensors = compat.load_file(large)  # so the child inherits a queue, and no thread
    child = os.fork()
    if not child:
        in_memory = 0
        try:
            others = compat.load_file(other)
            await_ahead()
            in_memory = mapped(other)[0] if len(others) == 3 else 0
        finally:
            os._exit(in_memory // MIB)
    in_memory = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert in_memory == 64 and len(tensors) == 3


def test_many_loaded_files_need_no_higher_limit_of_open_files(path):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 16, before[1]))
    try:
        loaded = [compat.load_file(path) for _ in range(100)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert all(tensors["scalar"] == 2.5 for tensors in loaded)


def test_views_of_a_file_are_of_the_state_that_is_shown(path):
    with libst.open(path) as f:
        assert len(f) == len(TENSORS)
        compat.save_file({"torch.float32": torch.zeros(1)}, path)
        same({name: f.torch(name) for name in f}, TENSORS)
        f.refresh()
        assert f.torch("torch.float32").tolist() == [0]


def test_what_is_written_into_views_shows_until_that_tensor_is_patched(path):
    with libst.open(path, "r+") as f:
        names = [name for name, tensor in TENSORS.items() if tensor.numel() > 1 and tensor.dtype != torch.bool]
        held = {name: f.torch(name) for name in names}
        for tensor in held.values():
            tensor += 1
        for name in names:  # each is a commit
            f.update(name, f.torch(name))
            assert torch.equal(f.torch(name), TENSORS[name] + 1)
        same(held, {name: TENSORS[name] + 1 for name in names})

        first, second = names[:2]
        f.torch(second).fill_(7)
        f.update(first, torch.full_like(TENSORS[first], 5))
        assert (held[first] == TENSORS[first] + 1).all() and (f.torch(first) == 5).all()
        f.torch(first).fill_(6)  # a view like the others
        with pytest.raises(ValueError, match="shape"):
            f.update(first, torch.zeros(1, dtype=TENSORS[first].dtype))
        with f.transaction():
            pass
        assert (f.torch(first) == 6).all() and (f.torch(second) == 7).all()
        f.update(first, f.torch(first))
        assert (f.torch(first) == 6).all() and (f.torch(second) == 7).all()

        def stop(*done):
            raise KeyError(done)

        with pytest.raises(KeyError), f.transaction(progress=stop) as t:
            t.update(second, f.torch(second))
        with pytest.raises(libst.StorageError):
            f.patch(path.with_suffix(".none"))
        f.update("scalar", torch.tensor(0.5))
        with pytest.raises(libst.NotFoundError):
            f.torch("none")
        assert (f.torch(first) == 6).all() and (f.torch(second) == 7).all()

        with libst.open(path, "r+") as other, other.transaction(publish=True) as t:
            t.update("scalar", torch.tensor(1.0))
        with f.transaction():
            pass
        assert (f.torch(second) == 7).all()  # it shows the file from before
        f.update("scalar", torch.tensor(2.0))  # in the other file
        assert torch.equal(f.torch(second), TENSORS[second] + 1) and f.torch("scalar") == 2
        f.torch(second).fill_(7)
        with f.transaction() as t:
            t.delete("scalar")
        assert torch.equal(f.torch(second), TENSORS[second] + 1)
        f.torch(second).fill_(7)
        f.refresh()
        assert torch.equal(f.torch(second), TENSORS[second] + 1)


def test_what_is_patched_is_kept_only_as_long_as_a_view_may_show_it(large):
    with libst.open(large, "r+") as f:

        def update_all(value):
            with f.transaction() as t:
                for name in f:
                    t.update(name, torch.full_like(f.torch(name, copy=True), value))

        assert f.torch("small").sum() == 1024
        update_all(2)
        assert mapped(large)[1] == 0, "no view is left"
        view = f.torch("small")
        update_all(3)
        assert mapped(large)[1] >= 60 * MIB and view.sum() == 2048
        del view
        assert mapped(large)[1] == 0
        assert f.torch("small").sum() == 3072 and f.torch("large")[-1] == 3

        f.torch("third").fill_(7)  # stays to be seen, though no view is left
        with f.transaction() as t:
            for name in ("small", "large"):
                t.update(name, f.torch(name).add_(1))
        f.torch("small").fill_(8)
        assert (f.torch("third") == 7).all() and f.torch("large")[-1] == 4
        f.update("third", torch.full((MIB,), 5.0))
        assert (f.torch("small") == 8).all() and (f.torch("third") == 5).all() and f.torch("large")[-1] == 4
        update_all(6)
        assert mapped(large)[1] == 0 and all((f.torch(name) == 6).all() for name in f)


def test_a_view_that_was_first_taken_for_inference_makes_none_of_later_ones(path):
    with libst.open(path, "r+") as f:
        f.torch("torch.float32")
        f.update("torch.float32", torch.ones(3, 4))
        with torch.inference_mode():
            assert f.torch("torch.float32").is_inference()
        weight = torch.nn.Parameter(f.torch("torch.float32"))
        (weight * f.torch("torch.float32")).sum().backward()
        assert torch.equal(weight.grad, torch.ones(3, 4))


def test_names_to_load_may_be_a_dict(path):
    values = {"scalar": np.zeros((), np.float32)}
    for how in ("none", "copy-on-write"):
        same(libst.load(path, names=values, framework="torch", mapping=how), {"scalar": torch.tensor(2.5)})
    assert values["scalar"] == 0


def test_shards_are_views_only_if_they_were_opened_so(path, tmp_path):
    libst.reshard(path, tmp_path / "shards", max_shard_size=100)
    for how in ("auto", "copy-on-write"):
        with libst.open(tmp_path / "shards", mapping=how) as f:
            tensors = {name: f.torch(name) for name in f}
            same(tensors, TENSORS)
            tensors["torch.int64"] += 1
            assert f["torch.int64"][0, 0] == (0 if how == "auto" else 1)


def test_empty_tensors_lie_where_the_others_do(path, monkeypatch):
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, **to: empty(*a, **({"device": "meta"} | to)))  # the ambient device
    assert {t.device.type for t in compat.load_file(path).values()} == {"cpu"}


def test_memory_is_copied(path):
    content = path.read_bytes()
    with libst.open_memory(content) as f:
        f.torch("torch.float32").fill_(7)
    assert content == path.read_bytes()


def test_copies_are_the_callers(path):
    with libst.open(path) as f:
        copy = f.torch("torch.bfloat16", copy=True)
        copy += 1
        assert torch.equal(f.torch("torch.bfloat16"), TENSORS["torch.bfloat16"])
        assert f.torch("torch.bfloat16", device="cpu").dtype == torch.bfloat16


def test_a_tensor_of_one_shard_is_of_the_state_that_is_shown(path, tmp_path):
    libst.reshard(path, tmp_path / "shards", max_shard_size=1 << 20)
    with libst.open(tmp_path / "shards") as f, libst.open(tmp_path / "shards", "r+") as other:
        assert len(f.shards) == 1
        old = f.read("torch.int64")
        with other.transaction(publish=True) as t:
            t.update("torch.int64", old + 1)
        assert (f.torch("torch.int64").numpy() == old).all()
        f.refresh()
        assert (f.torch("torch.int64").numpy() == old + 1).all()


def test_whole_files_load_into_torch(path):
    tensors = libst.load(path, framework="torch", device="cpu")
    same(tensors, TENSORS)
    tensors["torch.float32"] += 1
    with pytest.raises(ValueError, match="framework"):
        libst.load(path, framework="tensorflow")


def test_an_unaligned_tensor_is_copied(tmp_path):
    (tmp_path / "odd").write_bytes(raw_file([("a", "U8", [1], b"x"), ("b", "F32", [2], np.ones(2, "f4").tobytes())]))
    with libst.open(tmp_path / "odd") as f:
        assert f.torch("b").tolist() == [1, 1]


def test_what_this_torch_has_not_is_told(tmp_path):
    libst.save(tmp_path / "f8", {"a": np.ones(3, ml_dtypes.float8_e4m3fn)})
    with libst.open(tmp_path / "f8") as f:
        if hasattr(torch, "float8_e4m3fn"):
            assert f.torch("a").dtype == torch.float8_e4m3fn
        else:
            with refused("UNSUPPORTED", match="F8_E4M3"):
                f.torch("a")
            with pytest.raises(SafetensorError, match="float8_e4m3fn"):
                compat.load_file(tmp_path / "f8")


@pytest.fixture
def f4(monkeypatch):
    """As a torch that has it, which sees bytes where this one does."""
    monkeypatch.setitem(_torch._kinds, "F4", _torch._kind("U8"))
    return lambda *shape: libst.Packed("F4", shape, np.arange(np.prod(shape) // 2, dtype=np.uint8))


BACKENDS = pytest.mark.parametrize("backend", ["mmap", "pread"])


@BACKENDS
def test_an_odd_number_of_packed_elements_is_told(tmp_path, f4, backend):
    path = tmp_path / "model"
    libst.save(path, {"t": f4(2, 3)})
    with libst.open(path) as f, refused("UNSUPPORTED", match="odd"):
        f.torch("t")
    with refused("UNSUPPORTED", match="odd"):
        libst.load(path, framework="torch")
    with compat_open(path, "pt", backend=backend) as f:
        part = f.get_slice("t")
        for ask in (
            lambda: compat.load(path.read_bytes()),
            lambda: compat.load_file(path, backend=backend),
            lambda: f.get_tensor("t"),
            lambda: part[:, 0],
            lambda: part[None],
            lambda: f.prefetch().take("t"),
        ):
            with pytest.raises(SafetensorError, match="odd"):
                ask()


@BACKENDS
def test_slices_of_packed_elements_count_pairs(tmp_path, f4, backend):
    libst.save(tmp_path / "model", {"t": f4(4, 12)})
    whole = torch.arange(24, dtype=torch.uint8).reshape(4, 6)
    with compat_open(tmp_path / "model", "pt", backend=backend) as f:
        for index in (slice(1, 3), 0, ..., (slice(None), 1), (slice(1, 2), slice(1, 4)), slice(0, 0), None):
            assert f.get_slice("t")[index].equal(whole[index]) and f.get_slice("t")[index].shape == whole[index].shape
        with f.prefetch({"t": slice(1, 3)}) as loader:
            assert loader.take("t").equal(whole[1:3])


def entries(path):
    """What a file holds, as bytes: name to (dtype, shape, bytes)."""
    data = path.read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    return {
        name: (entry["dtype"], entry["shape"], data[end:][slice(*entry["data_offsets"])])
        for name, entry in json.loads(data[8:end]).items()
    }


def form_of(tensor):
    """Of stock's file of it: (dtype, shape, how many bytes)."""
    found = stock.deserialize(stock.save({"t": tensor.detach().cpu().clone().contiguous()}))[0][1]
    return found["dtype"], found["shape"], len(found["data"])


class Elsewhere(torch.Tensor):
    """A tensor that says it is on another device, until it is asked onto this one."""

    asked = 0

    @property
    def device(self):
        return torch.device("cuda:0")

    def cpu(self):
        Elsewhere.asked += 1
        return self.as_subclass(torch.Tensor)

    def data_ptr(self):
        raise AssertionError("of another device")


HOW = {
    "whole": lambda t: t,
    "transposed": lambda t: t.T,
    "strided": lambda t: t[:, ::2],
    "view": lambda t: t[1:],
    "expanded": lambda t: t[:1].expand(5, 4),
    "scalar": lambda t: t[1, 2],
    "empty": lambda t: t[:0],
    "elsewhere": lambda t: t.as_subclass(Elsewhere),
}
EVERY = {kind: getattr(torch, kind) for kind in TORCH_NAMES.values() if hasattr(torch, kind) and "float4" not in kind}


@pytest.mark.parametrize("lie", HOW.values(), ids=HOW)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_tensors_are_written_as_stock_writes_them(tmp_path, way, lie):
    """Of every element type that this torch and the format share."""
    tensors = {name: lie(torch.arange(12).reshape(3, 4).to(kind)) for name, kind in EVERY.items()}
    plain = {name: tensor.as_subclass(torch.Tensor) for name, tensor in tensors.items()}
    stock.save_file({name: tensor.clone().contiguous() for name, tensor in plain.items()}, tmp_path / "stock")
    way(tmp_path / "ours", tensors, lambda tensor: form_of(tensor.as_subclass(torch.Tensor)))
    assert entries(tmp_path / "ours") == entries(tmp_path / "stock")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_models_are_written_with_parameters_and_buffers(tmp_path, way):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).to(torch.bfloat16)
    held = dict(model.named_parameters()) | dict(model.named_buffers())
    assert all(held[name].requires_grad for name in ("0.weight", "1.bias"))
    stock.save_file(held, tmp_path / "stock")
    way(tmp_path / "ours", held, form_of)
    assert entries(tmp_path / "ours") == entries(tmp_path / "stock")


def test_a_stock_layout_is_stocks_bytes(tmp_path):
    transposed = {name: tensor.T for name, tensor in TENSORS.items() if tensor.dim() == 2}
    stock.save_file({name: tensor.contiguous() for name, tensor in transposed.items()}, tmp_path / "stock")
    libst.save(tmp_path / "ours", transposed, layout="stock")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "stock").read_bytes()


def test_values_and_not_views_of_them_are_written(tmp_path):
    a = torch.tensor([1 + 2j, 3 - 4j])
    with libst.writer(tmp_path / "ours") as w:
        w.add("conjugate", a.conj())
        w.add("negative", a.conj().imag)
    with libst.open(tmp_path / "ours") as f:
        assert f["conjugate"].tolist() == [1 - 2j, 3 + 4j] and f["negative"].tolist() == [-2, 4]


def test_values_and_not_views_of_them_are_written_in_place_of_stock(tmp_path):
    tensors = {"conjugate": torch.tensor([1 + 2j, 3 - 4j]).conj(), "negative": torch.tensor([1 + 2j]).conj().imag}
    compat.save_file(tensors, tmp_path / "ours")
    for loaded in stock.load_file(tmp_path / "ours"), stock.load(compat.save(tensors)):
        assert loaded["conjugate"].tolist() == [1 - 2j, 3 + 4j] and loaded["negative"].tolist() == [-2]


class Outside(torch.Tensor):
    """A tensor that others compute, as a DTensor is: it has no memory here."""

    @staticmethod
    def __new__(cls, shape):
        return torch.Tensor._make_wrapper_subclass(cls, shape)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return cls(args[0].shape)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    ("tensor", "status", "says"),
    [
        (torch.zeros(3, dtype=torch.complex128), "DTYPE_MISMATCH", "complex128"),
        (torch.quantize_per_tensor(torch.zeros(3), 1.0, 0, torch.qint8), "DTYPE_MISMATCH", "qint8"),
        (torch.eye(3).to_sparse(), "UNSUPPORTED", "sparse"),
        (torch.zeros(3, device="meta"), "UNSUPPORTED", "meta"),
        (Outside((3,)), "UNSUPPORTED", "Outside without memory"),
    ],
    ids=["complex128", "quantised", "sparse", "meta", "outside"],
)
def test_what_cannot_be_written_is_told(tmp_path, way, tensor, status, says):
    form = "F32", list(tensor.shape), 4 * tensor.nelement()
    with refused(status, match=says):
        way(tmp_path / "ours", {"t": tensor}, lambda tensor: form)
    libst.verify(tmp_path / "ours") if (tmp_path / "ours").exists() else None


def test_one_of_many_that_has_no_memory_is_named(tmp_path):
    with refused("UNSUPPORTED", match="'t': .*without memory"):
        libst.save(tmp_path / "ours", {"a": torch.ones(3), "t": torch._efficientzerotensor(3)})


@pytest.mark.skipif(not hasattr(Exception, "add_note"), reason="exceptions take no notes")
def test_what_torch_raises_names_the_tensor(tmp_path):
    with pytest.raises(RuntimeError, match="uninitialized") as caught:
        libst.save(tmp_path / "ours", {"t": torch.nn.UninitializedParameter()})
    assert caught.value.__notes__ == ["libst: this is of the tensor 't'"]


def test_a_nested_tensor_is_refused(tmp_path):
    with refused("UNSUPPORTED", match="'t': .*nested"):
        libst.save(tmp_path / "ours", {"t": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])})


def test_packed_bytes_of_torch_update_a_packed_tensor(tmp_path):
    libst.save(tmp_path / "ours", {"t": libst.Packed("F6_E2M3", [2, 4], np.zeros(6, np.uint8))})
    with libst.open(tmp_path / "ours", "r+") as f:
        f.update("t", torch.arange(6, dtype=torch.uint8))
        assert f["t"].tolist() == list(range(6))


def test_parts_are_updated_from_torch(tmp_path):
    table = torch.arange(40, dtype=torch.bfloat16).reshape(10, 4)
    stock.save_file({"emb": table}, tmp_path / "ours")
    rows = torch.tensor([7, -10, 7])
    values = torch.nn.Parameter(torch.full((4, 3), -1, dtype=torch.bfloat16)).T  # of another order in memory
    with libst.open(tmp_path / "ours", "r+") as f:
        f.update("emb", values, at=rows)
        f.update("emb", table[2] * 0, at=2)
    table[rows] = -1
    table[2] = 0
    assert torch.equal(stock.load_file(tmp_path / "ours")["emb"], table)


def resident():
    """The memory of this process that no file has, in KiB."""
    gc.collect()
    return int(re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text()).group(1))


def peak():
    """The most memory that this process has had, in KiB."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text()).group(1))


@pytest.mark.parametrize("way", [way for way in WAYS if way.__name__ != "borrowing"], ids=lambda way: way.__name__)
def test_a_model_is_never_in_memory_twice(tmp_path, way):
    """Each of 5 tensors of 36 MiB (which malloc takes from the system) has to be copied; one at a time."""
    tensors = {str(i): torch.full((3072, 3072), float(i)).T for i in range(5)}
    libst.save(tmp_path / "warm", {"a": tensors["0"]})
    written = {}
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = peak()
    way(tmp_path / "ours", tensors, lambda tensor: written.setdefault("form", ("F32", [3072, 3072], 36 << 20)))
    assert peak() - before < 80 << 10  # KiB
    assert libst.verify(tmp_path / "ours") == []


@pytest.mark.parametrize("metadata", [None, {"a": "b"}])
def test_the_same_bytes_are_written_and_the_same_tensors_read(tmp_path, metadata):
    compat.save_file(TENSORS, tmp_path / "libst", metadata)
    stock.save_file(TENSORS, tmp_path / "stock", metadata)
    data = (tmp_path / "stock").read_bytes()
    assert (tmp_path / "libst").read_bytes() == data == compat.save(TENSORS, metadata)
    same(compat.load(data), TENSORS)
    for backend in ("mmap", "pread"):
        same(compat.load_file(tmp_path / "stock", backend=backend), TENSORS)
    same(stock.load_file(tmp_path / "libst"), TENSORS)
    with compat_open(tmp_path / "stock", "pt", device="cpu") as f:
        same({name: f.get_tensor(name) for name in f.keys()}, TENSORS)


def test_a_tensor_that_was_read_keeps_no_other_in_memory(tmp_path):
    """Also amid small ones, which share a block, and where a file has nothing else, or only small ones."""
    large, small = torch.arange(1 << 20, dtype=torch.float32), torch.arange(5)
    for tensors in (
        {"a": large, "b": small, "c": -large, "d": -small, "e": large.half(), "f": large[:0], "g": large[:16384] + 1},
        {"a": large, "c": -large},
        {"b": small},
        {},
    ):
        stock.save_file(tensors, tmp_path / "model")
        loaded = compat.load_file(tmp_path / "model", backend="pread")
        same(loaded, tensors)
        with libst.open(tmp_path / "model") as f:
            assert list(loaded) == list(f)
    many = {str(i): torch.full((9 << 20,), float(i)) for i in range(3)}  # of 36 MiB, which malloc gives back
    stock.save_file(many, tmp_path / "model")
    before = resident()
    loaded = compat.load_file(tmp_path / "model", backend="pread")
    one = loaded.pop("1")
    assert resident() - before > 100 << 10  # KiB
    del loaded
    assert resident() - before < 40 << 10 and torch.equal(one, many["1"])


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_a_file_is_closed_with_its_last_slice(path, backend):
    def is_open():
        return any(link.exists() and link.samefile(path) for link in Path("/proc/self/fd").iterdir())

    with compat_open(path, "pt", backend=backend) as f:
        part = f.get_slice("torch.bfloat16")
    assert is_open() and part[0].equal(TENSORS["torch.bfloat16"][0])
    del part
    assert not is_open()
    with pytest.raises(SafetensorError, match="closed"):
        f.get_slice("torch.bfloat16")


def steps(function):
    """How many functions of Python a call runs."""
    count = 0

    def note(_frame, event, _arg):
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_a_tensor_that_is_read_takes_few_steps(path):
    """A file of thousands of small tensors takes as long as its steps."""
    with compat_open(path, "pt", backend="pread") as f:
        for name in f.keys():
            f.get_tensor(name)  # what is found once
        part = f.get_slice("torch.bfloat16")
        for read in (lambda: f.get_tensor("torch.bfloat16"), lambda: part[:], lambda: part[...]):
            assert steps(read) <= 16


def test_a_file_cut_while_it_is_open_is_an_error_of_stocks_class(path):
    with compat_open(path, "pt", backend="pread") as f:
        part = f.get_slice("torch.bfloat16")
        os.truncate(path, 100)
        ways = (lambda: part[:], lambda: part[...], lambda: part[0:2], lambda: f.get_tensor("torch.bfloat16"))
        for read in ways:
            with pytest.raises(SafetensorError):
                read()


def test_loaded_tensors_share_no_storage_and_may_be_saved_again(path, tmp_path):
    tensors = compat.load_file(path)
    compat.save_file(tensors, tmp_path / "again", {"format": "pt"})
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


INDICES = [
    0, -1, 4, -5, slice(1, 3), slice(None, None, 2), slice(0, 100, 2), slice(-2, None), slice(None, -1), slice(2, 1),
    slice(10, 20), slice(None, None, -1), (1, 2), (1, -9), (1, 2, 3), (slice(1, 3), slice(2, 4)), ..., (..., 1),
    (1, ...), (), [], [1, 2], (slice(None), [1, 2]), None, (None, 1), True, (slice(1, None, 2), 3), "a",
    (slice(0, 2), ..., slice(2, 3)), (0, 1, ...), np.int64(1), slice(0, 3, np.int64(2)), False,
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("name", ["torch.bfloat16", "scalar", "empty"])
def test_slices_are_those_of_stock(path, name, backend, index):
    def ask(package):
        try:
            part = package(path, "pt", backend=backend).get_slice(name)[index]
            whole = len(part.storage()) if backend == "pread" else None
            return part.dtype, part.shape, part.tolist(), part.is_contiguous(), whole
        except Exception as error:
            return type(error).__name__, str(error)

    told = ask(stock_open)
    if told[0] == "SystemError":
        pytest.skip(f"stock answers {told}")
    assert ask(compat_open) == told


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(2, dtype=torch.complex128), torch.quantize_per_tensor(torch.zeros(3), 1.0, 0, torch.qint8),
     torch.zeros(2, device="meta"), torch.eye(2, dtype=torch.complex128).to_sparse()],
    ids=["complex128", "quantised", "meta", "sparse"],
)  # fmt: skip
def test_what_cannot_be_saved_raises_what_stock_raises(tmp_path, tensor):
    def ask(package):
        with pytest.raises(Exception) as caught:
            package.save_file({"t": tensor}, tmp_path / "file")
        return type(caught.value), str(caught.value)

    assert ask(compat) == ask(stock)


def test_a_tensor_without_memory_is_an_error_of_stocks_class(tmp_path):
    for package, kind in ((stock, StockError), (compat, SafetensorError)):
        for write in (package.save, lambda tensors, save=package.save_file: save(tensors, tmp_path / "file")):
            with pytest.raises(kind, match="Error while serializing: "):
                write({"t": Outside((3,))})


A = torch.zeros(10)
SHARED = [
    {"a": A[:5]}, {"a": A[:5], "b": A[5:]}, {"a": A, "b": A[2:]}, {"a": A, "b": A}, {"a": A[:3], "b": A[2:]},
    {"a": A[:0], "c": torch.zeros(0)}, {"a": A, "b": A.reshape(2, 5), "c": torch.zeros(10)}, {"b": A.reshape(2, 5).T},
    {"a": torch.eye(3).to_sparse()}, {"a": 1}, {"a": A.reshape(5, 2)[:, 0]},
]  # fmt: skip


@pytest.mark.parametrize("tensors", SHARED, ids=range(len(SHARED)))
def test_memory_that_is_shared_is_seen_as_stock_sees_it(tensors):
    def ask(function):
        try:
            return function(tensors)
        except Exception as error:
            return type(error).__name__, " ".join(str(error).split())[:45]

    assert ask(compat.save) == ask(stock.save)
    if all(isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided for tensor in tensors.values()):
        for name in ("_find_shared_tensors", "_remove_duplicate_names"):
            stock_said, said = (ask(getattr(module, name)) for module in (stock, compat))
            assert said == stock_said
        for tensor in tensors.values():
            for name in ("storage_ptr", "storage_size", "_is_complete", "_end_ptr"):
                if tensor.nelement() and tensor.is_contiguous():
                    assert getattr(compat, name)(tensor) == getattr(stock, name)(tensor)


class Tied(torch.nn.Module):
    def __init__(self, more=False):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.b = torch.nn.Linear(4, 4)
        self.b.weight = self.a.weight
        if more:
            self.c = torch.nn.Linear(2, 2)


def test_helpers_that_others_import_answer_as_stocks(path):
    known = {name: kind for name, kind in stock._TYPES.items() if kind is not None}
    assert compat._TYPES.items() >= known.items()
    assert all(compat._SIZE[kind] == stock._SIZE[kind] for kind in known.values())
    for name, kind in known.items():
        assert compat._getdtype(name) is stock._getdtype(name) is kind
    for tensor in TENSORS.values():
        (ours, kept), (theirs, _) = compat._to_ndarray(tensor), stock._to_ndarray(tensor)
        assert ours.tobytes() == theirs.tobytes() and kept is tensor
    read = {package: package._view2torch(libst.compat.deserialize(path.read_bytes())) for package in (stock, compat)}
    same(read[compat], read[stock])
    tied = {"a": TENSORS["torch.int8"], "b": TENSORS["torch.int8"][1:], "c": TENSORS["torch.int8"][:1]}
    groups = {package: package._filter_shared_not_shared([{"b", "c"}, {"a"}], tied) for package in (stock, compat)}
    assert sorted(map(sorted, groups[compat])) == sorted(map(sorted, groups[stock])) == [["a"], ["b"], ["c"]]
    for package in (stock, compat):
        with pytest.raises(RuntimeError, match="share memory"):
            package._evaluate_tensors_for_save(tied)
    flat = {package: package._flatten_as_ptr(TENSORS, []) for package in (stock, compat)}
    for name, spec in flat[stock].items():
        ours = flat[compat][name]
        assert (ours.dtype, list(ours.shape), ours.data_len) == (spec.dtype, list(spec.shape), spec.data_len)


def test_models_with_tied_weights_are_saved_once_and_loaded(tmp_path):
    model, other, third = Tied(), Tied(), Tied()
    compat.save_model(model, tmp_path / "libst")
    stock.save_model(model, tmp_path / "stock")
    assert (tmp_path / "libst").read_bytes() == (tmp_path / "stock").read_bytes()
    assert [list(names) for names in compat.load_model(other, tmp_path / "stock")] == [[], []]
    same(other.state_dict(), model.state_dict())
    assert other.a.weight is other.b.weight
    stock.load_model(third, tmp_path / "libst")
    same(third.state_dict(), model.state_dict())


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("saved, loaded", [(False, True), (True, False)], ids=["missing", "unexpected"])
def test_a_model_that_does_not_fit_is_told_as_stock_tells_it(tmp_path, strict, saved, loaded):
    stock.save_model(Tied(saved), tmp_path / "model")

    def ask(module):
        try:
            return [sorted(names) for names in module.load_model(Tied(loaded), tmp_path / "model", strict)]
        except RuntimeError as error:
            return str(error)

    assert ask(compat) == ask(stock)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("metadata", [None, {}, {"a": "b"}, {"b.weight": "kept"}, {"a": 1}, [], [1], ""], ids=str)
def test_a_models_metadata_are_taken_and_changed_as_stock_does(tmp_path, tied, metadata):
    """Also where it cannot be saved; and of two files of the same dict the second has them all."""
    model = Tied() if tied else torch.nn.Linear(3, 3)

    def ask(package):
        given = copy.copy(metadata)
        said = []
        for saves in (package.save_model, package.save_model):
            try:
                said.append(saves(model, tmp_path / "model", given))
                with stock_open(tmp_path / "model", "pt") as f:
                    said.append(f.metadata() or None)
            except (StockError, SafetensorError, TypeError) as error:
                said += [type(error).__name__, str(error)]
        return given, said

    assert ask(compat) == ask(stock)


LACKING = {
    "load_file": lambda package, _, path: package.load_file(path),
    "get_tensor": lambda _, opens, path: opens(path, "pt").get_tensor("a"),
    "get_slice": lambda _, opens, path: opens(path, "pt").get_slice("a")[:],
}


@pytest.mark.parametrize("ask", LACKING.values(), ids=LACKING)
@pytest.mark.parametrize("dtype", ["U16", "F8_E4M3", "F4", "F6_E2M3"])
def test_of_an_element_type_that_torch_lacks_the_error_is_of_stocks_class(tmp_path, dtype, ask):
    """And of SafetensorError."""
    length = {"U16": 8, "F8_E4M3": 4, "F4": 2, "F6_E2M3": 3}[dtype]
    (tmp_path / "model").write_bytes(raw_file([("a", dtype, [4], bytes(length))]))
    try:
        expected = ask(stock, stock_open, tmp_path / "model")
    except (AttributeError, StockError) as error:
        with pytest.raises(SafetensorError, match=f"^{re.escape(str(error))}$") as raised:
            ask(compat, compat_open, tmp_path / "model")
        assert isinstance(raised.value, AttributeError) == isinstance(error, AttributeError)
    else:
        found = ask(compat, compat_open, tmp_path / "model")
        assert str(found) == str(expected)


# ------------------------------------------------------------------ of safetensors 0.9


def test_prefetch_hands_each_tensor_out_once(path):
    with compat_open(path, "pt") as f, f.prefetch() as loader:
        assert loader.names() == f.offset_keys() and len(loader) == len(TENSORS)
        first = loader.take("torch.float32")
        assert torch.equal(first, TENSORS["torch.float32"])
        same({**dict(loader), "torch.float32": first}, TENSORS)
        for name in TENSORS:
            with pytest.raises(SafetensorError, match=f"^{name}: tensor already delivered"):
                loader.take(name)
        assert dict(loader) == {}
    with pytest.raises(SafetensorError, match="is not in the prefetch plan"):
        loader.take("none")
    first += 1  # it is nobody else's


def test_prefetch_takes_rows_by_a_plan(path):
    plan = {
        "torch.int64": slice(1, None),
        "torch.bfloat16": None,
        "torch.int8": slice(-2, -1),
        "torch.bool": slice(2, 1),
    }
    with compat_open(path, "pt") as f:
        loader = f.prefetch(plan, device="cpu", threads=1)
    assert sorted(loader.names()) == sorted(plan)
    same(dict(loader), {name: TENSORS[name][rows or slice(None)] for name, rows in plan.items()})
    loader.close()


def test_a_closed_loader_gives_nothing_more(path):
    with compat_open(path, "pt") as f:
        loader = f.prefetch()
        loader.close()
        with pytest.raises(SafetensorError, match="^torch.int8: prefetch loader closed$"):
            loader.take("torch.int8")


@pytest.mark.parametrize(
    "plan, says",
    [
        ({"none": None}, "File does not contain tensor none"),
        ({3: None}, "prefetch plan keys must be tensor names"),
        ({"torch.int8": 3}, "prefetch plan values must be None or a slice, got <class 'int'> for torch.int8"),
        ({"scalar": slice(0, 1)}, "cannot slice rows of the 0-d tensor scalar"),
        ({"torch.int8": slice(0, 3, 2)}, "prefetch plan slices must have step 1, got 2 for torch.int8"),
        ({"torch.int8": slice(0, 4)}, "prefetch plan slice stop 4 for torch.int8 is out of range for 3 rows"),
        ({"torch.int8": slice(0.5, 1)}, "prefetch plan slice bounds for torch.int8 must be integers or None"),
        ({}, "prefetch plan selects no tensors"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_stocks_words(path, plan, says):
    with compat_open(path, "pt") as f, pytest.raises(SafetensorError) as raised:
        f.prefetch(plan)
    assert str(raised.value) == says


def test_prefetch_refuses_what_torch_has_not(tmp_path):
    path = tmp_path / "f6.safetensors"
    path.write_bytes(raw_file([("x", "F6_E2M3", [4], bytes(3))]))
    with compat_open(path, "pt") as f, pytest.raises(SafetensorError, match="dtype F6_E2M3: torch has no matching"):
        f.prefetch()
