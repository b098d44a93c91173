"""Brief reads, slices and views: what the package keeps of a file, so that they cost few steps."""

import gc
import json
import mmap
import os
import pickle
import struct
import subprocess
import sys

import libst
import numpy as np
import pytest
from conftest import at_once
from libst import _pin, bulk, compat, slices
from libst.compat import _copies, safe_open
from libst.compat import numpy as compat_numpy
from safetensors.numpy import save_file


@pytest.fixture
def tensors():
    rng = np.random.default_rng(3)
    shapes = [(), (0,), (1,), (3, 0, 2), (2, 3, 4, 5), (7,), (1, 1, 1, 1, 1, 1, 1, 9), (16, 16)]
    made = {f"t{i}": rng.integers(0, 99, shapes[i % len(shapes)]).astype(np.int32) for i in range(60)}
    made["é" * 300] = np.arange(5, dtype=np.float64)
    made["with\0nul"] = np.arange(6, dtype=np.uint8)
    made["y"] = np.array(7, np.uint8)  # whose shape of no numbers lies where the next begins, which is the last
    made["z"] = np.zeros((5, 0, 2), np.uint8)
    made["long"] = rng.integers(0, 255, 200_000).astype(np.uint8)
    return made


@pytest.fixture
def path(tmp_path, tensors):
    place = tmp_path / "m.safetensors"
    save_file(tensors, place)
    return place


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("mapping", ["auto", "none"])
def test_every_tensor_is_read_whether_names_were_listed_or_not(path, tensors, listed, mapping):
    with libst.open(path, mapping=mapping) as f:
        if listed:
            assert set(f) == set(tensors) and list(f) == list(f)
        for _ in range(2):
            for name, array in tensors.items():
                for got in (f.read(name), f[name], f.read(name, np.empty_like(array))):
                    assert got.dtype == array.dtype and got.shape == array.shape, name
                    assert np.array_equal(got, array), name
        for missing in ("t", "t600", "", "with"):
            with pytest.raises(KeyError):
                f.read(missing)
            with pytest.raises(KeyError):
                f[missing]


def test_names_that_were_kept_are_those_of_the_state(path, tensors):
    with libst.open(path, "r+") as f:
        before = list(f)
        first = f.read("t7")
        with f.transaction() as t:
            t.put("added", np.ones((2, 2), np.float32))
            t.delete("t7")
            t.update("t5", f["t5"] + 1)
        assert set(f) == set(before) - {"t7"} | {"added"}
        assert np.array_equal(f.read("added"), np.ones((2, 2), np.float32))
        with pytest.raises(KeyError):
            f.read("t7")
        assert np.array_equal(first, tensors["t7"])


def test_a_list_of_names_is_the_callers(path, tensors):
    with libst.open(path) as f:
        names = list(f)
        names.clear()
        assert set(f) == set(tensors) and len(list(iter(f))) == len(tensors)


def test_slices_of_every_bound_are_numpys(path, tensors):
    whole = tensors["long"]
    with libst.open(path) as f:
        part = f.slice("long")
        for start in (None, 0, 1, 70_000, 199_999, 200_000, 200_001, -1, -200_001, True, np.int64(9)):
            for stop in (None, 0, 1, 70_000, 199_999, 200_000, 300_000, -1, -200_001, np.int64(9)):
                assert np.array_equal(part[start:stop], whole[start:stop]), (start, stop)


def test_a_file_that_was_truncated_is_an_error_and_no_signal(path):
    with libst.open(path) as f:
        rows, name = f.slice("long"), "long"
        f.read("t5")
        path.write_bytes(path.read_bytes()[:5000])
        for read in (lambda: f.read(name), lambda: rows[199_000:], lambda: rows[:100_000]):
            with pytest.raises(libst.StorageError) as caught:
                read()
            assert caught.value.status == libst.Status.FILE_CHANGED


def test_many_threads_read_at_once(path, tensors):
    with libst.open(path) as f:

        def work(seed):
            for name in np.random.default_rng(seed).permutation(list(tensors)):
                assert np.array_equal(f.read(str(name)), tensors[str(name)]), name

        at_once(work, *range(6))


def test_shapes_of_many_tensors_leave_the_cycle_collector_alone(tmp_path):
    """It goes over all that a program has, for as long as a torch takes to import a module, once enough is made."""
    path = tmp_path / "many.safetensors"
    libst.save(path, {f"layers.{i}.weight": np.zeros((2, i % 8), np.float32) for i in range(5000)})
    began = []

    def note(phase, _):
        began.append(phase)

    with safe_open(path, "np") as f:
        names = f.keys()
        gc.collect()
        gc.callbacks.append(note)
        try:
            shapes = {name: f.get_slice(name).get_shape() == [2, int(name.split(".")[1]) % 8] for name in names}
        finally:
            gc.callbacks.remove(note)
    assert all(shapes.values()) and len(shapes) == 5000
    assert len(began) <= 2, "one collection at most"


