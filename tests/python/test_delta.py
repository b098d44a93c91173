"""libst.diff, patch, merge, delta_info and open(deltas=…), judged by the stock package."""

import json
import os
import pickle
import random
import struct

import libst
import numpy as np
import pytest
from conftest import refused
from safetensors import deserialize
from safetensors.numpy import load_file, save_file

DTYPES = [np.uint8, np.float16, np.float32, np.int64, np.bool_]


def held(path):
    """What the stock package reads: names to dtype, shape and bytes; and the metadata."""
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    tensors = {name: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for name, t in deserialize(data)}
    return tensors, json.loads(data[8 : 8 + n]).get("__metadata__", {})


def shown(file):
    """The same of an open libst.File, in its order."""
    tensors = {name: (file.info(name).dtype, file.info(name).shape, file[name].tobytes()) for name in file}
    return tensors, dict(file.metadata)


def array(r):
    kind = r.choice(DTYPES)
    count = r.choice([0, 1, 7, 1000, r.randrange(60_000)])
    data = np.frombuffer(r.randbytes(count * np.dtype(kind).itemsize), np.uint8)
    return (data % 2 if kind is np.bool_ else data).view(kind)


def changed(r, tensors, metadata):
    bytes_only = r.random() < 0.3
    out = {}
    for name, old in tensors.items():
        what = r.choice(["keep", "edit"] if bytes_only else ["keep", "edit", "drop", "replace"])
        if what == "edit" and old.size:
            new = old.copy()
            new.view(np.uint8)[r.randrange(new.nbytes)] ^= 1
            out[name] = new
        elif what == "replace":
            out[name] = array(r)
        elif what != "drop":
            out[name] = old
    if bytes_only:
        return out, metadata
    out.update({f"new/π{r.random()}": array(r) for _ in range(r.randrange(3))})
    return out, {**metadata, r.choice(["a", "b"]): r.choice(["", "1", '"']), "format": "np"}


def test_random_pairs_go_forth_and_back(tmp_path):
    r = random.Random(6)
    base, other, third = (tmp_path / f"{name}.safetensors" for name in ("a", "b", "c"))
    one, two, back, merged = (tmp_path / f"{name}.delta" for name in ("one", "two", "back", "merged"))
    kinds = set()
    for _ in range(25):
        a, meta_a = {f"t{i}": array(r) for i in range(r.randrange(8))}, r.choice([{}, {"a": "x"}])
        b, meta_b = changed(r, a, meta_a)
        c, meta_c = changed(r, b, meta_b)
        for path, tensors, metadata in ((base, a, meta_a), (other, b, meta_b), (third, c, meta_c)):
            libst.save(path, tensors, metadata, layout=r.choice(["keep", "stock"]))
        wanted = [held(path) for path in (base, other, third)]

        libst.diff(base, other, one)
        libst.diff(other, third, two)
        assert set(held(one)[0]) <= set(b)  # stock reads a delta too
        with libst.open(base, deltas=[one]) as f:
            assert shown(f) == wanted[1]
        with libst.open(base, deltas=[one, two]) as f:
            assert shown(f) == wanted[2]
            assert {name: t.tobytes() for name, t in libst.load(third).items()} == {n: f[n].tobytes() for n in f}
            assert all(f.info(name).shard in (0, 1, 2) for name in f)
        assert libst.verify(base, deltas=[one, two]) == []

        libst.merge(base, [one, two], merged, layout="stock")
        assert held(merged) == wanted[2]
        kinds.add(libst.patch(base, one, reverse=back).kind)
        assert held(base) == wanted[1]
        libst.patch(base, back)
        assert held(base) == wanted[0]
        libst.patch(base, one)
        libst.patch(base, two)
        assert held(base) == wanted[2]
    assert kinds == {"nothing", "patch", "publish"}


@pytest.fixture
def files(tmp_path):
    """A base, what is to be made of it, and the delta."""
    base, other, delta = (tmp_path / name for name in ("base.safetensors", "other.safetensors", "d.safetensors"))
    a = {"w": np.arange(3000, dtype=np.float32), "x": np.arange(5, dtype=np.int16), "gone": np.ones(3, np.uint8)}
    save_file(a, base, metadata={"k": "v"})
    b = {"w": a["w"] + 1, "x": a["x"], "new": np.zeros((2, 2), np.float64)}
    save_file(b, other, metadata={"k": "w", "l": ""})
    libst.diff(base, other, delta)
    return base, other, delta


