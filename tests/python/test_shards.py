"""Sharded checkpoints: as one file, next to what stock safetensors reads of each shard."""

import json
import subprocess
import sys
import threading

import libst
import numpy as np
import pytest
from conftest import is_descriptor_open, is_mapped, refused
from libst import compat
from libst.compat import SafetensorError
from libst.compat.numpy import load_file as load_file_of_compat
from libst.compat.numpy import save_file as compat_save
from safetensors import safe_open
from safetensors.numpy import load_file, save_file


@pytest.fixture
def sharded(tmp_path):
    """Two shards and their index, as Hugging Face lays them out, written by stock."""
    shards = {
        "model-00001-of-00002.safetensors": {"a": np.arange(300, dtype=np.float32), "b": np.ones((4, 5), np.float16)},
        "model-00002-of-00002.safetensors": {"c": np.arange(50, dtype=np.int64)},
    }
    weight_map, total = {}, 0
    for shard, tensors in shards.items():
        save_file(tensors, tmp_path / shard, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(tensors, shard)
        total += sum(array.nbytes for array in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    return tmp_path


FEW_FILES = """
import resource, sys
import libst, numpy
resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
folder, n = sys.argv[1], 100
for mapping in ("auto", "none"):
    handles = [libst.open(folder, mapping=mapping) for _ in range(4)]
    for f in handles:
        assert all((f.read(f"a{i}") == i).all() and (f[f"a{i}"] == i).all() for i in range(n))
    assert len(libst.load(folder)) == n
for many in (12, n):
    with libst.open(folder, "r+") as f:
        try:
            with f.transaction() as t:
                for i in range(many):
                    t.update(f"a{i}", numpy.zeros(8))
            print("made")
        except libst.StorageError as e:
            assert "ulimit -n" in str(e)
            print("refused")
"""


def test_where_a_process_may_open_few_files(tmp_path):
    libst.save(tmp_path / "one", {f"a{i}": np.full(8, i, np.float64) for i in range(100)})
    libst.reshard(tmp_path / "one", tmp_path / "many", 64)
    done = subprocess.run([sys.executable, "-c", FEW_FILES, tmp_path / "many"], capture_output=True, text=True)
    assert done.stdout == "made\nrefused\n", done
    seen, _ = as_stock_sees(tmp_path / "many")
    assert [seen[f"a{i}"][0] for i in range(100)] == [0] * 12 + list(range(12, 100))


def as_stock_sees(folder):
    """The tensors, read as transformers does: the index, then each shard by stock. And the index is right."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    seen = {}
    for shard in sorted(set(index["weight_map"].values())):
        with safe_open(folder / shard, "np") as f:
            names = set(f.keys())
            assert names == {name for name, where in index["weight_map"].items() if where == shard}
            seen |= {name: f.get_tensor(name) for name in names}
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in seen.values())
    return seen, index


def test_index_and_folder_open_as_one(sharded):
    for path in (sharded, sharded / "model.safetensors.index.json"):
        with libst.open(path) as f:
            assert list(f) == ["a", "b", "c"] and len(f) == 3
            assert [f.info(name).shard for name in f] == [0, 0, 1]
            assert f.metadata == {"total_size": str(300 * 4 + 40 + 400)}
            assert f.shards == tuple(str(sharded / f"model-0000{i}-of-00002.safetensors") for i in (1, 2))
            stock, _ = as_stock_sees(sharded)
            for name, array in stock.items():
                np.testing.assert_array_equal(f[name], array)
                np.testing.assert_array_equal(f.read(name), array)
    with libst.open(sharded / "model-00002-of-00002.safetensors") as f:
        assert f.shards == (str(sharded / "model-00002-of-00002.safetensors"),)
    with libst.open_memory((sharded / "model-00002-of-00002.safetensors").read_bytes()) as f:
        assert f.shards == ()


@pytest.mark.parametrize("mapping", ["auto", "none", "copy-on-write"])
def test_no_shard_is_opened_that_is_not_asked_for(sharded, mapping):
    other = next(sharded.glob("*-00001-*"))
    with libst.open(sharded, mapping=mapping) as f:
        assert len(f) == 3 and "c" in f
        for c in (f["c"], f.read("c"), f.slice("c")[:], f.read_many(["c"])["c"], *f.read_many([("c", slice(None))])):
            np.testing.assert_array_equal(c, np.arange(50))
        f.prefetch(["c"])
        assert not is_descriptor_open(other)
        f.io_info()
        assert is_descriptor_open(other)


def test_bulk_reads_go_across_shards(sharded):
    stock, _ = as_stock_sees(sharded)
    with libst.open(sharded) as f:
        f.prefetch()
        for name, array in f.read_many(["c", "a"]).items():
            np.testing.assert_array_equal(array, stock[name])
    for name, array in libst.load(sharded).items():
        np.testing.assert_array_equal(array, stock[name])


@pytest.mark.parametrize("mapping", ["auto", "private", "none", "copy-on-write"])
def test_views_of_many_tensors_of_several_files(tmp_path, mapping):
    tensors = {f"t{i:03}": np.full(i % 7, i, np.int16) for i in range(900)}
    libst.save(tmp_path / "whole.safetensors", tensors)
    libst.reshard(tmp_path / "whole.safetensors", tmp_path / "shards", 1850)

    def check(name, view):
        assert np.array_equal(view, tensors[name]) and view.dtype == np.int16 and view.shape == tensors[name].shape, (
            name
        )
        assert view.flags.writeable == (mapping == "copy-on-write")

    with libst.open(tmp_path / "shards", mapping=mapping) as f:
        order = list(f)
        assert len(f.shards) == 3 and len(order) == 900
        some = iter(f.items())
        kept = [next(some) for _ in range(350)]  # into the second
        for name in reversed(order):  # further in its file than was looked at
            kept.append((name, f[name]))
        kept += some
        kept += f.items()
    assert [name for name, _ in kept[-900:]] == order
    for name, view in kept:
        check(name, view)


def test_a_transaction_across_shards_is_what_stock_reads_after_it(sharded):
    wanted, _ = as_stock_sees(sharded)
    with libst.open(sharded, "r+") as f:
        old = f["a"]
        with f.transaction() as t:
            t.update("a", wanted["a"] * 2)
            t.delete("c")
            t.put("new", np.zeros(7, np.uint8))
            t.rename("b", "bias")
            t.metadata("note", "quantised")
        assert old[1] == 1  # the shard was replaced: the view shows the file that it was taken from
        assert f["a"][1] == 2 and sorted(f) == ["a", "bias", "new"]
    wanted = {"a": wanted["a"] * 2, "bias": wanted["b"], "new": np.zeros(7, np.uint8)}
    seen, index = as_stock_sees(sharded)
    assert index["metadata"]["note"] == "quantised"
    assert seen.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(seen[name], array)
    assert sorted(p.name for p in sharded.iterdir() if not p.name.startswith("model")) == []


def test_an_aborted_transaction_changes_nothing(sharded):
    before = {p.name: p.read_bytes() for p in sharded.iterdir()}
    with pytest.raises(RuntimeError, match="no"), libst.open(sharded, "r+") as f, f.transaction() as t:
        t.update("a", np.zeros(300, np.float32))
        t.delete("c")
        raise RuntimeError("no")
    assert {p.name: p.read_bytes() for p in sharded.iterdir()} == before


@pytest.mark.parametrize(
    ("edit", "status"),
    [
        (lambda m: m.update(a="../x.safetensors"), libst.Status.SHARD_PATH),
        (lambda m: m.update(a="gone.safetensors"), libst.Status.SHARD_MISSING),
        (lambda m: m.update(x=m["a"]), libst.Status.SHARD_TENSOR),
        (lambda m: m.update(a=5), libst.Status.SHARD_INDEX),
    ],
)
def test_what_is_wrong_is_a_format_error(sharded, edit, status):
    path = sharded / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    edit(index["weight_map"])
    path.write_text(json.dumps(index))
    with pytest.raises(libst.FormatError) as caught, libst.open(sharded) as f:
        dict(f)
    assert caught.value.status == status


def test_reshard_and_join(sharded, tmp_path):
    stock, _ = as_stock_sees(sharded)
    one, many = tmp_path / "joined" / "m.safetensors", tmp_path / "many"
    one.parent.mkdir()
    libst.join(sharded, one)
    joined = load_file(one)
    assert joined.keys() == stock.keys()
    with safe_open(one, "np") as f:
        assert f.metadata() == {"format": "pt"}
    told = []
    libst.reshard(one, many, 500, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (1640, 1640)
    names = sorted(p.name for p in many.iterdir())
    assert names == [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)] + ["model.safetensors.index.json"]
    seen, _ = as_stock_sees(many)
    for name, array in stock.items():
        np.testing.assert_array_equal(seen[name], array)
        np.testing.assert_array_equal(joined[name], array)
    with refused("INVALID_ARGUMENT", match="already"):
        libst.reshard(one, many, 500)
    with refused("INVALID_ARGUMENT", match="is read for it"):
        libst.join(many, many / names[0])
    for size, error in (-1, ValueError), (2**64, ValueError), ("5GB", TypeError), (5e9, TypeError):
        with pytest.raises(error):
            libst.reshard(one, tmp_path / "other", size)
    assert not (tmp_path / "other").exists()


def changed_after_opening(monkeypatch, folder, times):
    """Others commit metadata so many times, each after `load` has read the index and before it opens a shard."""
    left = [times]

    def overtaken(opens):
        def open_and_be_overtaken(path, **options):
            opened = opens(path, **options)
            if left[0]:
                left[0] -= 1
                with libst.open(folder, "r+") as other, other.transaction() as t:
                    t.metadata("left", str(left[0]))
            return opened

        return open_and_be_overtaken

    for name in ("open", "open_pin"):
        monkeypatch.setattr(libst.file, name, overtaken(getattr(libst.file, name)))
    return left


@pytest.mark.parametrize("options", [{}, {"names": ["c", "a"]}, {"mapping": "copy-on-write"}], ids=str)
def test_a_load_by_path_begins_anew_where_the_index_is_replaced(sharded, monkeypatch, options):
    expected, _ = as_stock_sees(sharded)
    changed_after_opening(monkeypatch, sharded, 3)
    loaded = libst.load(sharded, **options)
    assert list(loaded) == options.get("names", ["a", "b", "c"])
    for name, array in loaded.items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.parametrize("broken", [1, 2])
@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_a_broken_shard_is_a_safetensor_error_of_compat(sharded, broken, how):
    shard = sharded / f"model-0000{broken}-of-00002.safetensors"
    if how == "missing":
        shard.unlink()
    else:
        with shard.open("r+b") as file:
            file.write(b"\xff" * 8)
    says = "header too large" if how == "damaged" else f"shard '{shard}', which .* names, is not there"
    calls = [lambda: compat.safe_open(sharded, "np"), lambda: load_file_of_compat(sharded)]
    if (broken, how) == (2, "damaged"):
        f = compat.safe_open(sharded, "np")
        calls = [f.keys, f.offset_keys, f.get_tensors]
        calls += [lambda: f.get_tensor("c"), lambda: f.get_slice("c"), lambda: f.get_tensor_meta("c")]
    kept = []
    for call in calls:
        with pytest.raises(SafetensorError, match=says) as caught:
            call()
        kept.append(caught)
    if broken == 1:
        assert not is_descriptor_open(sharded / "model-00002-of-00002.safetensors")
        assert not is_descriptor_open(sharded), "of the index, by the errors"


def test_a_load_of_views_opens_no_other_shard(sharded):
    with (sharded / "model-00001-of-00002.safetensors").open("r+b") as first:
        first.write(b"\xff" * 8)
    with libst.open(sharded) as f:
        size = f.read("c").nbytes
    told = []
    loaded = libst.load(
        sharded,
        ["c"],
        mapping="copy-on-write",
        progress=lambda done, total: told.append((done, total)),
    )
    assert list(loaded) == ["c"] and loaded["c"].nbytes == size and told


def test_a_load_is_not_begun_anew_for_ever(sharded, monkeypatch):
    left = changed_after_opening(monkeypatch, sharded, 1000)
    with refused("FILE_CHANGED", "was replaced since it was read"):
        libst.load(sharded)
    assert 900 < left[0] < 1000


def test_a_handle_shows_no_part_of_a_change_by_another(sharded):
    with libst.open(sharded) as f, libst.open(sharded, "r+") as other:
        before = f.read("a")
        with other.transaction(publish=True) as t:
            t.update("a", before + 1)
            t.update("c", np.zeros(50, np.int64))
        for look in (lambda: f.read("c"), lambda: f["c"], lambda: f.read_many(["a", "c"])):
            with refused("FILE_CHANGED", "was replaced by another since it was opened"):
                look()
        np.testing.assert_array_equal(f.read("a"), before)
        f.refresh()
        np.testing.assert_array_equal(f.read("a"), before + 1)
        np.testing.assert_array_equal(f.read("c"), 0)


def test_what_a_function_of_the_callers_raises_is_not_tried_again(sharded):
    calls = []

    def fail(done, total):
        calls.append(done)
        raise libst.StorageError("of mine", libst.Status.FILE_CHANGED)

    with refused("FILE_CHANGED", "of mine"):
        libst.load(sharded, progress=fail)
    assert len(calls) == 1


def test_who_has_read_the_old_index_finds_all_of_it_after_a_change_under_new_names(sharded):
    before, index = as_stock_sees(sharded)
    with libst.open(sharded, "r+") as f:
        with f.transaction(new_names=True, shard_grace=60) as t:
            for name in before:
                t.rename(name, f"new.{name}")
        assert [path.rsplit(".", 2)[1] for path in f.shards] == ["g1", "g1"]
        old = [sharded / shard for shard in index["weight_map"].values()]
        assert not any(is_descriptor_open(path) or is_mapped(path) for path in old)
    for name, shard in index["weight_map"].items():
        with safe_open(sharded / shard, "np") as f:
            np.testing.assert_array_equal(f.get_tensor(name), before[name])
    after, _ = as_stock_sees(sharded)
    assert after.keys() == {f"new.{name}" for name in before}
    libst.recover(sharded)
    shards = {f"model-0000{i}-of-00002.g1.safetensors" for i in (1, 2)}
    assert {p.name for p in sharded.iterdir()} == {"model.safetensors.index.json", *shards}


def test_a_compact_gives_shards_new_names_where_it_is_asked_to(sharded):
    before, index = as_stock_sees(sharded)
    old = set(index["weight_map"].values())
    libst.compact(sharded, new_names=True, shard_grace=60)
    after, index = as_stock_sees(sharded)
    assert after.keys() == before.keys() and not old & set(index["weight_map"].values())
    assert old < {p.name for p in sharded.iterdir()}
    first, last = sorted(set(index["weight_map"].values()))
    libst.compact(sharded, new_names=True, shard_grace=0)  # a shard's commit removes what the one before left
    assert not (sharded / first).exists() and (sharded / last).exists()
    assert as_stock_sees(sharded)[0].keys() == before.keys()


@pytest.mark.parametrize("save", [libst.save, compat_save], ids=["libst.save", "compat"])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_no_file_is_saved_over_an_index(sharded, tmp_path, save, kind):
    before, _ = as_stock_sees(sharded)
    index = sharded / "model.safetensors.index.json"
    if kind == "link":  # as in the cache of the Hub
        index.rename(tmp_path / "blob")
        index.symlink_to(tmp_path / "blob")
    there = sorted(sharded.iterdir())
    with pytest.raises((ValueError, SafetensorError), match="is the name of an index of shards"):
        save({"a": np.zeros(3)}, index) if save is compat_save else save(index, {"a": np.zeros(3)})
    with refused("INVALID_ARGUMENT", match="is the name of an index of shards"):
        libst.writer(index)
    assert sorted(sharded.iterdir()) == there
    assert as_stock_sees(sharded)[0].keys() == before.keys()


def test_stock_meets_no_shard_without_its_tensor_while_names_change(sharded):
    stop, looks, problems = threading.Event(), [], []

    def read_as_stock():
        while not stop.is_set():
            try:
                as_stock_sees(sharded)
                looks.append(1)
            except Exception as e:  # noqa: BLE001
                problems.append(e)
                return

    reader = threading.Thread(target=read_as_stock)
    reader.start()
    try:
        with libst.open(sharded, "r+") as f:
            while (len(looks) < 20 or len(f.shards[0].split(".g")) < 2) and not problems:
                with f.transaction(new_names=True) as t:
                    for name in list(f):
                        t.rename(name, name[1:] if name.startswith("x") else f"x{name}")
    finally:
        stop.set()
        reader.join()
    assert problems == []


def test_new_names_of_one_file_are_refused(sharded):
    with libst.open(sharded / "model-00002-of-00002.safetensors", "r+") as f:
        with refused("UNSUPPORTED", match="is one file, .*begin the transaction without new names$"):
            f.transaction(new_names=True)


def test_without_tensors_it_is_empty_as_a_file_is(sharded):
    with libst.open(sharded, "r+") as f:
        with f.transaction() as t:
            for name in "abc":
                t.delete(name)
        with libst.open(sharded) as other:
            for each in (f, other):
                assert (list(each), len(each), "a" in each) == ([], 0, False)
                assert each.metadata == {"total_size": "0"}
                with refused("NOT_FOUND"):
                    each["a"]
                assert each.read_many([]) == {}
    assert libst.load(sharded) == {}
