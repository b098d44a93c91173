"""libst.compat against the stock package: the same answers, bytes and exceptions to the same questions."""

import ast
import copy
import errno
import json
import os
import pickle
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import warnings
from collections import deque
from pathlib import Path

import crash
import libst
import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from conftest import REPOSITORY, TENSORS, is_descriptor_open, is_mapped, raw_file
from libst import compat
from libst.compat import _ahead, _link, _prefetch
from libst.compat import numpy as compat_numpy
from libst.compat._install import SHADOW

sys.path.append(str(REPOSITORY / "tests" / "differential"))  # at the end, as it has a conftest, too
from corpus import CASES  # noqa: E402

BOTH = {"stock": safetensors, "libst": compat}
NUMPY = {"stock": safetensors.numpy, "libst": compat_numpy}

DTYPES = [np.bool_, np.complex64, np.float16, np.float32, np.float64]
DTYPES += [np.dtype(f"{sign}int{bits}").type for sign in ("", "u") for bits in (8, 16, 32, 64)]
DTYPES += [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2]
DTYPES += [ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu]
EVERY_DTYPE = {f"tensor.{np.dtype(t).name}": np.arange(12).reshape(3, 4).astype(t) for t in DTYPES}

DICTS = {
    "example": TENSORS,
    "every dtype": EVERY_DTYPE,
    "none": {},
    "empty": {"e": np.empty((0, 3), np.float16), "f": np.empty((2, 0))},
    "scalars": {"a": np.array(1.5), "b": np.array(True)},
    "names": {name: np.arange(3) for name in ("", "naïve", "模型.权重", "🙂", "a/b c\n\t\"'\\\x01\x7f", "\u2028")},
    "big-endian": {"a": np.arange(5, dtype=">f4")},
    "many": {
        f"layer.{i}.w": np.full((i % 7 + 1,), i % 100, [np.int8, np.float32, np.int64][i % 3]) for i in range(1000)
    },
}


def outcome(function, *args, **kwargs):
    """What a call gave, or the exception that it raised: class and text."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)


def both(question):
    """The same question to stock and to libst."""
    return [outcome(question, package) for package in BOTH.values()]


def same(a, b):
    assert set(a) == set(b)
    for name, array in a.items():
        assert array.dtype == b[name].dtype and array.shape == b[name].shape, name
        assert array.tobytes() == b[name].tobytes(), name


@pytest.mark.parametrize("tensors", DICTS.values(), ids=DICTS)
@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {'k\n"é🙂': "v\\/\u2028\x00"}], ids=str)
def test_the_same_bytes_are_written(tmp_path, tensors, metadata):
    for package, module in NUMPY.items():
        module.save_file(tensors, tmp_path / package, metadata)
    stock = (tmp_path / "stock").read_bytes()
    assert (tmp_path / "libst").read_bytes() == stock
    assert compat_numpy.save(tensors, metadata) == stock == safetensors.numpy.save(tensors, metadata)


def test_serialize_orders_as_the_library_does(tmp_path):
    """serialize makes its header itself; the C library is the judge, also with metadata of many keys."""
    metadata = {key: key for key in ("z", "a", "é", "B", "🙂", "\ue000")}
    for tensors in DICTS.values():
        compat_numpy.save_file(tensors, tmp_path / "file", metadata)
        assert compat_numpy.save(tensors, metadata) == (tmp_path / "file").read_bytes()


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize(
    "tensors", [t for n, t in DICTS.items() if n != "every dtype"], ids=[n for n in DICTS][:1] + [n for n in DICTS][2:]
)
def test_the_same_tensors_are_read(tmp_path, tensors, backend):
    path = tmp_path / "file"
    safetensors.numpy.save_file(tensors, path, {"a": "b"})
    same(compat_numpy.load_file(path, backend=backend), safetensors.numpy.load_file(path, backend=backend))
    same(compat_numpy.load(path.read_bytes()), safetensors.numpy.load(path.read_bytes()))
    with compat.safe_open(path, "np", backend=backend) as f, safetensors.safe_open(path, "np", backend=backend) as g:
        assert f.keys() == g.keys() and f.metadata() == g.metadata()
        placed = [[name for name in h.offset_keys() if tensors[name].size] for h in (f, g)]  # stock has others anywhere
        assert placed[0] == placed[1] and sorted(f.offset_keys()) == f.keys()
        assert type(f.keys()) is list and type(f.offset_keys()) is list
        same({name: f.get_tensor(name) for name in f.keys()}, {name: g.get_tensor(name) for name in g.keys()})
        same(f.get_tensors(), g.get_tensors())
        for name in f.keys():
            f_slice, g_slice = f.get_slice(name), g.get_slice(name)
            assert (f_slice.get_shape(), f_slice.get_dtype()) == (g_slice.get_shape(), g_slice.get_dtype())


def test_every_dtype_is_read(tmp_path):
    """float8 too, which stock saves but cannot load into numpy."""
    path = tmp_path / "file"
    safetensors.numpy.save_file(EVERY_DTYPE, path)
    same(compat_numpy.load_file(path), EVERY_DTYPE)
    same(compat_numpy.load(path.read_bytes()), EVERY_DTYPE)


def test_arrays_may_be_written_to_and_outlive_the_file(model):
    with compat.safe_open(model, "np") as f:
        array, every = f.get_tensor("w"), f.get_tensors()
    array += 1
    every["w"] += 1
    assert np.array_equal(array, TENSORS["w"] + 1) and np.array_equal(every["w"], array)
    assert np.array_equal(compat_numpy.load_file(model)["w"], TENSORS["w"])


def test_views_are_read_only_and_copy_nothing(model):
    views = compat_numpy.load_file(model, backend="view")
    same(views, TENSORS)
    assert not views["w"].flags.writeable
    assert np.shares_memory(views["w"], views["w"].base) and len({id(v.base) for v in views.values() if v.size}) == 1
    with compat.safe_open(model, "np", backend="view") as f:
        assert np.shares_memory(f.get_tensor("w"), f.get_tensor("w"))
    with pytest.raises(compat.SafetensorError, match="numpy"):
        compat.safe_open(model, "tf", backend="view")


# A tensor of (4, 6), one of (0, 3), and a scalar.
INDICES = [
    0, -1, 4, -5, slice(1, 3), slice(None), slice(None, None, 2), slice(1, None, 2), slice(0, 100), slice(0, 100, 2),
    slice(10, 20), slice(4, 4), slice(2, 2), slice(-2, None), slice(None, -1), slice(None, None, -1),
    slice(None, None, 0), slice(0.5, 1), slice(0, 2**70), slice(None, None, "a"), slice(None, None, 2**40),
    (1, 2), (1, -9), (1, 2, 3), (slice(1, 3), slice(2, 4)), (slice(0, 2), -1), (slice(None), slice(None, None, 3)),
    (-9, slice(-2, None)), (slice(-2, None), -9), (-9, 1.5),
    (slice(1, None, 2), 5), ..., (..., 1), (1, ...), (..., ...), (slice(1, 2), ..., slice(2, 3)), (..., slice(0, 9)),
    (1, 2, ...), (1, 2, 3, ...), (), [], [1, 2], (slice(None), []), (slice(None), [1]), None, (None, 1), 1.5, "a",
    True, 2**70, 2**40, np.int64(1), slice(np.int64(1), np.int64(3)), np.array([1, 2]),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("name", ["w", "e", "s"])
@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_slices_are_those_of_stock(tmp_path, name, index, backend):
    path = tmp_path / "file"
    w = np.arange(24, dtype=np.float32).reshape(4, 6)
    safetensors.numpy.save_file({"w": w, "e": np.empty((0, 3), np.int8), "s": np.array(2.5)}, path)

    def ask(package):
        part = package.safe_open(path, "np", backend=backend).get_slice(name)[index]
        return part.dtype, part.shape, part.tobytes()

    stock, ours = both(ask)
    assert ours == stock


def test_a_slice_that_ends_before_it_begins_is_empty(model):
    """Stock raises SystemError, of Python's own making."""
    assert compat.safe_open(model, "np").get_slice("w")[1:0].shape == (0, 3, 4)


