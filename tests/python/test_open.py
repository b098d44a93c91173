"""Opening a file, and the mapping that it is."""

import copy
import json
import mmap
import os
import pickle
from collections.abc import KeysView, Mapping

import libst
import numpy as np
import pytest
from conftest import TENSORS, raw_file, refused
from libst import compat
from safetensors import safe_open


def test_views_equal_what_stock_wrote(model):
    with libst.open(model) as f:
        for name, expected in TENSORS.items():
            view = f[name]
            assert view.dtype == expected.dtype and view.shape == expected.shape
            assert np.array_equal(view, expected)


def test_stock_reads_the_same(model):
    with libst.open(model) as f, safe_open(model, "np") as stock:
        assert sorted(f.keys()) == sorted(stock.keys())
        for name in stock.keys():
            assert np.array_equal(f[name], stock.get_tensor(name))
        assert dict(f.metadata) == stock.metadata()


def test_is_a_mapping(model):
    with libst.open(model) as f:
        assert isinstance(f, Mapping)
        assert len(f) == len(TENSORS)
        assert set(f) == set(f.keys()) == set(TENSORS)
        assert "w" in f and "nope" not in f and 3 not in f and "\ud800" not in f
        assert f.get("nope") is None and f.get("nope", 7) == 7
        assert np.array_equal(f.get("b"), TENSORS["b"])
        assert {name: array.shape for name, array in f.items()} == {n: t.shape for n, t in TENSORS.items()}
        assert len(list(f.values())) == len(TENSORS)


def test_keys_are_a_view_as_of_a_dict(model):
    with libst.open(model, "r+") as f:
        keys = f.keys()
        assert isinstance(keys, KeysView) and list(keys) == list(f) and len(keys) == len(f)
        assert "w" in keys and "nope" not in keys and keys & {"w", "nope"} == {"w"} and keys == set(TENSORS)
        with f.transaction() as t:
            t.delete("w")
        assert "w" not in keys and list(keys) == list(f)


def test_names_come_in_the_order_of_the_file(raw):
    path = raw([("z", "U8", [1], b"a"), ("a", "U8", [1], b"b"), ("m", "U8", [1], b"c")])
    with libst.open(path) as f:
        assert list(f) == ["z", "a", "m"]


def test_many_names_are_all_listed_once(raw):
    wanted = [f"layer.{i}" for i in range(10_000)]
    with libst.open(raw([(name, "U8", [], b"x") for name in wanted])) as f:
        assert list(f) == wanted
        assert len(f) == 10_000


def test_two_files_are_not_compared_by_content(model):
    with libst.open(model) as f, libst.open(model) as g:
        assert f == f and f != g
        assert len({f, g}) == 2


NAMES = ["", "a\0b", "\0", "naïve", "模型.权重", "🙂" * 300, "a/b c\n\t\"'\\", "a"]


def test_names_may_hold_anything_that_unicode_has(raw):
    path = raw([(name, "U8", [1], bytes([i])) for i, name in enumerate(NAMES)])
    with libst.open(path, "r+") as f:
        assert list(f) == NAMES
        for i, name in enumerate(NAMES):
            assert name in f
            assert f[name].tolist() == [i]
            assert f.info(name).name == name
            assert f.read(name).tolist() == [i]
            assert f.slice(name)[0:1].tolist() == [i]
            f.update(name, np.array([i + 100], np.uint8))
        assert [f[name].item() for name in NAMES] == [i + 100 for i in range(len(NAMES))]


def test_a_name_is_not_cut_at_nul(raw):
    with libst.open(raw([("a\0b", "U8", [1], b"x")])) as f:
        assert "a" not in f
        with pytest.raises(libst.NotFoundError):
            f["a"]


