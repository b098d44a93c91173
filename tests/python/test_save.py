"""libst.save and libst.writer: stock reads what they write, and would have written layout="stock" byte for byte."""

import ctypes
import errno
import os
import resource
import subprocess
import sys
import tracemalloc
from collections import OrderedDict, UserDict
from collections.abc import Mapping

import crash
import libst
import numpy as np
import pytest
import safetensors
from conftest import TENSORS, refused
from libst import dtypes
from libst.compat.numpy import save_file as compat_save
from safetensors.numpy import load_file, save_file
from ways import WAYS

UNICODE = {
    "π": np.ones(3, np.float32),
    'quo"te\\': np.zeros(2, np.int8),
    "tab\there\n\x1f": np.array(7),
    "": np.arange(4.0),
    "😀": np.ones((0, 2)),
}
MANY = {
    f"layers.{i % 97}.weight.{i}": np.full(i % 5, i % 251, [np.float32, np.int64, np.uint8, np.float16][i % 4])
    for i in range(10_000)
}


def same(path, tensors):
    loaded = load_file(path)
    assert set(loaded) == set(tensors)
    for name, array in tensors.items():
        assert loaded[name].dtype == array.dtype and loaded[name].shape == array.shape
        assert loaded[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("tensors", [TENSORS, UNICODE, MANY, {}], ids=["small", "unicode", "many", "none"])
@pytest.mark.parametrize("metadata", [None, {"format": "np"}, {"ключ": 'v"\\\n'}], ids=["-", "one", "unicode"])
class TestAgainstStock:
    def test_stock_layout_is_stocks_bytes(self, tmp_path, tensors, metadata):
        save_file(tensors, tmp_path / "stock", metadata=metadata)
        libst.save(tmp_path / "ours", tensors, metadata, layout="stock")
        assert (tmp_path / "ours").read_bytes() == (tmp_path / "stock").read_bytes()

    @pytest.mark.parametrize(
        "options", [{}, {"layout": "canonical"}, {"alignment": 4096, "header_reserve": 1000}], ids=str
    )
    def test_stock_reads_every_layout(self, tmp_path, tensors, metadata, options):
        libst.save(tmp_path / "ours", tensors, metadata, **options)
        same(tmp_path / "ours", tensors)
        with safetensors.safe_open(tmp_path / "ours", "np") as f:
            assert (f.metadata() or {}) == (metadata or {})
        with libst.open(tmp_path / "ours") as f:
            assert f.io_info().data_offset % options.get("alignment", 64) == 0
            if not options:
                given = [name for name in tensors if tensors[name].nbytes]
                wide_first = sorted(given, key=lambda name: -tensors[name].itemsize)
                aligned = not any(f.info(name).file_offset % f[name].itemsize for name in f)
                assert aligned and [name for name in f if f[name].nbytes] in (given, wide_first)

    @pytest.mark.parametrize("layout", ["keep", "canonical", "stock"])
    def test_writer_writes_what_save_writes(self, tmp_path, tensors, metadata, layout):
        libst.save(tmp_path / "saved", tensors, metadata, layout=layout)
        with libst.writer(tmp_path / "written", metadata, layout=layout) as w:
            for name, array in tensors.items():
                w.add(name, array)
        assert (tmp_path / "written").read_bytes() == (tmp_path / "saved").read_bytes()


def test_metadata_of_several_keys_is_one_of_stocks_spellings(tmp_path):
    metadata = {"b": "1", "a": "2"}
    libst.save(tmp_path / "ours", TENSORS, metadata, layout="stock")
    ours = (tmp_path / "ours").read_bytes()
    for _ in range(100):  # its order is that of a hash map, drawn anew each time
        save_file(TENSORS, tmp_path / "stock", metadata=metadata)
        if (tmp_path / "stock").read_bytes() == ours:
            return
    pytest.fail("a hundred files of stock, and none is like ours")


def test_all_dtypes_as_stock_writes_them(tmp_path):
    """Through stock's own serialiser where it takes the dtype from Python, and its reader for all."""
    rng = np.random.default_rng(1)
    tensors = {}
    for number, name in dtypes.NAMES.items():
        bits = 4 if name == "F4" else 6 if number in dtypes.PACKED else np.dtype(dtypes.NUMPY[number]).itemsize * 8
        count = 8 * 3
        data = rng.integers(0, 2 if name == "BOOL" else 256, count * bits // 8).astype(np.uint8)
        tensors[f"t.{name}"] = libst.Packed(name, (count // 8, 8), data)
    libst.save(tmp_path / "ours", tensors, layout="stock")
    read = dict(safetensors.deserialize((tmp_path / "ours").read_bytes()))
    assert set(read) == set(tensors)
    for name, packed in tensors.items():
        assert read[name]["dtype"] == packed.dtype and bytes(read[name]["data"]) == packed.data.tobytes()
    order = [name.removeprefix("t.") for name in libst.open(tmp_path / "ours")]
    canonical = "U64 I64 F64 C64 F32 U32 I32 BF16 F16 U16 I16 F8_E5M2FNUZ F8_E4M3FNUZ F8_E8M0 F8_E4M3 F8_E5M2 I8 U8"
    assert order == [*canonical.split(), "F6_E3M2", "F6_E2M3", "F4", "BOOL"]

    spelled = {
        "F4": "float4_e2m1fn_x2",  # whose shape counts bytes
        "F8_E4M3": "float8_e4m3fn",
        "F8_E5M2": "float8_e5m2",
        "F8_E8M0": "float8_e8m0fnu",
        "F8_E4M3FNUZ": "float8_e4m3fnuz",
        "F8_E5M2FNUZ": "float8_e5m2fnuz",
        "BF16": "bfloat16",
        "F16": "float16",
        "F32": "float32",
        "F64": "float64",
        "C64": "complex64",
        "BOOL": "bool",
        **{f"{k}{b}": f"{w}{b}" for k, w in (("I", "int"), ("U", "uint")) for b in (8, 16, 32, 64)},
    }
    taken = {name: p for name, p in tensors.items() if p.dtype in spelled}
    specs = {
        name: safetensors.TensorSpec(
            dtype=spelled[p.dtype],
            shape=[p.shape[0], 4 if p.dtype == "F4" else 8],
            data_ptr=p.data.ctypes.data,
            data_len=p.data.nbytes,
        )
        for name, p in taken.items()
    }
    libst.save(tmp_path / "some", taken, layout="stock")
    assert (tmp_path / "some").read_bytes() == safetensors.serialize(specs)


def test_mode_is_by_the_umask_or_of_the_file_replaced(tmp_path):
    old = os.umask(0o027)
    try:
        libst.save(tmp_path / "m", TENSORS)
        assert (tmp_path / "m").stat().st_mode & 0o777 == 0o640
        os.chmod(tmp_path / "m", 0o664)
        libst.save(tmp_path / "m", TENSORS)
        assert (tmp_path / "m").stat().st_mode & 0o777 == 0o664
    finally:
        os.umask(old)


def test_symbolic_link_is_followed(tmp_path):
    (tmp_path / "cache").mkdir()
    libst.save(tmp_path / "cache" / "blob", TENSORS)
    (tmp_path / "m").symlink_to("cache/blob")
    libst.save(tmp_path / "m", {"only": np.ones(2)})
    assert (tmp_path / "m").is_symlink() and set(load_file(tmp_path / "cache" / "blob")) == {"only"}
    assert os.listdir(tmp_path / "cache") == ["blob"]


def test_views_of_the_old_file_may_be_saved_over_it(tmp_path):
    libst.save(tmp_path / "m", TENSORS)
    with libst.open(tmp_path / "m") as f:
        libst.save(tmp_path / "m", {name: f[name] for name in reversed(list(f))})
        assert (f["w"] == TENSORS["w"]).all()
    same(tmp_path / "m", TENSORS)


def test_exception_in_the_block_leaves_the_old_file(tmp_path):
    libst.save(tmp_path / "m", TENSORS)
    before = (tmp_path / "m").read_bytes()
    with pytest.raises(ZeroDivisionError), libst.writer(tmp_path / "m") as w:
        w.add("a", np.ones(1000))
        raise ZeroDivisionError
    assert (tmp_path / "m").read_bytes() == before and os.listdir(tmp_path) == ["m"]


def test_cancelling_leaves_the_old_file(tmp_path):
    libst.save(tmp_path / "m", TENSORS)
    before = (tmp_path / "m").read_bytes()

    def stop(done, total):
        if done > 6_000_000:
            raise KeyError("enough")

    with pytest.raises(KeyError):
        libst.save(tmp_path / "m", {"a": np.ones(1 << 20), "b": np.ones(1 << 20)}, progress=stop)
    assert (tmp_path / "m").read_bytes() == before and os.listdir(tmp_path) == ["m"]


def test_what_nobody_could_read_is_refused(tmp_path):
    for value, kind in [
        (libst.Packed("F4", (3,), np.zeros(2, np.uint8)), libst.FormatError),
        (libst.Packed("I64", (1,), np.array([object()])), TypeError),
        (libst.Packed("F32", (3,), np.zeros(8, np.uint8)), libst.FormatError),
        (libst.Packed("F99", (3,), np.zeros(8, np.uint8)), TypeError),
    ]:
        with pytest.raises(kind):
            libst.save(tmp_path / "m", {"x": value})
    with pytest.raises(ValueError):
        libst.save(tmp_path / "m", {"__metadata__": np.ones(1)})
    with refused("NO_FILE"):
        libst.save(tmp_path / "none" / "m", TENSORS)
    with refused("NOT_REGULAR"):
        libst.save(tmp_path, TENSORS)
    with pytest.raises(ValueError):
        libst.save(tmp_path / "m", TENSORS, alignment=12)
    with libst.writer(tmp_path / "m") as w:
        w.add("a", np.ones(1))
        with pytest.raises(libst.FormatError):
            w.add("a", np.ones(1))
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.parametrize("packed, kind, sentence", [
    (libst.Packed(np.zeros(4, np.uint8), "F4", (8,)), TypeError, "a name, such as 'F4', not of type ndarray"),
    (libst.Packed(np.float32, (2,), np.zeros(8, np.uint8)), TypeError, "a name, such as 'F4', not of type type"),
    (libst.Packed("F4", 8, np.zeros(4, np.uint8)), TypeError, "a tuple of numbers, not 8"),
    (libst.Packed("F4", "8", np.zeros(4, np.uint8)), TypeError, "a tuple of numbers, not '8'"),
    (libst.Packed("F4", (8.0,), np.zeros(4, np.uint8)), TypeError, "a dimension is a number"),
    (libst.Packed("F4", (-8,), np.zeros(4, np.uint8)), ValueError, "a dimension is a number"),
    (libst.Packed("F4", (2**64 + 8,), np.zeros(4, np.uint8)), ValueError, "a dimension is a number"),
])  # fmt: skip
def test_a_packed_tensor_whose_dtype_or_shape_is_none_says_so(tmp_path, packed, kind, sentence):
    with pytest.raises(kind, match=sentence):
        libst.save(tmp_path / "m", {"x": packed})
    with libst.writer(tmp_path / "m") as w:
        with pytest.raises(kind, match=sentence):
            w.add("x", packed)
        w.add("y", np.ones(1))
    with libst.open(tmp_path / "m", "r+") as f:
        with pytest.raises(kind, match=sentence), f.transaction() as t:
            t.put("x", packed)
        assert list(f) == ["y"]


def test_a_writer_is_finished_when_files_can_be_opened_again(tmp_path):
    w = libst.writer(tmp_path / "m")
    w.add("a", np.ones(3))
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, most))
    try:
        with pytest.raises(libst.StorageError) as refused:
            w.finish()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
    assert refused.value.errno == errno.EMFILE
    w.finish()
    same(tmp_path / "m", {"a": np.ones(3)})
    assert os.listdir(tmp_path) == ["m"]


def test_killed_writers_temporary_is_removed_by_the_next(tmp_path):
    program = """
import libst, numpy, os, signal, sys
w = libst.writer(sys.argv[1])
w.add("a", numpy.ones(1000))
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "m")])
    (left,) = os.listdir(tmp_path)
    assert left.startswith(".m.st-tmp-")
    with libst.writer(tmp_path / "m") as alive:
        alive.add("a", np.ones(3))
        assert len(os.listdir(tmp_path)) == 1  # its own
        libst.save(tmp_path / "m", TENSORS)  # a living writer's temporary stays
        assert len(os.listdir(tmp_path)) == 2
    same(tmp_path / "m", {"a": np.ones(3)})
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.parametrize(
    "given, expected", [((), {"format": "pt", "ключ": "v"}), (({},), {}), (({"a": "b"},), {"a": "b"})], ids=str
)
def test_an_open_file_hands_on_its_metadata_unless_others_are_given(tmp_path, given, expected):
    libst.save(tmp_path / "first", TENSORS, {"format": "pt", "ключ": "v"})
    with libst.open(tmp_path / "first") as f:
        libst.save(tmp_path / "second", f, *given)
    with libst.open(tmp_path / "second") as f:
        assert f.metadata == expected
    same(tmp_path / "second", TENSORS)


def test_open_shards_hand_on_no_totals(tmp_path):
    libst.save(tmp_path / "whole", TENSORS)
    libst.reshard(tmp_path / "whole", tmp_path / "shards", 100)
    with libst.open(tmp_path / "shards" / "model.safetensors.index.json", "r+") as f:
        with f.transaction() as t:
            t.metadata("by", "you")
        assert "total_size" in f.metadata
        libst.save(tmp_path / "second", f)
    with libst.open(tmp_path / "second") as f:
        assert f.metadata == {"by": "you"}
    same(tmp_path / "second", TENSORS)


def saved_again(path, **options):
    """The metadata that `libst.save` gives what is opened."""
    second = path.parent / "second"
    with libst.open(path, **options) as f:
        libst.save(second, f)
    with libst.open(second) as f:
        return dict(f.metadata)


@pytest.mark.parametrize("way", ["index", "folder", "model.safetensors", "delta", "variant"])
def test_one_shard_hands_on_no_totals(tmp_path, way):
    libst.save(tmp_path / "whole", TENSORS)
    libst.reshard(tmp_path / "whole", tmp_path / "shards", 1 << 30)
    index = tmp_path / "shards" / "model.safetensors.index.json"
    with libst.open(index, "r+") as f, f.transaction() as t:
        t.metadata("by", "you")
    (shard,) = tmp_path.glob("shards/*.safetensors")
    text = index.read_text()
    if way == "model.safetensors":
        text = text.replace(shard.name, "model.safetensors")
        shard.rename(shard.with_name("model.safetensors"))
    index.write_text(text)
    if way == "variant":
        index = index.rename(index.with_name("model.safetensors.index.fp16.json"))
    options = {}
    if way == "delta":
        libst.diff(index, index, tmp_path / "delta")
        options["deltas"] = [tmp_path / "delta"]
    opened = index if way in ("index", "delta", "variant") else index.parent
    with libst.open(opened, **options) as f:
        assert len(f.shards) == 1 + (way == "delta")
        assert ("total_size" in f.metadata) == (way != "delta")
    assert saved_again(opened, **options) == {"by": "you"}


@pytest.mark.parametrize("way", ["file", "folder", "delta", "folder and delta", "memory", "removed"])
def test_one_file_hands_on_what_it_calls_total_size(tmp_path, way):
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "model.safetensors"
    libst.save(path, TENSORS, {"total_size": "mine"})
    options = {}
    if "delta" in way:
        libst.diff(path, path, tmp_path / "delta")
        options["deltas"] = [tmp_path / "delta"]
    if way == "memory":
        libst.save(tmp_path / "second", libst.open_memory(path.read_bytes()))
        assert libst.open(tmp_path / "second").metadata == {"total_size": "mine"}
    elif way == "removed":
        with libst.open(path.parent) as f:
            path.unlink()
            libst.save(tmp_path / "second", f)
        assert libst.open(tmp_path / "second").metadata == {"total_size": "mine"}
    else:
        assert saved_again(path.parent if "folder" in way else path, **options) == {"total_size": "mine"}


def test_waiting_journal_is_finished_before_its_file_is_replaced(tmp_path):
    libst.save(tmp_path / "m", TENSORS)
    crash.after_commit(tmp_path / "m", "b", TENSORS["b"] + 1)
    (tmp_path / "values.npy").unlink()
    libst.save(tmp_path / "m", {"only": np.ones(2)})
    with libst.open(tmp_path / "m", "r+") as f:
        assert list(f) == ["only"]
    assert os.listdir(tmp_path) == ["m"]


def test_declared_tensors_are_written_in_pieces_and_any_order(tmp_path):
    """The C writer, which Python's leaves alone."""
    from libst import _abi

    names = [ctypes.create_string_buffer(name) for name in (b"a", b"b")]
    shape = (ctypes.c_uint64 * 1)(1000)
    declared = (_abi.Tensor * 2)(
        *[_abi.Tensor(name=ctypes.addressof(n), name_len=1, dtype=5, rank=1, shape=shape, nbytes=1000) for n in names]
    )
    out = ctypes.c_void_p()
    assert _abi.st_writer_open(os.fsencode(tmp_path / "m"), declared, 2, None, 0, None, out) == 0
    assert _abi.st_writer_write(out, b"b", 1, b"B" * 1000, 1000) == 0
    assert _abi.st_writer_write(out, b"a", 1, b"x" * 400, 400) == 0
    assert _abi.st_writer_finish(out) == libst.Status.INCOMPLETE
    assert _abi.st_writer_write(out, b"a", 1, b"y" * 601, 601) == libst.Status.NBYTES_MISMATCH
    assert _abi.st_writer_write(out, b"c", 1, b"y", 1) == libst.Status.NOT_FOUND
    assert _abi.st_writer_write(out, b"a", 1, b"y" * 600, 600) == 0
    assert _abi.st_writer_finish(out) == 0
    assert _abi.st_writer_finish(out) == libst.Status.TXN_FAILED
    _abi.st_writer_free(out)
    same(
        tmp_path / "m", {"a": np.frombuffer(b"x" * 400 + b"y" * 600, np.uint8), "b": np.full(1000, ord("B"), np.uint8)}
    )


@pytest.mark.parametrize("number", [-8, 2**32 + 64, np.int64(-8)], ids=str)
def test_a_number_is_not_cut_to_what_c_has_room_for(tmp_path, number):
    with pytest.raises(ValueError, match="alignment is a number from 0 to 4294967295"):
        libst.save(tmp_path / "m", {}, alignment=number)
    with pytest.raises(ValueError, match="header_reserve is a number from 0"):
        libst.save(tmp_path / "m", {}, header_reserve=number - 2**64 if number > 0 else number)


class MadeWhenAsked(Mapping):
    """As numpy.load gives the members of an archive: each look makes a new array."""

    def __init__(self, tensors):
        self.tensors = tensors

    def __len__(self):
        return len(self.tensors)

    def __iter__(self):
        return iter(self.tensors)

    def __getitem__(self, name):
        return self.tensors[name].copy()


@pytest.mark.parametrize(
    "save", [libst.save, lambda path, tensors: compat_save(tensors, path)], ids=["libst", "compat"]
)
def test_arrays_that_a_mapping_makes_when_asked_are_saved(tmp_path, save):
    tensors = {f"t{i}": np.full(1000, i, np.float32) for i in range(9)}
    save(tmp_path / "m", MadeWhenAsked(tensors))
    same(tmp_path / "m", tensors)


class Halves(dict):
    """Gives out other arrays than it holds, and cannot be made by `dict.copy`."""

    def __init__(self, name, array):
        super().__init__({name: array * 2})

    def items(self):
        return [(name, self[name] / 2) for name in self]

    def copy(self):
        raise NotImplementedError


@pytest.mark.parametrize(
    "save", [libst.save, lambda path, tensors: compat_save(tensors, path)], ids=["libst", "compat"]
)
def test_a_dict_of_another_class_is_saved_as_it_gives_its_arrays_out(tmp_path, save):
    save(tmp_path / "m", Halves("a", np.arange(3.0)))
    same(tmp_path / "m", {"a": np.arange(3.0)})


def test_an_array_may_be_replaced_in_its_dict_while_it_is_saved(tmp_path):
    tensors = {f"t{i}": np.full(1 << 20, i, np.uint8) for i in range(8)}

    def train(_done, _total):
        for name in tensors:
            tensors[name] = np.full(1 << 20, 255, np.uint8)

    libst.save(tmp_path / "m", tensors, progress=train)
    same(tmp_path / "m", {f"t{i}": np.full(1 << 20, i, np.uint8) for i in range(8)})


def test_packed_elements_may_be_given_as_bytes(tmp_path):
    given = {f"t{i}": bytes([i + 1]) * 1000 for i in range(9)}
    libst.save(tmp_path / "m", {name: libst.Packed("F4", (2000,), data) for name, data in given.items()})
    assert {name: array.tobytes() for name, array in libst.load(tmp_path / "m").items()} == given


def test_a_file_is_saved_with_the_element_types_that_numpy_has_not(tmp_path):
    packed = {"f4": libst.Packed("F4", (2, 4), np.arange(4, dtype=np.uint8)), "w": np.arange(3.0)}
    packed["f6"] = libst.Packed("F6_E2M3", (4,), np.arange(3, dtype=np.uint8))
    libst.save(tmp_path / "first", packed)
    with libst.open(tmp_path / "first") as f:
        libst.save(tmp_path / "second", f)
    assert (tmp_path / "second").read_bytes() == (tmp_path / "first").read_bytes()


class MakesMasked:
    def __array__(self, dtype=None, copy=None):
        return np.ma.masked_array(np.arange(3.0), [False, True, False])


@pytest.mark.parametrize("change", ["save", "update"])
def test_a_masked_array_is_refused_unless_nothing_is_masked(tmp_path, change):
    libst.save(tmp_path / "m", {"a": np.zeros(3)})
    masked = np.ma.masked_array(np.arange(3.0), [False, True, False])
    with libst.open(tmp_path / "m", "r+") as f:
        write = (lambda a: f.update("a", a)) if change == "update" else lambda a: libst.save(tmp_path / "m", {"a": a})
        with pytest.raises(NotImplementedError, match="masked"):
            write(masked)
        with pytest.raises(NotImplementedError, match="masked"):
            write(libst.Packed("F64", (3,), masked))
        with pytest.raises(NotImplementedError, match="masked"):
            write(MakesMasked())
        with pytest.raises(NotImplementedError, match="masked"):
            write([masked])
        write(np.ma.masked_array(np.arange(3.0)))
    same(tmp_path / "m", {"a": np.arange(3.0)})


@pytest.mark.parametrize("array", [np.zeros(2, ">f4"), np.array([None])], ids=["big-endian", "objects"])
def test_an_array_that_is_refused_is_named(tmp_path, array):
    with refused("DTYPE_MISMATCH", match="'bad'") as caught:
        libst.save(tmp_path / "m", {"good": np.zeros(3), "bad": array})
    assert caught.value.tensor == "bad" and not (tmp_path / "m").exists()


class Module:
    def state_dict(self):
        return {}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"weight": np.zeros(3)}, "a dict, no array or tensor; flatten it"),
        (OrderedDict(weight=np.zeros(3)), "an OrderedDict, no array or tensor; flatten it"),
        (UserDict({0: np.zeros(3)}), "a UserDict, no array or tensor; flatten it"),  # numpy would take its keys
        ([{"weight": np.zeros(3)}], "a list, no array or tensor; flatten it"),
        (None, "None, no array or tensor$"),
        (object(), "an object, no array or tensor$"),
        (Module(), r"a Module, no array or tensor; write the tensors of its state_dict\(\)"),
        ("text", "a str, no array or tensor$"),
        (b"text", "a bytes, no array or tensor$"),
    ],
    ids=["dict", "ordered", "mapping", "list", "none", "object", "module", "text", "bytes"],
)
def test_what_is_no_array_is_told(tmp_path, way, value, says):
    with refused("DTYPE_MISMATCH", match=f"'bad': it is {says}") as caught:
        way(tmp_path / "m", {"bad": value}, lambda _: ("F64", (3,), 24))
    assert caught.value.tensor == "bad"