def test_slices_outlive_the_file(model):
    with compat.safe_open(model, "np") as f:
        part = f.get_slice("w")
    assert np.array_equal(part[1], TENSORS["w"][1])


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_a_file_is_closed_with_its_last_slice_and_not_with_its_name(model, backend):
    with compat.safe_open(model, "np", backend=backend) as f:
        part = f.get_slice("w")
    assert part[1].tolist() == TENSORS["w"][1].tolist()
    assert is_descriptor_open(model)
    del part
    assert not is_descriptor_open(model) and not is_mapped(model)
    for ask in (f.keys, lambda: f.get_slice("w"), lambda: f.get_tensor("w")):
        with pytest.raises(compat.SafetensorError, match="closed"):
            ask()


@pytest.fixture
def rows(tmp_path):
    """64 rows of 2 KiB: two are copied from the mapping, more are read."""
    path = tmp_path / "rows"
    array = np.arange(64 * 512, dtype=np.float32).reshape(64, 512)
    safetensors.numpy.save_file({"w": array, "one": array[0]}, path)
    return path, array


def bytes_read(function, *args):
    """By read calls of this process, during a call."""

    def so_far():
        return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text()).group(1))

    before = so_far()
    function(*args)
    return so_far() - before


def test_a_part_in_many_pieces_is_copied_from_a_local_mapping(rows, monkeypatch):
    """To read it would read most of what lies between them. Where a page comes by the network, that is quicker."""
    path, array = rows
    for mapping, is_read in (("shared", False), ("private", True)):
        monkeypatch.setenv("ST_MAP", mapping)
        with compat.safe_open(path, "np") as f:
            w = f.get_slice("w")
            for index in (np.s_[:, :2], np.s_[:, :500], np.s_[::3], np.s_[:, 0], np.s_[:8, :8], np.s_[:, ::2]):
                assert np.array_equal(w[index], array[index])
                part = array[index]
                assert (bytes_read(w.__getitem__, index) >= part.nbytes) is is_read, (mapping, index)


def test_a_part_in_pieces_far_apart_is_read(tmp_path):
    """A page of a mapping comes with its neighbours: of pieces far apart, that would be most of the file."""
    array = np.arange(64 * 100_000, dtype=np.float32).reshape(64, 100_000)
    safetensors.numpy.save_file({"w": array}, tmp_path / "m")
    with compat.safe_open(tmp_path / "m", "np") as f:
        w = f.get_slice("w")
        for index in (np.s_[:, :10], np.s_[::8, 5:900], np.s_[::8, 0]):
            assert np.array_equal(w[index], array[index])
            assert bytes_read(w.__getitem__, index) >= array[index].nbytes, index


PARTS = [
    slice(3, 4), slice(3, 5), slice(3, 6), slice(0, 64), 3, (3, slice(0, 5)), (slice(0, 4), slice(7, 8)), (3, 7),
    (slice(0, 64), slice(0, 100)), slice(0, 64, 2), (slice(0, 64), slice(0, 512, 3)), (slice(0, 64), 5),
]  # fmt: skip


@pytest.mark.parametrize("index", PARTS, ids=str)
@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_a_part_is_the_callers_own_however_small(rows, index, backend):
    path, array = rows
    with compat.safe_open(path, "np", backend=backend) as f:
        w = f.get_slice("w")
        part = w[index]
        assert type(part) is np.ndarray and part.base is None and part.flags.writeable and part.flags.c_contiguous
        part += 1
        assert np.array_equal(w[index], array[index])
        one = f.get_tensor("one")
        one += 1
        assert one.base is None and np.array_equal(f.get_tensor("one"), array[0])


def test_small_parts_show_what_is_patched(rows):
    path, array = rows
    with compat.safe_open(path, "np") as f, libst.open(path, "r+") as g:
        w = f.get_slice("w")
        assert np.array_equal(w[3:4], array[3:4]) and np.array_equal(f.get_tensor("one"), array[0])
        g.update("w", -array[3:4], at=slice(3, 4))
        g.update("one", -array[0])
        assert np.array_equal(w[3:4], -array[3:4]) and np.array_equal(f.get_tensor("one"), -array[0])


def test_a_slice_is_sent_without_its_tensor(rows):
    path, array = rows
    w = compat.safe_open(path, "np").get_slice("w")
    assert np.array_equal(w[3:4], array[3:4])
    sent = pickle.dumps(w)
    assert len(sent) < array.nbytes // 8 and np.array_equal(pickle.loads(sent)[3:4], array[3:4])


def test_an_open_file_is_sent_as_its_path(rows):
    with compat.safe_open(rows[0], "np") as f:
        f.get_tensor("one")
        assert np.array_equal(pickle.loads(pickle.dumps(f)).get_tensor("one"), rows[1][0])


def test_what_a_header_says_of_a_tensor_is_copied(rows):
    with compat.safe_open(rows[0], "np") as f:
        meta = f.get_tensor_meta("one")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(meta, protocol)) == meta
    assert copy.copy(meta) == copy.deepcopy(meta) == meta


def test_what_holds_for_its_process_alone_is_not_sent():
    loader = compat.PrefetchLoader({"a": lambda: 7}, 1)
    for kept, match in [(loader, "prefetch there"), (SPEC[compat], "make one of it there")]:
        for how in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=match):
                how(kept)
    assert loader.take("a") == 7
    loader.close()


def test_a_closed_file_gives_no_small_tensor(rows):
    with compat.safe_open(rows[0], "np") as f:
        f.get_tensor("one")
    with pytest.raises(compat.SafetensorError, match="closed"):
        f.get_tensor("one")