def test_metadata_is_a_read_only_mapping_of_strings(raw):
    metadata = {"z": "1", "a\0b": "c\0d", "": "", "ключ": "значение"}
    with libst.open(raw([], metadata)) as f:
        assert dict(f.metadata) == metadata
        assert list(f.metadata) == list(metadata)
        read = f.metadata
        for copied in (read, read.copy(), copy.copy(read), copy.deepcopy(read), read | {}):
            assert copied == metadata and json.dumps(copied) == json.dumps(metadata) and repr(copied) == repr(metadata)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            sent = pickle.loads(pickle.dumps(f.metadata, protocol))
            assert sent == metadata and type(sent) is dict


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.__setitem__("z", "2"), lambda m: m.__delitem__("z"), lambda m: m.__ior__({"z": "2"}),
        lambda m: m.clear(), lambda m: m.pop("z"), lambda m: m.popitem(), lambda m: m.setdefault("z", "2"),
        lambda m: m.update(z="2"),
    ],
)  # fmt: skip
def test_what_would_change_metadata_says_how(raw, change):
    with libst.open(raw([], {"z": "1"})) as f:
        metadata = f.metadata
        with pytest.raises(TypeError, match="transaction"):
            change(metadata)
        assert metadata == {"z": "1"}


def test_metadata_of_a_file_without_is_empty(raw):
    with libst.open(raw([("a", "U8", [1], b"x")])) as f:
        assert dict(f.metadata) == {}


def test_an_empty_file_has_no_tensors(raw):
    with libst.open(raw([])) as f:
        assert len(f) == 0 and list(f) == []


def test_info_tells_place_and_form(raw):
    path = raw([("a", "U8", [3], b"xyz"), ("w", "BF16", [2, 1, 3], bytes(12)), ("s", "F64", [], bytes(8))])
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    with libst.open(path) as f:
        assert f.info("w") == libst.TensorInfo("w", "BF16", (2, 1, 3), 12, begin + 3, 0)
        assert f.info("s") == libst.TensorInfo("s", "F64", (), 8, begin + 15, 0)
        with pytest.raises(libst.NotFoundError):
            f.info("nope")
        with pytest.raises(AttributeError):
            f.info("w").name = "other"


def test_views_are_read_only_for_good(model):
    with libst.open(model) as f:
        for name in TENSORS:
            assert not f[name].flags.writeable
        for name in ("w", "scalar"):
            view = f[name]
            with pytest.raises(ValueError):
                view.flags.writeable = True
            with pytest.raises(ValueError):
                view.base.flags.writeable = True
        with pytest.raises(ValueError):
            f["w"][0, 0, 0] = 1


def test_views_are_not_copies(model):
    with libst.open(model, mapping="shared") as f:
        a, b = f["w"], f["w"]
        assert np.shares_memory(a, b)
        assert f.io_info().mapping == "shared"
        assert f.stats().bytes_owned == 0


@pytest.mark.parametrize("kind", ["auto", "shared", "private", "none", "copy-on-write"])
def test_every_mapping_shows_the_same(model, kind):
    with libst.open(model, mapping=kind) as f:
        for name, expected in TENSORS.items():
            assert np.array_equal(f[name], expected)
        if kind != "auto":
            assert f.io_info().mapping == kind


def test_without_a_mapping_nothing_is_mapped(model):
    from conftest import is_mapped

    with libst.open(model, mapping="none") as f:
        assert np.array_equal(f["w"], TENSORS["w"])
        assert not is_mapped(model)
        assert f.stats().bytes_owned >= TENSORS["w"].nbytes
        assert f.stats().bytes_mapped == 0


def test_bad_arguments_are_refused(model):
    with pytest.raises(ValueError, match="'r' or 'r\\+'"):
        libst.open(model, "w")
    with pytest.raises(ValueError, match="'shared'"):
        libst.open(model, mapping="huge")
    with pytest.raises(ValueError, match="lock_timeout"):
        libst.open(model, lock_timeout=-1)
    with pytest.raises(ValueError, match="lock_timeout"):
        libst.open(model, lock_timeout=float("nan"))
    with pytest.raises(ValueError, match="null byte"):
        libst.open("a\0b")
    with pytest.raises(ValueError, match="null byte.*opened by open_memory"):
        libst.load(model.read_bytes())
    with pytest.raises(TypeError):
        libst.open(7)
    with libst.open(model) as f:
        with pytest.raises(TypeError, match="str"):
            f[3]
        with pytest.raises(libst.NotFoundError, match="Unicode"):
            f["\ud800"]