def few_of(count, pad):
    """So many tensors, of all sorts, and the bytes of a file of them; `pad` spaces end the header."""
    shapes = [(2, 3), (), (0, 2), (5,), (70_000,), (1,), (3, 1, 2), (4,), (9,), (2, 2)]
    kinds = ["F32", "I64", "F16", "U8", "U8", "F64", "BF16", "F4", "I32", "U16"]
    numpys = {"F32": "<f4", "I64": "<i8", "F16": "<f2", "F64": "<f8", "BF16": "<u2", "I32": "<i4", "U16": "<u2"}
    made, header, content = {}, {}, b""
    rng = np.random.default_rng(count)
    for i in range(count):
        n = int(np.prod(shapes[i]))
        kind = np.dtype(numpys.get(kinds[i], "u1"))
        raw = rng.bytes(n // 2 if kinds[i] == "F4" else n * kind.itemsize)
        name = ["plain", "with\0nul", "é" * 40][i % 3] + str(i)
        begin, content = len(content), content + raw
        header[name] = {"dtype": kinds[i], "shape": list(shapes[i]), "data_offsets": [begin, len(content)]}
        made[name] = kinds[i], shapes[i], raw
    text = json.dumps(header).encode() + b" " * pad
    return made, struct.pack("<Q", len(text)) + text + content


def same_as(made, arrays):
    assert list(arrays) == list(made)
    for name, array in arrays.items():
        kind, shape, raw = made[name]
        assert array.shape == ((len(raw),) if kind == "F4" else shape) and array.tobytes() == raw, name
        assert array.flags.writeable and array.flags.c_contiguous


@pytest.mark.parametrize("pad", [0, 1, 4])
@pytest.mark.parametrize("count", range(11))
def test_a_file_of_few_tensors_loads_as_one_of_many(tmp_path, count, pad):
    made, content = few_of(count, pad)
    path = tmp_path / "few"
    path.write_bytes(content)
    same_as(made, compat_numpy.load(content))
    same_as(made, compat_numpy.load_file(path))
    same_as(made, libst.load(path))
    told = compat.deserialize(content)
    assert [name for name, _ in told] == list(made)
    for name, tensor in told:
        assert (tensor["dtype"], tuple(tensor["shape"]), bytes(tensor["data"])) == made[name]
        assert type(tensor["data"]) is bytearray and type(tensor["shape"]) is list
    with libst.open(path) as f:
        assert list(f) == list(made) == list(f)
        same_as(made, f.read_many(list(made)))
        for name, (kind, shape, _) in made.items():
            assert (f.info(name).dtype, f.info(name).shape) == (kind, shape)
    with safe_open(path, "np") as f:
        assert f.keys() == sorted(made) and f.offset_keys() == list(made)
        assert {n: tuple(f.get_slice(n).get_shape()) for n in made} == {n: shape for n, (_, shape, _) in made.items()}
        same_as(made, {name: f.get_tensor(name) for name in made})
        same_as(made, f.get_tensors())


def test_progress_is_told_of_a_file_of_few_tensors(tmp_path):
    _, content = few_of(3, 0)
    path = tmp_path / "few"
    path.write_bytes(content)
    told = []
    libst.load(path, progress=lambda *done: told.append(done))
    assert told and told[-1][0] == told[-1][1] > 0
    with pytest.raises(ZeroDivisionError):
        libst.load(path, progress=lambda *_: 1 // 0)


@pytest.fixture
def reads(monkeypatch):
    """The names of the tensors that are read, and not copied from the mapping."""
    found = []

    def noted(read):
        def note(handle, raw, *rest):
            found.append(raw.decode())
            return read(handle, raw, *rest)

        return note

    for module in (bulk, _pin):
        monkeypatch.setattr(module, "_brief_read", noted(module._brief_read))
    monkeypatch.setattr(bulk._abi, "st_read", noted(bulk._abi.st_read))
    monkeypatch.setattr(slices, "_brief_read", noted(slices._brief_read))
    monkeypatch.setattr(bulk._abi, "st_read_slice", noted(bulk._abi.st_read_slice))
    return found


SIZES = [0, 1, 4096, 4097, 16 << 10, 64 << 10, (64 << 10) + 4, 256 << 10, (256 << 10) + 1, 3 << 20]


@pytest.fixture
def sized_file(tmp_path):
    made = {f"t{i}": np.random.default_rng(i).integers(0, 255, n).astype(np.uint8) for i, n in enumerate(SIZES)}
    place = tmp_path / "sized.safetensors"
    save_file(made, place)
    return place, made


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("local", [True, False])
def test_what_is_in_memory_is_copied_from_the_mapping_and_the_rest_is_read(sized_file, reads, monkeypatch, warm, local):
    path, made = sized_file
    monkeypatch.setattr(_copies, "_is_told", lambda _: True)
    monkeypatch.setattr(_copies, "_is_resident", lambda *_: warm)
    with safe_open(path, "np") as f:
        if f._copies is None:
            pytest.skip("nothing is mapped here")
        f._copies._local = local
        most = 4096 if not local else 256 << 10 if warm else 16 << 10
        for _ in range(_pin._SOME):  # the first is read, if it is brief, and longer ones of the first few
            f.get_tensor("t1")
        reads.clear()
        for _ in range(6):
            for name, array in made.items():
                got = f.get_tensor(name)
                assert np.array_equal(got, array) and got.flags.writeable and got.flags.owndata
        assert sorted(set(reads)) == [name for name, array in made.items() if array.nbytes > most]
        reads.clear()
        for name, array in made.items():
            part = f.get_slice(name)[:] if array.size else array
            assert np.array_equal(part, array) and part.flags.writeable
        most = 16 << 20 if local and warm else most
        assert sorted(set(reads)) == [name for name, array in made.items() if array.nbytes > most]


def test_whether_pages_are_in_memory_is_looked_at_now_and_then(sized_file, monkeypatch):
    path, made = sized_file
    looks = []
    monkeypatch.setattr(_copies, "_is_told", lambda _: True)
    monkeypatch.setattr(_copies, "_is_resident", lambda *place: looks.append(place) or len(looks) > 1)
    with safe_open(path, "np") as f:
        if f._copies is None:
            pytest.skip("nothing is mapped here")
        f._copies._local = True
        for _ in range(_pin._SOME + 33):
            assert np.array_equal(f.get_tensor("t5"), made["t5"])
        assert len(looks) == 3


def test_the_first_few_are_read_without_a_look(sized_file, reads, monkeypatch):
    path, made = sized_file
    looks = []
    monkeypatch.setattr(_copies, "_is_told", lambda place: looks.append(place) or True)
    with safe_open(path, "np") as f:
        if f._copies is None:
            pytest.skip("nothing is mapped here")
        f._copies._local = True
        for name in ("t1", "t2", "t3", "t5"):
            assert np.array_equal(f.get_tensor(name), made[name])
        assert not looks and reads == ["t1", "t3", "t5"]
        assert np.array_equal(f.get_tensor("t5"), made["t5"])
        assert len(looks) == 1


def test_what_is_read_once_has_one_handle(sized_file, monkeypatch):
    path, made = sized_file
    snapshots = []
    taken = _pin._abi.st_snapshot
    monkeypatch.setattr(_pin._abi, "st_snapshot", lambda *given: snapshots.append(given) or taken(*given))
    for load in (libst.load, compat_numpy.load_file):
        found = load(path)
        assert list(found) == list(made) and all(np.array_equal(found[name], made[name]) for name in made)
    with safe_open(path, "np") as f:
        assert np.array_equal(f.get_tensor("t3"), made["t3"])
    assert not snapshots
    with libst.open(path) as f:
        assert np.array_equal(f["t3"], made["t3"])
    assert len(snapshots) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("backend", ["mmap", "pread", "view"])
def test_a_forked_child_reads_by_the_one_handle_too(path, tensors, backend):
    with safe_open(path, "np", backend=backend) as f:
        part = f.get_slice("long")
        assert np.array_equal(f.get_tensor("t8"), tensors["t8"]) and np.array_equal(part[3:9], tensors["long"][3:9])
        child = os.fork()
        if not child:
            failed = 1
            try:
                same = [np.array_equal(f.get_tensor(name), array) for name, array in tensors.items()]
                failed = int(not all(same) or not np.array_equal(part[1:], tensors["long"][1:]))
            finally:
                os._exit(failed)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert all(np.array_equal(array, tensors[name]) for name, array in f.get_tensors().items())


def test_of_a_file_of_another_user_that_may_not_be_written_nothing_is_believed(sized_file, reads, monkeypatch):
    path, made = sized_file
    monkeypatch.setattr(_copies, "_is_resident", lambda *_: True)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(path).st_uid + 1)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with safe_open(path, "np") as f:
        if f._copies is None:
            pytest.skip("nothing is mapped here")
        f.get_tensor("t1")
        reads.clear()
        for _ in range(3):
            assert np.array_equal(f.get_tensor("t5"), made["t5"])
        assert len(reads) == 3


def test_a_system_without_users_and_mincore_tells_nothing(sized_file, reads, monkeypatch):
    """As Windows."""
    path, made = sized_file
    with safe_open(path, "np") as f:
        if f._copies is None:
            pytest.skip("nothing is mapped here")
        f._copies._local = True
        f.get_tensor("t1")
        reads.clear()
        with monkeypatch.context() as lacking:
            lacking.setattr(_copies, "_mincore", None)
            lacking.delattr(os, "geteuid", raising=False)
            got = f.get_tensor("t5")
        assert np.array_equal(got, made["t5"]) and reads == ["t5"]


_AS_ANOTHER = """
import os
from libst.compat import _copies
os.seteuid(1)
print(os.stat("/").st_uid, os.access("/", os.W_OK), _copies._is_told("/"))
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.skipif(os.access not in os.supports_effective_ids, reason="there is no faccessat")
def test_what_the_effective_user_may_write_counts():
    """It counts for the kernel."""
    said = subprocess.run([sys.executable, "-c", _AS_ANOTHER], check=True, capture_output=True, text=True).stdout
    if not said.startswith("0 True "):
        pytest.skip("the root folder is not one that root alone may write")
    assert said == "0 True False\n"


@pytest.mark.skipif(_copies._mincore is None, reason="there is no mincore")
def test_a_page_that_was_just_touched_is_in_memory():
    page = mmap.PAGESIZE
    with mmap.mmap(-1, 3 * page) as memory:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        first = np.frombuffer(memory, np.uint8)
        place = first.__array_interface__["data"][0]
        first[page] = 1
        assert _copies._is_resident(place, 2 * page) and _copies._is_resident(place + page, 1)
        assert not _copies._is_resident(place, 3 * page) and not _copies._is_resident(place + 2 * page, 1)
        del first
    assert not _copies._is_resident(0, 1), "nothing is there"


def test_a_copy_stands_apart_from_what_is_patched_later(sized_file):
    path, made = sized_file
    with safe_open(path, "np") as f:
        before = {name: f.get_tensor(name) for name in made}
        parts = {name: f.get_slice(name)[1:] for name in made if made[name].size > 1}
        with libst.open(path, "r+") as changed:
            for name, array in made.items():
                changed.update(name, array ^ 255)
        for name, array in made.items():
            assert np.array_equal(before[name], array)
            assert np.array_equal(parts[name], array[1:]) if name in parts else array.size <= 1
            assert np.array_equal(f.get_tensor(name), array ^ 255)


def test_threads_that_copy_at_once_get_each_its_own(sized_file):
    path, made = sized_file

    def work(f):
        for name, array in list(made.items()) * 3:
            got = f.get_tensor(name)
            assert np.array_equal(got, array), name
            got[...] = 0

    for _ in range(5):
        with safe_open(path, "np") as f:
            at_once(work, *[f] * 6)


def test_a_slice_that_copies_is_pickled(sized_file):
    path, made = sized_file
    with safe_open(path, "np") as f:
        part = f.get_slice("t5")
        part[:]
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert np.array_equal(pickle.loads(pickle.dumps(part, protocol))[7:], made["t5"][7:])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_copies_from_its_own_mapping(sized_file):
    path, made = sized_file
    with safe_open(path, "np") as f:
        for _ in range(6):
            f.get_tensor("t5")
        child = os.fork()
        if not child:
            right = all(np.array_equal(f.get_tensor(name), array) for name, array in made.items())
            os._exit(0 if right else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_a_loop_that_asks_for_a_slice_at_each_row_looks_the_tensor_up_once(path, tensors, monkeypatch):
    looked_up = []
    view = _pin.Pin.view
    monkeypatch.setattr(_pin.Pin, "view", lambda pin, name: looked_up.append(name) or view(pin, name))
    with safe_open(path, "np") as f:
        for name in ("t7", "t15", "t7"):
            for row in range(16):
                assert np.array_equal(f.get_slice(name)[row], tensors[name][row])
        assert looked_up == ["t7", "t15", "t7"]
        kept = f.get_slice("t7")
    assert np.array_equal(kept[3], tensors["t7"][3])
    with pytest.raises(compat.SafetensorError, match="File is closed"):
        f.get_slice("t7")