def test_a_delta_says_what_it_is(files):
    base, other, delta = files
    info = libst.delta_info(delta)
    assert (info.changed, info.added, info.deleted) == (1, 1, 1)
    assert (info.metadata_set, info.metadata_removed) == (2, 0)
    assert 32 < info.data_bytes < 12000  # of 12000, the elements that changed
    assert info.file_size == delta.stat().st_size
    assert len(info.base) == len(info.result) == 32 and info.base != info.result
    with pytest.raises(libst.DeltaError):
        libst.delta_info(base)


def test_a_wrong_base_is_refused_and_left_alone(files, tmp_path):
    base, other, delta = files
    before = other.read_bytes()
    for call in (
        lambda: libst.patch(other, delta, reverse=tmp_path / "r"),
        lambda: libst.open(other, deltas=[delta]),
        lambda: libst.merge(other, [delta], tmp_path / "m"),
    ):
        with refused("DELTA_BASE") as raised:
            call()
        assert raised.value.status == libst.Status.DELTA_BASE
    assert other.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"base.safetensors", "other.safetensors", "d.safetensors"}
    with pytest.raises(libst.DeltaError):
        libst.patch(base, other)
    (finding,) = libst.verify(other, deltas=[delta])
    assert finding.level == "error" and finding.status == libst.Status.DELTA_BASE


def test_an_overlay_is_a_view_of_its_layers(files):
    base, other, delta = files
    with libst.open(base, deltas=[delta]) as f:
        assert set(f) == {"w", "x", "new"}
        assert "gone" not in f and dict(f.metadata) == {"k": "w", "l": ""}
        assert {name: f.info(name).shard for name in f} == {"w": 1, "x": 0, "new": 1}
        stats = f.stats()
        assert stats.bytes_read < 20_000 and stats.bytes_owned == 0  # headers and samples: the views are mapped
        view = f["w"]
        assert not view.flags.owndata
        np.testing.assert_array_equal(view, load_file(other)["w"])
        assert f.slice("w")[10:12].tolist() == [11, 12]
        assert f.read("new").tolist() == [[0, 0], [0, 0]]
        f.prefetch()
        with pytest.raises(libst.NotFoundError):
            f["gone"]
        again = pickle.loads(pickle.dumps(f))
        assert shown(again) == shown(f)
        again.close()
        with f.reopen() as second:
            assert shown(second) == shown(f)
    assert view[0] == 1  # the views outlive the file
    with pytest.raises(ValueError, match="for reading only"):
        libst.open(base, "r+", deltas=[delta])


def test_an_overlay_follows_its_layers_when_refreshed(files, tmp_path):
    base, other, delta = files
    with libst.open(base, deltas=[delta]) as f:
        with libst.open(base, "r+") as g:
            g.update("x", np.full(5, 9, np.int16))
        f.refresh()
        assert f["x"].tolist() == [9] * 5
        libst.patch(base, delta)
        with refused("DELTA_BASE"):
            f.refresh()
        assert f["x"].tolist() == [9] * 5 and f["w"][0] == 1


def test_an_overlay_of_elements_is_made_once(tmp_path):
    base, other, delta = (tmp_path / name for name in ("a.safetensors", "b.safetensors", "d"))
    w = np.arange(1 << 20, dtype=np.int32)
    save_file({"w": w, "x": np.ones(5)}, base)
    w[::1000] ^= 1
    save_file({"w": w, "x": np.ones(5)}, other)
    libst.diff(base, other, delta)
    for path in (base, delta):
        os.utime(path, (1, 1))  # long ago
    with libst.open(base, deltas=[delta]) as f, libst.open(base, "r+") as g:
        view = f["w"]
        for _ in range(3):
            f.refresh()
            assert f["w"].ctypes.data == view.ctypes.data
        g.update("x", np.full(5, 9.0))
        f.refresh()
        assert f["x"][0] == 9 and f["w"].ctypes.data == view.ctypes.data
        g.update("w", np.full(1, 7, np.int32), at=slice(500_001, 500_002))
        with refused("DELTA_BASE"):
            f.refresh()
        g.update("w", np.full(1, 500_001, np.int32), at=slice(500_001, 500_002))
        f.refresh()
        assert np.array_equal(f["w"], w) and f["w"].ctypes.data == view.ctypes.data