def test_a_file_object_where_a_path_is_wanted_is_told_what_takes_it(model):
    with open(model, "rb") as file, pytest.raises(TypeError, match="not BufferedReader; .*open_source take"):
        libst.open(file)
    with pytest.raises(TypeError, match="not int$"):
        libst.open(3)


def test_paths_may_be_str_bytes_or_pathlike(model, monkeypatch):
    monkeypatch.chdir(model.parent)
    for path in (str(model), os.fsencode(model), model, model.name):
        with libst.open(path) as f:
            assert len(f) == len(TENSORS)
            assert f.path == os.fsdecode(path)


def test_mode_is_told(model):
    with libst.open(model) as f, libst.open(model, mode="r+") as g:
        assert (f.mode, g.mode) == ("r", "r+")


def test_repr_names_the_file(model):
    f = libst.open(model)
    assert repr(str(model)) in repr(f) and f"tensors={len(TENSORS)}" in repr(f)
    f.close()
    assert "closed" in repr(f)


def test_io_info_tells_what_the_file_is(model):
    content = model.read_bytes()
    with libst.open(model) as f:
        info = f.io_info()
    assert info.file_size == len(content)
    assert info.header_size == int.from_bytes(content[:8], "little")
    assert info.data_offset == info.header_size + 8
    assert info.mapping in ("shared", "private", "none")
    assert info.storage in ("local", "memory", "network", "parallel", "fuse", "object store", "unknown")
    assert info.filesystem and info.reason


def test_stats_count_reads(model):
    with libst.open(model) as f:
        before = f.stats()
        f.read("w")
        assert f.stats().bytes_read == before.bytes_read + TENSORS["w"].nbytes
        assert before.bytes_mapped >= model.stat().st_size
        assert before.index_bytes > 0


def test_read_copies(model):
    with libst.open(model) as f:
        for name, expected in TENSORS.items():
            array = f.read(name)
            assert array.dtype == expected.dtype and array.shape == expected.shape
            assert np.array_equal(array, expected)
            assert array.flags.owndata and array.flags.writeable


def test_read_fills_the_array_it_is_given(model):
    with libst.open(model) as f:
        out = np.zeros((2, 3, 4), np.float32)
        assert f.read("w", out) is out
        assert np.array_equal(out, TENSORS["w"])
        with refused("SHAPE_MISMATCH", match="shape"):
            f.read("w", np.zeros((4, 3, 2), np.float32))
        with refused("DTYPE_MISMATCH", match="int32"):
            f.read("w", np.zeros((2, 3, 4), np.int32))
        with pytest.raises(ValueError, match="contiguous"):
            f.read("w", np.zeros((4, 3, 2), np.float32).T)
        out.flags.writeable = False
        with pytest.raises(ValueError, match="writable"):
            f.read("w", out)
        with pytest.raises(libst.NotFoundError):
            f.read("nope")


def test_reopen_is_a_file_of_its_own(model):
    f = libst.open(model, mapping="private")
    g = f.reopen()
    f.close()
    assert np.array_equal(g["w"], TENSORS["w"])
    assert g.io_info().mapping == "private" and g.path == str(model)
    g.close()
    with pytest.raises(libst.ClosedError):
        g.reopen()


def test_reopen_refuses_another_file(model):
    with libst.open(model) as f:
        other = model.with_name("other")
        other.write_bytes(raw_file([("w", "U8", [1], b"x")]))
        os.replace(other, model)
        with refused("FILE_CHANGED", "now names another file"):
            f.reopen()
        model.unlink()
        with refused("FILE_CHANGED", "no longer there; this handle"):
            f.reopen()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8)])