SPEC = {p: p.TensorSpec(dtype="int8", shape=[0], data_ptr=0, data_len=0) for p in BOTH.values()}
QUESTIONS = {
    "no such tensor": lambda p, path: p.safe_open(path, "np").get_tensor("nope"),
    "no such slice": lambda p, path: p.safe_open(path, "np").get_slice("nope"),
    "a number for a name": lambda p, path: p.safe_open(path, "np").get_tensor(3),
    "a surrogate in a name": lambda p, path: p.safe_open(path, "np").get_tensor("\ud800"),
    "no such file": lambda p, path: p.safe_open(path.with_name("none"), "np"),
    "NUL in the path": lambda p, path: p.safe_open("a\0b", "np"),
    "bytes for a path": lambda p, path: p.safe_open(os.fsencode(path), "np"),
    "a number for a path": lambda p, path: p.safe_open(3, "np"),
    "no such framework": lambda p, path: p.safe_open(path, "foo"),
    "a number for a framework": lambda p, path: p.safe_open(path, 1),
    "no such device": lambda p, path: p.safe_open(path, "np", device="foo"),
    "a device of another": lambda p, path: p.safe_open(path, "np", device="cuda"),
    "a device by number": lambda p, path: p.safe_open(path, "np", device=0),
    "a negative device": lambda p, path: p.safe_open(path, "np", device=-1),
    "half a device": lambda p, path: p.safe_open(path, "np", device=1.5),
    "a device with two numbers": lambda p, path: p.safe_open(path, "np", device="cuda:0:1"),
    "a device that is no number": lambda p, path: p.safe_open(path, "np", device="cuda:x"),
    "a negative index of a device": lambda p, path: p.safe_open(path, "np", device="cuda:-1"),
    "a device with a sign": lambda p, path: p.safe_open(path, "np", device="cuda:+01"),
    "a sign for a device": lambda p, path: p.safe_open(path, "np", device="cuda:+"),
    "a colon and no device": lambda p, path: p.safe_open(path, "np", device="cuda:"),
    "a device of 64 bits": lambda p, path: p.safe_open(path, "np", device=f"cuda:{2**64 - 1}"),
    "a device of more bits": lambda p, path: p.safe_open(path, "np", device=f"cuda:{2**64}"),
    "a device of many digits": lambda p, path: p.safe_open(path, "np", device="cuda:" + "9" * 5000),
    "an index for the CPU": lambda p, path: p.safe_open(path, "np", device="cpu:0"),
    "every kind of device": lambda p, path: str([outcome(p.safe_open, path, "np", f"{kind}:7") for kind in KINDS]),
    "mps": lambda p, path: p.safe_open(path, "np", device="mps"),
    "the first of mps": lambda p, path: p.safe_open(path, "np", device="mps:0"),
    "the second of mps": lambda p, path: p.safe_open(path, "np", device="mps:1"),
    "mps that is no number": lambda p, path: p.safe_open(path, "np", device="mps:x"),
    "a device for paddle": lambda p, path: p.safe_open(path, "paddle", device="cuda:1"),
    "a GPU for flax": lambda p, path: p.safe_open(path, "jax", device="cuda:1"),
    "no such backend": lambda p, path: p.safe_open(path, "np", backend="foo"),
    "a number for a backend": lambda p, path: p.safe_open(path, "np", backend=1),
    "after the end": lambda p, path: closed(p, path).get_tensor("w"),
    "keys after the end": lambda p, path: closed(p, path).keys(),
    "metadata after the end": lambda p, path: closed(p, path).metadata(),
    "entered again": lambda p, path: closed(p, path).__enter__().keys(),
    "bytearray": lambda p, path: p.deserialize(bytearray(path.read_bytes())),
    "text": lambda p, path: p.deserialize("text"),
    "dtype": lambda p, path: p.TensorSpec(dtype="foo", shape=[1], data_ptr=1, data_len=1),
    "negative shape": lambda p, path: p.TensorSpec(dtype="int8", shape=[-1], data_ptr=1, data_len=1),
    "text for a shape": lambda p, path: p.TensorSpec(dtype="int8", shape="ab", data_ptr=1, data_len=1),
    "F4": lambda p, path: repr(p.TensorSpec(dtype="float4_e2m1fn_x2", shape=(2, 3), data_ptr=8, data_len=6)),
    "F4 that overflows": lambda p, path: p.TensorSpec(
        dtype="float4_e2m1fn_x2", shape=(2, 2**63), data_ptr=8, data_len=6
    ),
    "a size that overflows": lambda p, path: written(p, shape=[2**40, 2**40]),
    "bits that overflow": lambda p, path: written(p, shape=[2**61]),
    "bits that fit": lambda p, path: written(p, shape=[2**60]),
    "a size that overflows before it is 0": lambda p, path: written(p, shape=[2**63, 2, 0], data_len=0),
    "a size that is 0 before it overflows": lambda p, path: str(written(p, shape=[0, 2**63, 2], data_len=0)),
    "wrong size": lambda p, path: p.serialize({"a": p.TensorSpec(dtype="int8", shape=[2], data_ptr=8, data_len=1)}),
    "no framework": lambda p, path: p.safe_open(path, None),
    "None for a backend": lambda p, path: p.safe_open(path, "np", backend=None),
    "None for a name": lambda p, path: p.safe_open(path, "np").get_tensor(None),
    "None for bytes": lambda p, path: p.deserialize(None),
    "None for tensors": lambda p, path: p.serialize(None),
    "None for a name to save": lambda p, path: p.serialize({None: None}),
    "None for a TensorSpec": lambda p, path: p.serialize({"a": None}),
    "None in metadata": lambda p, path: p.serialize({}, metadata={"a": None}),
    "a number for a name to save": lambda p, path: p.serialize({1: None}),
    "a dict for a TensorSpec": lambda p, path: p.serialize({"a": {}}),
    "a list of tensors": lambda p, path: p.serialize([]),
    "a list of metadata": lambda p, path: p.serialize({}, metadata=[]),
    "a number in metadata": lambda p, path: p.serialize({}, metadata={"a": 1}),
    "a surrogate in a name to save": lambda p, path: p.serialize_file({"\ud800": SPEC[p]}, "unwritten"),
    "a surrogate in metadata": lambda p, path: p.serialize_file({}, "unwritten", {"a": "\ud800"}),
    "saved nowhere": lambda p, path: p.serialize_file({}, 3),
}


KINDS = ["cuda", "musa", "npu", "xpu", "xla", "mlu", "hpu", "vulkan"]


def written(package, **differs):
    spec = {"dtype": "int8", "shape": [1], "data_ptr": SOME.ctypes.data, "data_len": 1, **differs}
    return package.serialize({"a": package.TensorSpec(**spec)})


SOME = np.zeros(8)


def closed(package, path):
    with package.safe_open(path, "np") as f:
        pass
    return f


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_errors_are_those_of_stock(model, question):
    stock, ours = both(lambda package: question(package, model))
    assert ours == stock and type(ours) in (tuple, str)


class Index:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


NUMBERS = [0, 1.5, -1, 2**63, 2**64 - 1, 2**64, 2**70, None, "1", b"1", True, np.int64(3), np.float32(1), [], ...]
NUMBERS += [Index(5), Index(-1), Index(2**64), Index("a")]
SHAPES = [(), [1, 2], range(3), b"ab", bytearray(b"ab"), memoryview(b"ab"), np.array([1, 2]), np.array([1.5])]
SHAPES += [np.array(3), np.array([2**63], np.uint64), [[1]], {1: 2}, {1, 2}, {1: 2}.keys(), iter([1]), deque([1])]
SHAPES += [[1, None], np.float32(1)]
SPECS = [{argument: number} for argument in ("data_ptr", "data_len", "shape") for number in NUMBERS]
SPECS += [{"shape": (number,)} for number in NUMBERS] + [{"shape": shape} for shape in SHAPES]
SPECS += [{"dtype": dtype} for dtype in (1, None, b"int8", "I8", "", "\ud800")]
# Which of two faults is told:
SPECS += [{"dtype": 1, "shape": "a"}, {"dtype": "foo", "shape": "a"}, {"dtype": "foo", "data_ptr": 1.5}]
SPECS += [{"shape": [-1], "data_ptr": "x"}, {"data_ptr": 1.5, "data_len": -1}, {"dtype": "\ud800", "shape": 1}]


@pytest.mark.parametrize("differs", SPECS)
def test_a_spec_takes_and_refuses_what_stock_does(differs):
    def question(package):
        return repr(package.TensorSpec(**{"dtype": "int8", "shape": [1], "data_ptr": 8, "data_len": 1, **differs}))

    stock, ours = both(question)
    assert ours == stock


@pytest.mark.parametrize("framework", ["flax", "jax", "tensorflow", "tf", "paddle", "pt"])
def test_a_framework_that_is_missing_is_told_where_stock_tells_it(model, monkeypatch, framework):
    """Names, metadata and slices' shapes can be asked for without most."""
    for module in ("jax", "tensorflow", "paddle", "torch"):
        monkeypatch.setitem(sys.modules, module, None)

    def question(package):
        with package.safe_open(model, framework) as f:
            part = f.get_slice("w")
            said = [f.keys(), sorted(f.metadata()), part.get_shape()]
            said += [outcome(f.get_tensor, "w"), outcome(f.get_tensors)]
            return str([*said, outcome(lambda: part[1:])])

    stock, ours = both(question)
    assert ours == stock


@pytest.mark.parametrize("name", ["none/file", "model/", "a\0b"])
def test_errors_of_the_storage_are_safetensor_errors_when_saving(tmp_path, name):
    (tmp_path / "model").touch()
    (kind, text), ours = both(lambda p: p.serialize_file({}, f"{tmp_path}/{name}"))
    assert ours[0] == kind == "SafetensorError"
    assert ours[1].startswith(re.match(r".*\(os error \d+\)", text).group())
    assert [kind for kind, _ in both(lambda p: p.serialize_file({}, tmp_path))] == ["SafetensorError"] * 2


def test_what_is_no_file_is_an_os_error_when_loading(tmp_path):
    for package in BOTH.values():
        with pytest.raises(OSError):
            package.safe_open(tmp_path, "np")


def test_where_memory_ends_a_load_is_a_memory_error(model, monkeypatch):
    """Which stock raises where it can map no file."""

    def ends(*_):
        return int(libst.Status.NOMEM)

    with monkeypatch.context() as lacking:
        lacking.setattr(libst._abi, "st_open", ends)
        for load in (compat_numpy.load_file, lambda path: compat.safe_open(path, "np")):
            with pytest.raises(MemoryError):
                load(model)
    with compat.safe_open(model, "np", backend="pread") as f:
        part = f.get_slice("w")
        for module in (libst.bulk, libst.slices):
            monkeypatch.setattr(module, "_brief_read", ends)
        for read in (lambda: f.get_tensor("w"), lambda: part[1:]):
            with pytest.raises(MemoryError):
                read()