def test_an_overlay_of_fine_tunes_of_one_form_is_told_from_another(tmp_path):
    """The same names and forms: only bytes can tell."""
    paths = [tmp_path / f"{name}.safetensors" for name in ("base", "tuned", "foreign")]
    for i, path in enumerate(paths):
        save_file({f"w{k}": np.full(100_000, i * 50 + k, np.float32) for k in range(20)}, path)
    delta, second = tmp_path / "d", tmp_path / "d2"
    libst.diff(paths[0], paths[1], delta)
    with refused("DELTA_BASE"):
        libst.open(paths[2], deltas=[delta])
    libst.diff(paths[1], paths[2], second)
    libst.open(paths[0], deltas=[delta, second]).close()
    with refused("DELTA_BASE"):
        libst.open(paths[0], deltas=[second, delta])


def test_callbacks_may_stop_each_call(files, tmp_path):
    base, other, delta = files

    class Stop(Exception):
        pass

    def stop(done, total):
        raise Stop

    before = base.read_bytes()
    for call in (
        lambda: libst.diff(base, other, tmp_path / "x", progress=stop),
        lambda: libst.patch(base, delta, progress=stop),
        lambda: libst.merge(base, [delta], tmp_path / "x", progress=stop),
    ):
        with pytest.raises(Stop):
            call()
    assert base.read_bytes() == before and not (tmp_path / "x").exists()


@pytest.fixture
def sharded(files, tmp_path):
    """The base as shards: the folder, with its index."""
    folder = tmp_path / "sharded"
    libst.reshard(files[0], folder, 6000)
    return folder


def test_a_delta_of_shards_is_that_of_the_file_that_they_make(files, sharded, tmp_path):
    base, other, delta = files
    second, of_equals = tmp_path / "second", tmp_path / "equals"
    libst.diff(sharded, other, second)
    assert libst.delta_info(second) == libst.delta_info(delta)
    libst.diff(base, sharded / "model.safetensors.index.json", of_equals)
    assert libst.delta_info(of_equals).data_bytes == 0
    libst.patch(base, second)
    assert held(base) == held(other)


def test_an_overlay_on_shards_is_a_view_of_them_and_the_deltas(files, sharded):
    base, other, delta = files
    with libst.open(sharded) as f:
        shards = len(f.shards)
    assert shards > 1
    with libst.open(sharded, deltas=[delta]) as f:
        assert {name: shown(f)[0][name] for name in f} == held(other)[0]
        assert dict(f.metadata) == held(other)[1]
        assert {name: f.info(name).shard >= shards for name in f} == {"w": True, "x": False, "new": True}
        stats = f.stats()
        assert stats.bytes_read < 20_000 and stats.bytes_owned == 0  # headers and samples: the views are mapped
        view = f["w"]
        assert not view.flags.owndata
        f.prefetch()
        again = pickle.loads(pickle.dumps(f))
        assert shown(again) == shown(f)
        again.close()
        with libst.open(sharded, "r+") as g:
            g.update("x", np.full(5, 9, np.int16))
        assert f["x"].tolist() == [9] * 5  # in place, and shared
        f.refresh()
        with f.reopen() as second:
            assert shown(second) == shown(f)
    assert view[0] == 1
    assert libst.verify(sharded, deltas=[delta]) == []


def test_shards_and_deltas_are_merged_into_one_file(files, sharded, tmp_path):
    base, other, delta = files
    merged = tmp_path / "merged"
    libst.merge(sharded, [delta], merged)
    assert held(merged) == held(other)
    with refused("NOT_REGULAR"):
        libst.merge(sharded, [delta], sharded)
    with pytest.raises(ValueError, match="the name of an index"):
        libst.merge(sharded, [delta], tmp_path / "m.safetensors.index.json")