def test_open_memory_takes_any_buffer(model, kind):
    with libst.open_memory(kind(model.read_bytes())) as f:
        assert f.path is None and f.mode == "r"
        for name, expected in TENSORS.items():
            assert np.array_equal(f[name], expected)
            assert np.array_equal(f.read(name), expected)
        assert np.array_equal(f.slice("w")[1, ::-1], TENSORS["w"][1, ::-1])
        with refused("READ_ONLY"):
            f.update("b", TENSORS["b"])


def test_open_memory_copies_nothing(model):
    data = np.frombuffer(bytearray(model.read_bytes()), np.uint8)
    with libst.open_memory(data) as f:
        assert np.shares_memory(f["w"], data)


def test_open_memory_takes_a_mmap(model):
    with open(model, "rb") as stream:
        mapping = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    with libst.open_memory(mapping) as f:
        view = f["b"]
    assert np.array_equal(view, TENSORS["b"])
    with pytest.raises(BufferError):
        mapping.close()  # the view lies in it
    del view
    mapping.close()


def test_open_memory_refuses_what_is_no_file():
    with pytest.raises(libst.FormatError):
        libst.open_memory(b"")
    with pytest.raises(TypeError):
        libst.open_memory("text")


def test_classes_are_not_made_by_hand():
    for kind in (libst.File, libst.Transaction):
        with pytest.raises(TypeError):
            kind()


@pytest.fixture(params=["memfd", "O_TMPFILE", "deleted"])
def nameless(request, tmp_path, model):
    """An open file of the bytes of `model` that no folder has: its path in /proc."""
    if request.param == "memfd":
        fd = os.memfd_create("model")
    elif request.param == "O_TMPFILE":
        fd = os.open(tmp_path, os.O_TMPFILE | os.O_RDWR)
    else:
        fd = os.open(tmp_path / "gone", os.O_CREAT | os.O_RDWR)
        os.unlink(tmp_path / "gone")
    os.write(fd, model.read_bytes())
    yield f"/proc/self/fd/{fd}"
    os.close(fd)


@pytest.mark.parametrize("mapping", ["auto", "none"])
def test_a_file_without_a_name_is_read(nameless, mapping):
    for path in (nameless, nameless.replace("/proc/self", "/dev"), nameless.replace("self", str(os.getpid()))):
        with libst.open(path, mapping=mapping) as f:
            assert np.array_equal(f["w"], TENSORS["w"]) and np.array_equal(f.read("b"), TENSORS["b"])
            f.refresh()
            with f.reopen() as again:
                assert np.array_equal(again["w"], TENSORS["w"])
        assert libst.verify(path) == [] and libst.recover(path) == []
        assert set(libst.load(path)) == set(TENSORS)
    with open(nameless, "rb") as opened, compat._safe_open_handle(opened, "np") as f:
        assert np.array_equal(f.get_tensor("w"), TENSORS["w"])


def test_a_file_without_a_name_is_not_changed_and_that_is_said(nameless, model):
    changes = [
        lambda: libst.open(nameless, "r+"),
        lambda: libst.save(nameless, TENSORS),
        lambda: libst.writer(nameless),
        lambda: libst.compact(nameless),
    ]
    for change in changes:
        with refused("UNSUPPORTED", match="without a name"):
            change()
    with libst.open(nameless) as f, libst.open(model) as plain:
        assert {n: a.tobytes() for n, a in f.items()} == {n: a.tobytes() for n, a in plain.items()}


def test_an_open_file_with_a_name_is_that_file(model):
    with open(model, "rb") as opened, libst.open(f"/proc/self/fd/{opened.fileno()}", "r+") as f:
        assert f.shards == (os.path.realpath(model),)
        f.update("b", TENSORS["b"] + 1)
    with libst.open(model) as f:
        assert np.array_equal(f["b"], TENSORS["b"] + 1)