def test_arguments_are_keywords_where_stock_has_them(model):
    for package in BOTH.values():
        with pytest.raises(TypeError):
            package.safe_open(model, "np", "cpu", "mmap")
        with pytest.raises(TypeError):
            package.TensorSpec("int8", [1], 8, 1)
        assert package.deserialize(bytes=package.serialize(tensor_dict={}, metadata={"a": "b"})) == []


# Headers of 100 MB take a second each, and tests/differential reads them.
MALFORMED = [case for name, case in CASES.items() if case.status != "ST_OK" and "100000" not in name]


@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: case.name)
def test_malformed_files_raise_what_stock_raises(tmp_path, case):
    path = tmp_path / "file"
    path.write_bytes(case.bytes())
    asked = [lambda p: p.safe_open(path, "np"), lambda p: p.deserialize(path.read_bytes())]
    for ask in asked:
        stock, ours = both(ask)
        assert ours[0] == "SafetensorError"
        if case.status == "ST_E_DUPLICATE_NAME":
            continue  # stock lets one tensor hide another
        assert stock[0] == "SafetensorError"
        if " in header: " in stock[1]:  # and then what its JSON or UTF-8 reader has to say
            said = stock[1][: stock[1].index(" in header: ") + len(" in header: ")]
            assert ours[1].startswith(said)
        elif case.status not in ("ST_E_OVERLAP", "ST_E_HOLE", "ST_E_OFFSETS"):  # which tensor is to blame is a choice
            assert ours[1] == stock[1]


def test_the_error_of_libst_is_the_cause(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"short")
    with pytest.raises(compat.SafetensorError) as caught:
        compat.safe_open(path, "np")
    assert isinstance(caught.value.__cause__, libst.FormatError)