@pytest.mark.skipif(not hasattr(getattr(np, "dtypes", None), "StringDType"), reason="this numpy has no such type")
def test_texts_of_numpy_are_refused_by_name(tmp_path):
    with refused("DTYPE_MISMATCH", match="'bad': .*StringDType"):
        libst.save(tmp_path / "m", {"bad": np.array(["a"], np.dtypes.StringDType())})


class Deleted:
    """An array of jax after its deletion."""

    dtype, shape = np.dtype(np.float32), (3,)

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Array has been deleted.")


@pytest.mark.skipif(not hasattr(Exception, "add_note"), reason="exceptions take no notes")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    ("value", "error"), [(Deleted(), RuntimeError), ([[1], [2, 3]], ValueError)], ids=["deleted", "ragged"]
)
def test_what_others_raise_names_the_tensor(tmp_path, way, value, error):
    with pytest.raises(error) as caught:
        way(tmp_path / "m", {"bad": value}, lambda _: ("F32", (3,), 12))
    assert caught.value.__notes__ == ["libst: this is of the tensor 'bad'"]


@pytest.mark.parametrize(("tensors", "metadata"), [([np.zeros(3)], None), (None, None), ({}, [("a", "b")]), ({}, "ab")])
def test_what_maps_nothing_is_told(tmp_path, tensors, metadata):
    with pytest.raises(TypeError, match="maps .*; it is a (list|NoneType|str)"):
        libst.save(tmp_path / "m", tensors, metadata)