def test_shards_are_patched_all_or_none(files, sharded, tmp_path):
    base, other, delta = files
    back, joined = tmp_path / "back", tmp_path / "joined"
    contents = {path.name: path.read_bytes() for path in sharded.iterdir()}
    libst.diff(other, base, tmp_path / "wrong")
    with refused("DELTA_BASE"):
        libst.patch(sharded, tmp_path / "wrong", reverse=back)
    assert {path.name: path.read_bytes() for path in sharded.iterdir()} == contents and not back.exists()
    assert libst.patch(sharded, delta, reverse=back).kind == "publish"
    libst.join(sharded, joined)
    assert held(joined) == held(other)
    assert libst.verify(sharded) == []
    libst.patch(sharded, back)
    libst.join(sharded, joined)
    assert held(joined) == held(base)


def test_of_elements_holds_these_alone(tmp_path):
    r = np.random.default_rng(24)
    weights = r.integers(0x3C00, 0x3E00, 300_000, np.uint16)
    stepped = weights.copy()
    some = r.random(len(weights)) < 0.02
    stepped[some] += r.choice(np.array([1, 0xFFFF], np.uint16), np.count_nonzero(some))
    base, other, delta, back = (tmp_path / name for name in ("a.safetensors", "b.safetensors", "d", "r"))
    small = np.arange(10)
    save_file({"w": weights.view(np.float16), "small": small}, base)
    save_file({"w": stepped.view(np.float16), "small": small}, other)
    libst.diff(base, other, delta)
    assert held(delta)[1]["st.delta.version"] == "2"
    steps = load_file(delta)["w"]
    assert steps.dtype == np.uint8 and steps.nbytes * 50 < weights.nbytes
    before, after = held(base), held(other)
    with libst.open(base, deltas=[delta]) as f:
        assert shown(f)[0] == after[0]
        assert np.array_equal(f.slice("w")[1000:2000].view(np.uint16), stepped[1000:2000])
        assert len(f.shards) == 2
    libst.merge(base, [delta], tmp_path / "merged")
    assert held(tmp_path / "merged")[0] == after[0]
    assert libst.patch(base, delta, reverse=back).kind == "patch"
    assert held(base) == after
    with refused("DELTA_BASE"):
        libst.patch(base, delta)
    libst.patch(base, back)
    assert held(base) == before


def test_a_delta_that_is_a_file_of_its_base_does_not_wait_for_itself(tmp_path):
    one, two, delta, index = (
        tmp_path / name for name in ("0.safetensors", "b", "d.safetensors", "m.safetensors.index.json")
    )
    save_file({"a": np.zeros(1000, np.uint8)}, tmp_path / "a")
    save_file({"a": np.ones(1000, np.uint8)}, two)
    libst.diff(tmp_path / "a", two, delta)
    save_file({"b": np.ones(10, np.uint8)}, one)
    index.write_text(json.dumps({"weight_map": {"b": one.name, "a": delta.name}}))
    before = delta.read_bytes()
    with pytest.raises(libst.DeltaError, match="is itself a file of its base"):
        libst.patch(index, delta, publish=True)
    assert delta.read_bytes() == before


def test_a_delta_is_applied_through_a_handle(tmp_path):
    base, other, delta, back = (tmp_path / f"{name}.safetensors" for name in ("a", "b", "delta", "back"))
    save_file({"x": np.arange(5000, dtype=np.float32), "y": np.ones(3, np.int8)}, base)
    save_file({"x": np.arange(5000, dtype=np.float32) + 1, "y": np.ones(3, np.int8)}, other)
    before, after = held(base), held(other)
    libst.diff(base, other, delta)
    with libst.open(base, "r+") as f:
        seen = f["x"].copy()
        plan = f.patch(delta, reverse=back, journal_only=True)
        assert plan.kind == "patch"
        assert shown(f) == after == held(base)
        f.patch(back, journal_only=True)
        assert shown(f) == before and np.array_equal(f["x"], seen)
        f.patch(delta, publish=True)
        assert shown(f) == after
        with refused("DELTA_BASE"):
            f.patch(delta)
    assert held(base) == after
    with libst.open(base) as f, refused("READ_ONLY"):
        f.patch(back)


def test_a_delta_of_another_model_is_told_with_its_path_and_what_to_do(files, tmp_path):
    base, other, delta = files
    save_file({"x": np.ones(3)}, tmp_path / "model")
    told = f"make it anew \\(delta '{delta}' on '{tmp_path / 'model'}'\\)"
    for call in (libst.patch, lambda model, delta: libst.open(model, deltas=[delta])):
        with pytest.raises(libst.DeltaError, match=told):
            call(tmp_path / "model", delta)