def test_files_have_the_mode_of_umask_and_keep_that_of_the_old(tmp_path):
    """Where stock makes every file 0600."""
    path = tmp_path / "file"
    old = os.umask(0o027)
    try:
        compat_numpy.save_file(TENSORS, path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    compat_numpy.save_file(TENSORS, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


@pytest.fixture
def cached(tmp_path):
    """A file as it lies in the Hub's cache: (the link to it, the file that it leads to)."""
    blob = tmp_path / "blobs" / ("0123456789abcdef" * 4)
    blob.parent.mkdir()
    safetensors.numpy.save_file(TENSORS, blob)
    link = tmp_path / "snapshots" / "main" / "model.safetensors"
    link.parent.mkdir(parents=True)
    link.symlink_to(f"../../blobs/{blob.name}")
    return link, blob


@pytest.mark.parametrize("module", NUMPY.values(), ids=NUMPY)
@pytest.mark.parametrize("relative", [False, True])
def test_a_link_is_replaced_and_what_it_leads_to_stays(cached, module, monkeypatch, relative):
    link, blob = cached
    monkeypatch.chdir(link.parent)
    before = blob.read_bytes()
    module.save_file({"a": np.ones(3)}, link.name if relative else link)
    assert blob.read_bytes() == before and not link.is_symlink()
    same(module.load_file(link), {"a": np.ones(3)})
    assert os.listdir(link.parent) == [link.name]


@pytest.mark.parametrize("module", NUMPY.values(), ids=NUMPY)
def test_a_link_that_leads_nowhere_is_replaced(tmp_path, module):
    (tmp_path / "model").symlink_to("nowhere/model")
    module.save_file(TENSORS, tmp_path / "model")
    same(module.load_file(tmp_path / "model"), TENSORS)


def test_a_link_stays_where_saving_fails(cached, monkeypatch):
    link, blob = cached

    def replace(source, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        compat_numpy.save_file({"a": np.ones(3)}, link)
    assert link.is_symlink() and os.listdir(link.parent) == [link.name]


_lists_folders = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no locks by which to tell")

_DYING = """
import os, sys
import numpy as np
from libst.compat.numpy import save_file
link, replaces = sys.argv[1:]
rename = os.replace
def replace(source, target):
    if replaces == "yes":
        rename(source, target)
    os._exit(7)
os.replace = replace
save_file({"a": np.zeros(3)}, link)
"""


@pytest.mark.parametrize("where", ["while it writes", "before it renames", "after it has renamed"])
@pytest.mark.parametrize("next_is_link", [True, False])
def test_what_a_process_left_that_died_over_a_link_goes_with_the_next_save(cached, where, next_is_link):
    link, blob = cached
    env = dict(os.environ)
    if where == "while it writes":
        env |= {"LD_PRELOAD": str(crash._shim()), "CRASH_IN": ".st-link-"}
    replaces = "yes" if where == "after it has renamed" else "no"
    assert subprocess.run([sys.executable, "-c", _DYING, link, replaces], env=env).returncode == 7
    assert len(os.listdir(link.parent)) > 1
    assert link.is_symlink() == (replaces == "no")
    link.unlink()
    if next_is_link:
        link.symlink_to(blob)
    compat_numpy.save_file({"a": np.ones(3)}, link)
    assert os.listdir(link.parent) == [link.name]
    same(compat_numpy.load_file(link), {"a": np.ones(3)})


@pytest.fixture
def listed(monkeypatch):
    """The folders that are listed; each is forgotten to begin with."""
    monkeypatch.setattr(_link, "_clean", {})
    found, listdir = [], os.listdir

    def note(folder="."):
        found.append(os.fspath(folder))
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", note)
    return found


@_lists_folders
def test_a_hundred_saves_into_a_folder_list_it_once(tmp_path, listed, monkeypatch):
    for i in range(100):
        compat_numpy.save_file({"a": np.ones(3)}, tmp_path / f"{i}.safetensors")
    monkeypatch.chdir(tmp_path)
    compat_numpy.save_file({"a": np.ones(3)}, "0.safetensors")
    assert listed == [str(tmp_path)]


@_lists_folders
def test_a_folder_is_listed_again_after_a_minute(tmp_path, listed, monkeypatch):
    now = [1e6]
    monkeypatch.setattr(_link.time, "monotonic", lambda: now[0])
    left = tmp_path / ".m.st-link-0123456789abcdef"
    compat_numpy.save_file({"a": np.ones(3)}, tmp_path / "m")
    left.touch()
    now[0] += 59
    compat_numpy.save_file({"a": np.ones(3)}, tmp_path / "m")
    assert left.exists() and len(listed) == 1
    now[0] += 1
    compat_numpy.save_file({"a": np.ones(3)}, tmp_path / "m")
    assert not left.exists() and len(listed) == 2


@_lists_folders
def test_a_folder_in_which_something_was_left_is_listed_each_time(tmp_path, listed):
    (tmp_path / ".other.st-link-0123456789abcdef").touch()
    for _ in range(3):
        compat_numpy.save_file({"a": np.ones(3)}, tmp_path / "m")
    assert len(listed) == 3


@_lists_folders
def test_what_was_left_over_a_link_goes_though_the_folder_was_listed_just_now(cached, listed):
    link, blob = cached
    compat_numpy.save_file({"a": np.ones(3)}, link.parent / "other")
    left = link.parent / f".{link.name}.st-link-0123456789abcdef"
    left.touch()
    compat_numpy.save_file({"a": np.ones(3)}, link)
    assert not left.exists() and len(listed) == 2


@_lists_folders
def test_only_so_many_folders_are_remembered(tmp_path, listed, monkeypatch):
    monkeypatch.setattr(_link, "_MOST_CLEAN", 3)
    for name in (*"abcd", *"dcba"):
        (tmp_path / name).mkdir(exist_ok=True)
        compat_numpy.save_file({"a": np.ones(3)}, tmp_path / name / "m")
    assert [os.path.basename(folder) for folder in listed] == [*"abcda"] and len(_link._clean) == 3


def test_what_a_living_thread_makes_over_a_link_stays(cached, monkeypatch):
    link, _ = cached
    rename, beside = os.replace, []

    def replace(source, target):
        monkeypatch.setattr(os, "replace", rename)
        compat_numpy.save_file({"a": np.zeros(3)}, link)  # another save meanwhile: it sweeps
        compat_numpy.save_file({"a": np.zeros(3)}, link)
        beside.extend(os.listdir(link.parent))
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace)
    compat_numpy.save_file({"a": np.ones(3)}, link)
    assert len(beside) == 3
    assert os.listdir(link.parent) == [link.name]
    same(compat_numpy.load_file(link), {"a": np.ones(3)})


_known_by_its_lock = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a dead process by its lock")


@_known_by_its_lock
def test_what_a_thread_is_about_to_lock_is_not_removed_once_it_has(cached, monkeypatch):
    """A sweep takes the guard for a dead one's, and stops before it removes that."""
    link, _ = cached
    lock, remove, rename, beside = _link._lock, _link._remove, os.replace, []
    removes, renames = threading.Event(), threading.Event()

    def sweep():
        _link.sweep(str(link), True)
        removes.set()

    sweeper = threading.Thread(target=sweep)

    def lock_late(file):
        if threading.current_thread() is not sweeper and not sweeper.ident:
            sweeper.start()
            assert removes.wait(30)
        return lock(file)

    def remove_late(folder, name):
        if threading.current_thread() is sweeper:
            removes.set()
            renames.wait(30)
        remove(folder, name)

    def replace(source, target):
        renames.set()
        sweeper.join()
        beside.extend(os.listdir(link.parent))
        rename(source, target)

    monkeypatch.setattr(_link, "_lock", lock_late)
    monkeypatch.setattr(_link, "_remove", remove_late)
    monkeypatch.setattr(os, "replace", replace)
    compat_numpy.save_file({"a": np.ones(3)}, link)
    (new,) = [name for name in beside if name.endswith(".new")]
    assert sorted(beside) == sorted([new.removesuffix(".new"), new, link.name])
    assert os.listdir(link.parent) == [link.name]


@_known_by_its_lock
@pytest.mark.parametrize("refusal", [errno.ENOLCK, errno.EACCES])
def test_a_link_is_replaced_where_there_are_no_locks(refusal, cached, monkeypatch):
    """The filesystem has none, or AppArmor allows none. Whether somebody has one may be asked."""
    link, _ = cached
    ask = pytest.importorskip("fcntl").fcntl

    def refuse(file, command, argument):
        if command == _link._F_OFD_GETLK:
            return ask(file, command, argument)
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr("fcntl.fcntl", refuse)
    left = f".{link.name}.st-link-0123456789abcdef"
    (link.parent / left).touch()
    compat_numpy.save_file({"a": np.ones(3)}, link)
    assert sorted(os.listdir(link.parent)) == [left, link.name]


@_known_by_its_lock
def test_leftovers_over_a_link_go_where_python_names_no_such_lock(cached, monkeypatch):
    link, _ = cached
    monkeypatch.delattr("fcntl.F_OFD_SETLK", raising=False)
    (link.parent / f".{link.name}.st-link-0123456789abcdef").touch()
    compat_numpy.save_file({"a": np.ones(3)}, link)
    assert os.listdir(link.parent) == [link.name]


def test_what_a_living_save_makes_at_a_name_with_a_dot_stays(tmp_path, monkeypatch):
    """Its names are those of `m` with one dot more, as is the temporary of libst.save."""
    (tmp_path / ".m").symlink_to("nowhere")
    rename, beside = os.replace, []

    def replace(source, target):
        monkeypatch.setattr(os, "replace", rename)
        before = set(os.listdir(tmp_path))
        compat_numpy.save_file({"a": np.zeros(3)}, tmp_path / "m")
        beside.extend(before - set(os.listdir(tmp_path)))
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace)
    compat_numpy.save_file({"a": np.ones(3)}, tmp_path / ".m")
    assert not beside
    assert sorted(os.listdir(tmp_path)) == [".m", "m"]


@_known_by_its_lock
def test_the_error_of_a_save_over_a_link_is_told_where_nothing_can_be_removed(cached, monkeypatch):
    link, _ = cached

    def replace(source, target):
        raise KeyboardInterrupt

    def unlink(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as failing:
        failing.setattr(os, "replace", replace)
        failing.setattr(os, "unlink", unlink)
        with pytest.raises(KeyboardInterrupt):
            compat_numpy.save_file({"a": np.zeros(3)}, link)
    assert len(os.listdir(link.parent)) == 3
    compat_numpy.save_file({"a": np.ones(3)}, link)  # which finds no lock any more
    assert os.listdir(link.parent) == [link.name]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no FIFO")
def test_what_only_looks_like_a_file_left_over_a_link_stays(tmp_path):
    names = [".m.st-link-0123", ".m.st-link-0123456789abcdef.old", ".mm.st-link-0123456789abcdef"]
    for name in names:
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / ".m.st-link-00000000000000aa")
    compat_numpy.save_file({"a": np.ones(3)}, tmp_path / "m")
    assert sorted(os.listdir(tmp_path)) == sorted([*names, ".m.st-link-00000000000000aa", "m"])


def test_a_link_in_a_folder_that_takes_no_file_is_an_error(tmp_path):
    """What a descriptor has open lies behind such a link."""
    with open(tmp_path / "a", "wb") as opened:
        for folder in ("/dev/fd", "/proc/self/fd"):
            with pytest.raises(compat.SafetensorError):
                compat_numpy.save_file({"a": np.ones(3)}, f"{folder}/{opened.fileno()}")
    assert os.listdir(tmp_path) == ["a"]


CHANGING = {
    "save": lambda path: libst.save(path, TENSORS),
    "writer": lambda path: libst.writer(path).abort(),
    "open": lambda path: libst.open(path, "r+").close(),
    "compact": lambda path: libst.compact(path),
    "patch": lambda path: libst.patch(path, "/nowhere"),
}


@pytest.mark.parametrize("change", CHANGING.values(), ids=CHANGING)
def test_who_changes_a_blob_of_the_hubs_cache_is_warned(cached, tmp_path, change):
    link, blob = cached
    for path in (link, blob):
        with pytest.warns(UserWarning, match=blob.name) as warned:
            outcome(change, path)
        assert warned[0].filename == __file__
    elsewhere = tmp_path / "link"
    elsewhere.symlink_to(tmp_path / "plain")
    libst.save(tmp_path / "plain", TENSORS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome(change, elsewhere)
        libst.open(link).close()
        compat_numpy.save_file(TENSORS, link)


@pytest.mark.parametrize("change", [CHANGING[name] for name in ("open", "compact", "patch")])
@pytest.mark.parametrize("given", ["", "model.safetensors.index.json"], ids=["folder", "index"])
def test_who_changes_shards_of_the_hubs_cache_is_warned_once(tmp_path, monkeypatch, change, given):
    """Shards that are links to blobs: also beside an index that is none."""
    snapshot, blobs = tmp_path / "snapshots" / "main", tmp_path / "blobs"
    snapshot.parent.mkdir()
    libst.save(tmp_path / "one", TENSORS)
    libst.reshard(tmp_path / "one", snapshot, 64)
    blobs.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        libst.open(snapshot / given, "r+").close()
    for number, shard in enumerate(sorted(snapshot.glob("*.safetensors"))):
        shard.rename(blobs / f"{number:064}")
        shard.symlink_to(f"../../blobs/{number:064}")
    monkeypatch.chdir(snapshot)
    for path in (snapshot / given, given or "."):
        with pytest.warns(UserWarning, match="/blobs/0{64}'") as warned:
            outcome(change, path)
        assert [warning.filename for warning in warned] == [__file__]


def threads_that_prefetch():
    return [thread for thread in threading.enumerate() if thread.name.startswith("libst-prefetch")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_loader_of_the_parent_is_refused_in_a_forked_child():
    goes_on = threading.Event()
    loader = compat.PrefetchLoader({"first": lambda: 1, "a": lambda: goes_on.wait(60)}, 1)
    begun = iter(loader)
    assert next(begun) == ("first", 1)
    child = os.fork()
    if not child:
        signal.alarm(60)  # ends it where it hangs
        refused = 0
        for use in (lambda: loader.take("a"), lambda: next(iter(loader)), lambda: next(begun)):
            try:
                use()
            except compat.SafetensorError as error:
                refused += "belongs to its process" in str(error)
        os._exit(refused)
    status = os.waitpid(child, 0)[1]
    goes_on.set()
    assert os.waitstatus_to_exitcode(status) == 3
    assert next(begun) == ("a", True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("has_id_of_parent", [True, False])  # as the first process of a container in a container has
def test_a_forked_child_lets_go_of_a_loader_while_a_thread_of_the_parent_holds_its_locks(
    is_closed, has_id_of_parent, monkeypatch
):
    if has_id_of_parent:
        monkeypatch.setattr(os, "getpid", lambda: 1)
    goes_on, is_held = threading.Event(), threading.Event()
    loader = compat.PrefetchLoader({"first": lambda: goes_on.wait(60), "a": lambda: 7}, 1)

    def hold(of_loader, of_tensor):
        with of_loader, of_tensor:
            is_held.set()
            goes_on.wait(60)

    holder = threading.Thread(target=hold, args=(loader._lock, loader._waiting["a"]._condition))
    holder.start()
    assert is_held.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(20)  # ends it where it hangs
        if is_closed:
            loader.close()
        del loader
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    goes_on.set()
    holder.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert loader.take("a") == 7


def test_a_loader_takes_no_number_of_threads_for_the_usual():
    with compat.PrefetchLoader({"a": lambda: 1, "b": lambda: 2}, None) as loader:
        assert dict(loader) == {"a": 1, "b": 2}


def test_a_loader_reads_by_the_threads_that_can_be_started(monkeypatch):
    started, start = [], threading.Thread.start

    def first_alone(thread):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", first_alone)
    with compat.PrefetchLoader({"a": lambda: 1, "b": lambda: 2}, 2) as loader:
        assert dict(loader) == {"a": 1, "b": 2}


def test_a_loader_that_is_dropped_reads_no_further():
    begun, goes_on, read = threading.Event(), threading.Event(), []

    def first():
        begun.set()
        goes_on.wait(60)
        read.append("a")

    reads = {"a": first, "b": lambda: read.append("b"), "c": lambda: read.append("c")}
    loader = compat.PrefetchLoader(reads, 1)
    assert begun.wait(60)
    del loader
    (thread,) = threads_that_prefetch()
    goes_on.set()
    thread.join()
    assert read == ["a"]


# The first read waits for the second, which comes after it: it ends when that is given up.
_ENDING = """
import threading
from libst import compat
made, begun = threading.Event(), threading.Event()

def first():
    made.wait()
    begun.set()
    try:
        loader.take("b")
    except compat.SafetensorError as error:
        print(error)

loader = compat.PrefetchLoader({"a": first, "b": lambda: 1}, 1)
made.set()
begun.wait()
"""


def test_a_process_ends_without_reading_what_is_left():
    said = subprocess.run([sys.executable, "-c", _ENDING], check=True, capture_output=True, text=True, timeout=60)
    assert (said.stdout, said.stderr) == ("b: prefetch loader closed\n", "")


def test_readers_have_ended_before_the_handlers_of_exit_run():
    """Also those that were registered later, which may end what a read uses."""
    code = f"{_ENDING}import atexit; atexit.register(lambda: print(loader._threads[0].is_alive()))"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert (said.stdout, said.stderr) == ("b: prefetch loader closed\nFalse\n", "")


# The first read goes on when the main thread has ended, or when the second is given up.
_OUTLIVING = """
import threading
goes_on = threading.Event()
threading._register_atexit(goes_on.set)  # runs after what is registered later
from libst import compat
loader = compat.PrefetchLoader({"a": goes_on.wait, "b": lambda: 1}, 1)
loader._waiting["b"].add_done_callback(lambda _: goes_on.set())

def consume():
    goes_on.wait()
    print(loader.take("a"), loader.take("b"))

threading.Thread(target=consume).start()
"""


@pytest.mark.skipif(not hasattr(threading, "_register_atexit"), reason="another Python")
def test_a_thread_that_outlives_the_main_one_gets_its_tensors():
    said = subprocess.run([sys.executable, "-c", _OUTLIVING], check=True, capture_output=True, text=True, timeout=60)
    assert (said.stdout, said.stderr) == ("True 1\n", "")


@pytest.mark.parametrize("waits", [lambda loader: loader.take("b"), dict], ids=["take", "iterate"])
def test_who_waits_for_a_tensor_while_its_loader_is_closed_goes_on(monkeypatch, waits):
    begun, goes_on, asked, given_up = (threading.Event() for _ in range(4))
    said = []

    def first():
        begun.set()
        goes_on.wait(60)

    def is_waiting(wait):
        def waiting(*args, **kwargs):
            asked.set()
            return wait(*args, **kwargs)

        return waiting

    def close():
        loader.close()
        said.append("closed")

    monkeypatch.setattr(_prefetch.Future, "result", is_waiting(_prefetch.Future.result))
    monkeypatch.setattr(_prefetch, "as_completed", is_waiting(_prefetch.as_completed))
    loader = compat.PrefetchLoader({"a": first, "b": lambda: 7}, 1)
    assert begun.wait(60)
    loader._waiting["b"].add_done_callback(lambda _: given_up.set())
    waiter = threading.Thread(target=lambda: said.append(outcome(waits, loader)), daemon=True)
    waiter.start()
    assert asked.wait(60)
    closer = threading.Thread(target=close, daemon=True)
    closer.start()
    assert given_up.wait(60)
    goes_on.set()
    closer.join(60)
    waiter.join(60)
    assert not waiter.is_alive() and not closer.is_alive()
    gave = {} if waits is dict else ("SafetensorError", "b: prefetch loader closed")
    assert sorted(map(str, said)) == sorted(["closed", str(gave)])


def descriptors_of(path):
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{fd}") == str(path)]


@pytest.fixture
def cold(tmp_path, monkeypatch):
    """A file that is to be read ahead."""
    if not hasattr(os, "RWF_NOWAIT"):
        pytest.skip("nothing is read ahead here")
    path = tmp_path / "cold"
    path.touch()
    os.truncate(path, 64 << 20)
    monkeypatch.setattr(_ahead, "_is_cold", lambda *_: True)
    return path


@pytest.mark.parametrize("follows", [True, False])
def test_a_forked_child_keeps_no_file_that_its_parent_reads_ahead(cold, monkeypatch, follows):
    """While each thread has a piece of it in work, and others wait for their turn."""
    begun, goes_on = threading.Semaphore(0), threading.Event()

    def work(*_):
        begun.release()
        goes_on.wait(60)
        return 0

    monkeypatch.setattr(_ahead, "_is_read_far_ahead", lambda _: follows)
    monkeypatch.setattr(_ahead, "_populates", True)
    monkeypatch.setattr(_ahead, "_madvise", work)
    monkeypatch.setattr(os, "preadv", work)
    assert _ahead.read_ahead(str(cold), os.path.getsize(cold), _ahead.Wanted())
    assert all(begun.acquire(timeout=60) for _ in range(_ahead._FOLLOWERS if follows else _ahead._READERS))
    assert descriptors_of(cold)
    child = os.fork()
    if not child:
        os._exit(len(descriptors_of(cold)))
    status = os.waitpid(child, 0)[1]
    goes_on.set()
    for thread in threading.enumerate():
        if thread.name == _ahead.NAME:
            thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert not descriptors_of(cold)


def test_a_file_that_no_thread_can_read_ahead_is_let_go(cold, monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_ahead, "_readers", _ahead._Threads(4))
    monkeypatch.setattr(_ahead, "_is_read_far_ahead", lambda _: False)
    monkeypatch.setattr(threading.Thread, "start", start)
    assert _ahead.read_ahead(str(cold), os.path.getsize(cold), _ahead.Wanted())
    assert not descriptors_of(cold)


class PaddleTensor(np.ndarray):
    device = "cpu"

    def to(self, device):
        moved = self.copy()
        moved.device = device
        return moved


class Paddle:
    """As much of paddle as takes tensors: its to_tensor refuses what numpy itself has not."""

    __version__ = "3.0.0"
    float8_e4m3fn, bfloat16 = "paddle.float8_e4m3fn", "paddle.bfloat16"

    class base:
        class core:
            @staticmethod
            def frombuffer(data, dtype):
                kind = getattr(ml_dtypes, dtype.removeprefix("paddle."))
                return np.frombuffer(memoryview(data).cast("B"), kind).view(PaddleTensor)

    @staticmethod
    def to_tensor(array):
        memoryview(array)  # ValueError of the types of ml_dtypes
        return array.view(PaddleTensor)


def test_paddle_gets_types_that_numpy_has_not(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "paddle", Paddle)
    kinds = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float32, np.bool_]
    arrays = {np.dtype(kind).name: np.arange(6).reshape(2, 3).astype(kind) for kind in kinds}
    arrays["scalar"] = np.array(2, ml_dtypes.bfloat16)
    compat_numpy.save_file(arrays, tmp_path / "file")
    with compat.safe_open(tmp_path / "file", "paddle") as f:
        same(f.get_tensors(), arrays)
        same({name: f.get_tensor(name) for name in f.keys()}, arrays)
        assert f.get_slice("bfloat16")[1].tolist() == [3, 4, 5]


# Paddle calls a GPU by another name, as stock's sources say.
@pytest.mark.parametrize(
    ("device", "called"), [("cuda:1", "gpu:1"), ("cuda", "gpu:0"), ("xpu:+2", "xpu:2"), ("mps:0", "mps"), (3, 3)]
)
def test_tensors_of_paddle_go_to_their_device(tmp_path, monkeypatch, device, called):
    monkeypatch.setitem(sys.modules, "paddle", Paddle)
    arrays = {"a": np.ones(3, ml_dtypes.bfloat16), "b": np.ones((2, 2), np.float32), "empty": np.ones(0)}
    compat_numpy.save_file(arrays, tmp_path / "file")
    with compat.safe_open(tmp_path / "file", "paddle", device) as f:
        moved = f.get_tensors()
        parts = [f.get_tensor("a"), f.get_slice("b")[1:]]
    assert [tensor.device for tensor in (*moved.values(), *parts)] == [called] * 5
    same(moved, arrays)


def test_a_transposed_array_is_written_as_it_reads():
    """Stock writes its bytes in the order of memory, which load as another array."""
    w = np.arange(6.0).reshape(2, 3).T
    assert np.array_equal(safetensors.numpy.load(compat_numpy.save({"w": w}))["w"], w)


def test_packed_tensors_are_bytes(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(raw_file([("a", "F4", [2, 3], b"abc"), ("b", "F6_E2M3", [4], b"def")]))
    for arrays in (compat_numpy.load_file(path), compat_numpy.load(path.read_bytes())):
        assert {name: array.tobytes() for name, array in arrays.items()} == {"a": b"abc", "b": b"def"}


PROGRAM = """
import json, multiprocessing, sys
import safetensors
from safetensors import safe_open, SafetensorError
from safetensors.numpy import load_file, save_file
import safetensors.numpy as module

def kind(path):
    return safe_open.__module__, float(load_file(path)["b"].sum())

if __name__ == "__main__":
    with safe_open(sys.argv[1], "np") as f:
        keys = f.keys()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        child = pool.apply(kind, (sys.argv[1],))
    here = kind(sys.argv[1])
    print(json.dumps([safetensors.__version__, keys, here, child, module.__name__, __name__, sys.argv[1:]]))
"""


@pytest.mark.parametrize("as_module", [False, True], ids=["file", "module"])
def test_unmodified_programs_run_on_libst_and_so_do_their_children(tmp_path, model, as_module):
    (tmp_path / "program.py").write_text(PROGRAM)
    start = ["-m", "program"] if as_module else ["program.py"]
    command = [sys.executable, "-m", "libst.compat", *start, str(model), "--more"]
    said = json.loads(subprocess.run(command, cwd=tmp_path, check=True, capture_output=True).stdout)
    libst_kind = ["libst.compat._open", float(TENSORS["b"].sum())]
    assert said == [
        "0.8.0", sorted(TENSORS), libst_kind, libst_kind, "libst.compat.numpy", "__main__", [str(model), "--more"],
    ]  # fmt: skip


def test_install_takes_the_place_of_stock_in_a_process():
    code = """
import libst.compat
libst.compat.install()
import safetensors, safetensors.numpy, safetensors._safetensors_rust, importlib.util
from safetensors import _safetensors_rust
from safetensors._safetensors_rust import SafetensorError
assert safetensors._safetensors_rust is _safetensors_rust and _safetensors_rust.safe_open is safetensors.safe_open
assert safetensors is libst.compat and SafetensorError is libst.compat.SafetensorError
assert safetensors.numpy is libst.compat.numpy and safetensors.numpy.__spec__.name == "libst.compat.numpy"
assert importlib.util.find_spec("safetensors.mlx").origin.endswith("safetensors/mlx.py")  # of stock
"""
    subprocess.run([sys.executable, "-c", code], check=True)


STOCK = Path(safetensors.__file__).parent
OURS = Path(compat.__file__).parent


def bound(path):
    """The names that a module's source defines at its top level, and those that it imports from its own package."""
    body = ast.parse(path.read_text()).body
    named = [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    targets = [node for node in body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    assigned = [
        name.id
        for node in targets
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    ]
    return {*named, *assigned, *imported(body)}


def imported(body):
    """What a module of stock takes from stock, a module of ours from ours."""
    for node in body:
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("safetensors")):
            yield from (alias.asname or alias.name for alias in node.names)


def stock_names():
    """(module, name) for every name that others may import from a module of stock, underscore or not. Modules that
    libst.compat has not stay stock's: they need what they import."""
    yield from (("_safetensors_rust", name) for name in vars(safetensors._safetensors_rust) if name[:2] != "__")
    for path in sorted(STOCK.glob("*.py")):
        replaced = (OURS / path.name).exists()
        names = bound(path) if replaced else imported(ast.parse(path.read_text()).body)
        yield from ((path.stem if replaced else "__init__", name) for name in names)


@pytest.mark.parametrize(("module", "name"), [pytest.param(*at, id=".".join(at)) for at in sorted({*stock_names()})])
def test_no_name_of_stock_is_missing(module, name):
    """By the sources, as torch and jax need not be here."""
    assert name in bound(OURS / f"{module}.py") or (OURS / f"{name}.py").exists()


def test_numpys_helpers_answer_as_stocks(model):
    assert compat_numpy._TYPES.items() >= safetensors.numpy._TYPES.items()
    for name in safetensors.numpy._TYPES:
        assert compat_numpy._getdtype(name) == safetensors.numpy._getdtype(name)
    for package, module in NUMPY.items():
        flat = module._flatten(DICTS["example"] | DICTS["big-endian"], [])
        found = {name: (spec.dtype, list(spec.shape), spec.data_len) for name, spec in flat.items()}
        assert found["a"] == ("F32", [5], 20) and found["w"] == ("F32", [2, 3, 4], 96), package
        same(module._view2np(BOTH[package].deserialize(model.read_bytes())), TENSORS)
        order = [module._is_little_endian(np.empty(1, dtype)) for dtype in ("<f4", ">f4", "=f4", "|u1")]
        assert order == [True, False, True, True]


WHO = "import safetensors, sys; print(safetensors.safe_open.__module__, __name__, sys.argv, sys.path[0])"
AGAIN = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"


@pytest.mark.parametrize(
    ("start", "stdin", "argv"),
    [(["-c", WHO], "", ["-c", "a", "-b"]), (["-"], WHO, ["-", "a", "-b"]), ([], WHO, None)],
    ids=["-c", "-", "stdin"],
)
@pytest.mark.parametrize("flags", [[], ["-E"]], ids=str)
def test_programs_start_as_python_starts_them(start, stdin, argv, flags):
    """With libst in a folder that -E does not hide, as where it is installed."""
    arguments = [] if argv is None else argv[1:]
    by_python = [sys.executable, *flags, *start, *arguments]
    stock = subprocess.run(by_python, input=stdin, text=True, check=True, capture_output=True)
    run = "runpy.run_module('libst.compat', run_name='__main__', alter_sys=True)"
    code = f"import sys, runpy; sys.path[1:1] = {sys.path!r}; sys.argv[:1] = ['-m']; {run}"
    by_libst = [sys.executable, *flags, "-c", code, *start, *arguments]
    ours = subprocess.run(by_libst, input=stdin, text=True, check=True, capture_output=True)
    assert ours.stdout == stock.stdout.replace("builtins", "libst.compat._open", 1)
    assert str(argv or [""]) in ours.stdout


TELLING = """
import atexit, os, pickle, sys, threading
class Kept: pass
me = __file__
def tell():
    import helper
    print(type(pickle.loads(pickle.dumps(Kept()))) is Kept, me, helper.__file__, sys.argv[1:], sys.path[0])
os.chdir("/")
if sys.argv[1] == "now":
    tell()
else:
    atexit.register(tell)
print(__name__, __spec__ and __spec__.name, __package__, type(__loader__).__name__)
"""


@pytest.mark.parametrize("when", ["now", "at exit"])
@pytest.mark.parametrize("what", [["program.py"], ["folder"], ["-m", "program"]], ids="-".join)
def test_a_program_may_change_its_folder(tmp_path, what, when):
    (tmp_path / "folder").mkdir()
    for program in tmp_path / "program.py", tmp_path / "folder" / "__main__.py":
        program.write_text(TELLING)
        (program.parent / "helper.py").touch()
    by_python, by_libst = (
        subprocess.run([sys.executable, *start, *what, when], cwd=tmp_path, check=True, capture_output=True, text=True)
        for start in ([], ["-m", "libst.compat"])
    )
    assert by_libst.stdout == by_python.stdout


def test_what_such_a_program_starts_gets_libst_too():
    command = [sys.executable, "-m", "libst.compat", "-c", AGAIN, WHO]
    assert subprocess.run(command, check=True, capture_output=True).stdout.startswith(b"libst.compat._open ")


_STARTING = """
import multiprocessing, os, subprocess, sys

def who(_):
    import libst, safetensors  # objects of libst may be sent
    return safetensors.safe_open.__module__

if __name__ == "__main__":
    os.chdir("/")
    subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(who, (0,)))
"""
_PATH = "import sys; before = list(sys.path); import safetensors; print(safetensors.__name__, sys.path == before)"


def without_path(*entries):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return env | ({"PYTHONPATH": os.pathsep.join(map(str, entries))} if entries else {})


def test_children_that_start_elsewhere_get_libst_from_where_their_parent_has_it(tmp_path):
    """And nothing else from there, which may be the packages of another Python."""
    (tmp_path / "program.py").write_text(_STARTING)
    command = [sys.executable, "-m", "libst.compat", tmp_path / "program.py", _PATH]
    said = subprocess.run(command, cwd=OURS.parent.parent, env=without_path(), capture_output=True, text=True)
    assert (said.stdout.split("\n"), said.stderr) == (["libst.compat True", "libst.compat._open", ""], "")


@pytest.fixture
def another(tmp_path):
    """start(code, *entries): a Python without numpy, and what it says with these on its path."""

    def start(code, *entries, flags=()):
        env = without_path(SHADOW, *entries)
        return subprocess.run([sys.executable, "-S", *flags, "-c", code], env=env, capture_output=True, text=True)

    return start


@pytest.mark.parametrize("has_libst", [False, True])
def test_a_python_that_cannot_import_libst_keeps_its_stock(tmp_path, another, has_libst):
    (tmp_path / "safetensors").mkdir()
    (tmp_path / "safetensors" / "__init__.py").write_text("from . import torch")
    (tmp_path / "safetensors" / "torch.py").touch()
    code = "import sys, safetensors.torch as torch, safetensors as s; print(s.torch is torch, s.__file__)"
    code += "; print([name for name in sys.modules if name.split('.')[0] == 'libst'])"
    said = another(code, tmp_path, *([OURS.parent.parent] if has_libst else []))
    assert said.stdout == f"True {tmp_path / 'safetensors' / '__init__.py'}\n[]\n", said.stderr
    assert said.stderr.startswith("<string>:1: RuntimeWarning: libst cannot be imported here (No module named 'numpy')")


def test_where_warnings_are_errors_such_a_python_keeps_its_stock_too(tmp_path, another):
    (tmp_path / "safetensors.py").touch()
    said = another("import safetensors; print(safetensors.__file__)", tmp_path, flags=["-W", "error"])
    assert (said.stdout, said.stderr) == (f"{tmp_path / 'safetensors.py'}\n", "")


@pytest.mark.parametrize("has", ["", "import numpy"], ids=["nothing", "part"])
def test_a_libst_that_the_program_imported_stays(tmp_path, another, has):
    """Another one, without compat, or with one that fails."""
    (tmp_path / "safetensors.py").touch()
    (tmp_path / "libst").mkdir()
    (tmp_path / "libst" / "__init__.py").touch()
    if has:
        (tmp_path / "libst" / "compat.py").write_text(has)
    code = "import sys, libst; before = libst; import safetensors; print(sys.modules['libst'] is before is libst)"
    code += "; print('libst.compat' in sys.modules, safetensors.__file__)"
    said = another(code, tmp_path)
    assert said.stdout == f"True\nFalse {tmp_path / 'safetensors.py'}\n", said.stderr
    assert "libst cannot be imported here (No module named " in said.stderr


def test_a_folder_without_libst_leaves_the_first_error(tmp_path, another):
    shutil.copytree(OURS / "_shadow", tmp_path / "a" / "b" / "c" / "_shadow")
    stock = tmp_path / "stock"
    stock.mkdir()
    (stock / "safetensors.py").touch()
    env = without_path(tmp_path / "a" / "b" / "c" / "_shadow", stock)
    command = [sys.executable, "-S", "-c", "import safetensors"]
    said = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stderr
    assert "libst cannot be imported here (No module named 'libst')" in said


def test_a_python_that_has_neither_libst_nor_stock_says_why(another):
    said = another("import safetensors").stderr
    assert "No module named 'numpy'" in said and said.endswith("No module named 'safetensors'\n")


def test_a_libst_that_is_found_by_the_folder_of_another_takes_its_place(tmp_path):
    """Without a warning, and with stock's other modules."""
    copied = shutil.copytree(OURS.parent, tmp_path / "libst")
    code = "import safetensors, importlib.util as util"
    code += "; print(safetensors.__file__, util.find_spec('safetensors.mlx').origin)"
    env = without_path(copied / "compat" / "_shadow", OURS.parent.parent)
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (said.stdout, said.stderr) == (f"{OURS / '__init__.py'} {STOCK / 'mlx.py'}\n", "")


@pytest.fixture
def installed(tmp_path):
    """start(flags, **environment): what a python says where libst is installed with its switch."""
    (tmp_path / "libst").symlink_to(OURS.parent)
    pth = OURS.parent.parent / "libst-compat.pth"
    (tmp_path / pth.name).write_text(pth.read_text())

    def start(*flags, **environment):
        code = f"import site; site.addsitedir({str(tmp_path)!r})\n{WHO}"
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
        command = [sys.executable, *flags, "-c", code]
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.split()[0]

    return start


def test_a_switch_in_the_environment_starts_any_python_on_libst(installed):
    stock = safetensors.safe_open.__module__
    assert [installed(), installed(LIBST_COMPAT="0"), installed(LIBST_COMPAT="")] == [stock] * 3
    assert [installed(LIBST_COMPAT="1"), installed("-E", LIBST_COMPAT="1")] == ["libst.compat._open"] * 2


def test_an_install_that_comes_too_late_says_so():
    late = "import safetensors, libst.compat; libst.compat.install()"
    said = subprocess.run([sys.executable, "-c", late], check=True, capture_output=True, text=True).stderr
    assert "<string>:1: RuntimeWarning: libst.compat.install() came too late" in said
    for code in (f"{late.replace('safetensors, ', '')}; import safetensors.numpy; libst.compat.install()", WHO):
        command = [sys.executable, "-W", "error", "-m", "libst.compat", "-c", code]
        subprocess.run(command, check=True)


def test_usage_is_told():
    for arguments in (["-x"], ["-m"], ["-c"]):
        said = subprocess.run([sys.executable, "-m", "libst.compat", *arguments], capture_output=True, text=True)
        assert said.returncode and "usage" in said.stderr


def test_a_program_that_is_not_there_is_told_as_python_tells_it(tmp_path):
    said = [
        subprocess.run([sys.executable, *start, "none.py"], cwd=tmp_path, capture_output=True, text=True)
        for start in ([], ["-m", "libst.compat"])
    ]
    assert said[0].returncode == said[1].returncode == 2 and said[0].stderr == said[1].stderr


def test_nothing_imports_a_framework_unasked(model):
    code = "import sys, libst, libst.compat, libst.compat.numpy; print({'torch', 'jax'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"set()\n"