class Elsewhere:
    """An array of another library, which reads its elements when numpy asks for them."""

    dtype, shape = np.dtype(np.float32), (2, 3)

    def __init__(self):
        self.asked = 0

    def __array__(self, dtype=None, copy=None):
        self.asked += 1
        return np.arange(6, dtype=np.float32).reshape(2, 3)


def test_an_array_of_another_library_is_converted_once(tmp_path):
    array = Elsewhere()
    libst.save(tmp_path / "m", {"a": array})
    assert array.asked == 1
    with libst.open(tmp_path / "m", "r+") as f:
        f.update("a", array)
    assert array.asked == 2
    same(tmp_path / "m", {"a": np.asarray(array)})


@pytest.mark.parametrize("path", ["model/", "link/", "new/"])
def test_a_path_that_ends_in_a_slash_is_no_files(tmp_path, path):
    libst.save(tmp_path / "model", TENSORS)
    (tmp_path / "link").symlink_to("model")
    with refused("NO_FILE"):
        libst.save(f"{tmp_path}/{path}", {})
    with refused("NO_FILE"):
        libst.open(f"{tmp_path}/{path}")
    libst.reshard(tmp_path / "model", f"{tmp_path}/folder//", 100)
    assert libst.open(f"{tmp_path}/folder/").keys() == TENSORS.keys()


def test_text_that_has_no_utf8_is_refused_by_name(tmp_path):
    libst.save(tmp_path / "m", {"a": np.zeros(3)})
    with libst.open(tmp_path / "m", "r+") as f, f.transaction() as t:
        for write in (
            lambda text: libst.save(tmp_path / "m", {text: np.zeros(3)}),
            lambda text: libst.save(tmp_path / "m", {}, {"key": text}),
            lambda text: libst.writer(tmp_path / "m").add(text, np.zeros(3)),
            lambda text: t.put(text, np.zeros(3)),
            lambda text: t.rename("a", text),
            lambda text: t.metadata(text, "value"),
            lambda text: t.metadata("key", text),
        ):
            with refused("HEADER_UTF8", match="ud800"):
                write("\ud800")
    same(tmp_path / "m", {"a": np.zeros(3)})


def test_a_save_leaves_nothing_at_the_arrays(tmp_path):
    tensors = {f"t{i}": np.full(64, i, np.float32) for i in range(3000)}
    libst.save(tmp_path / "warm", dict(list(tensors.items())[:9]))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    libst.save(tmp_path / "m", tensors)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 8 * len(tensors)
