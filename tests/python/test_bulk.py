"""Many tensors at once: load, read_many, prefetch, and what says how they are read."""

import os
import subprocess
import sys

import libst
import numpy as np
import pytest
from conftest import refused
from libst import bulk
from safetensors.numpy import save_file


@pytest.fixture
def tensors():
    rng = np.random.default_rng(7)
    kinds = [np.uint8, np.float32, np.int64, np.bool_, np.float16]
    made = {f"t{i}": rng.integers(0, 2, (i + 1, 1000 + i)).astype(kinds[i % len(kinds)]) for i in range(40)}
    made["empty"] = np.zeros((0, 3), np.float32)
    made["scalar"] = np.array(2.5, np.float64)
    made["large"] = rng.integers(0, 255, 9 << 20).astype(np.uint8)
    return made


@pytest.fixture
def path(tmp_path, tensors):
    place = tmp_path / "m.safetensors"
    save_file(tensors, place, metadata={"format": "np"})
    return place


def same(got, tensors):
    assert set(got) == set(tensors)
    for name, array in tensors.items():
        assert got[name].dtype == array.dtype and got[name].shape == array.shape, name
        assert np.array_equal(got[name], array), name


@pytest.mark.parametrize(
    "options",
    [{}, {"mapping": "none"}, {"direct": True}, {"io_threads": 5, "block_size": 1 << 16}, {"memory_limit": 1}],
)
def test_load_gives_every_tensor(path, tensors, options):
    loaded = libst.load(path, **options)
    same(loaded, tensors)
    with libst.open(path) as f:
        assert list(loaded) == list(f)


def test_loaded_arrays_are_the_callers(path, tensors):
    loaded = libst.load(path)
    os.unlink(path)
    for array in loaded.values():
        assert array.flags.writeable and array.flags.aligned
        array[...] = 0
    assert not loaded["large"].any()


def test_load_takes_names_in_any_order(path, tensors):
    loaded = libst.load(path, ["t7", "large", "t1"])
    assert list(loaded) == ["t7", "large", "t1"]
    same(loaded, {name: tensors[name] for name in loaded})


def test_numpy_has_no_device_but_the_cpu(path, tensors):
    same(libst.load(path, device="cpu"), tensors)
    with pytest.raises(ValueError, match="device='cuda' give framework=.torch."):
        libst.load(path, device="cuda")


def test_load_of_no_such_name_reads_nothing(path):
    with pytest.raises(libst.NotFoundError):
        libst.load(path, ["t1", "none such"])


def test_progress_ends_with_all_bytes(path, tensors):
    told = []
    libst.load(path, progress=lambda done, total: told.append((done, total)))
    total = sum(a.nbytes for a in tensors.values())
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_an_exception_of_progress_comes_out(path):
    def stop(done, total):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        libst.load(path, progress=stop)


def test_a_progress_bar_is_no_condition(path, tensors, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # not installed
    same(libst.load(path, progress=True), tensors)


def test_read_many_fills_what_it_is_given(path, tensors):
    with libst.open(path) as f:
        mine = np.empty_like(tensors["t3"])
        got = f.read_many({"t3": mine, "large": np.empty_like(tensors["large"])})
        assert got["t3"] is mine
        same(got, {name: tensors[name] for name in ("t3", "large")})
        assert f.stats().read_requests > 0


def test_read_many_refuses_arrays_that_do_not_fit(path):
    with libst.open(path) as f:
        with refused("DTYPE_MISMATCH"):
            f.read_many({"t3": np.empty((4, 1003), np.float64)})
        with refused("SHAPE_MISMATCH"):
            f.read_many({"large": np.empty(5, np.uint8)})
        for read in (lambda out: f.read_many({"t3": out}), lambda out: f.read("t3", out=out)):
            with pytest.raises(TypeError, match="an array of numpy's, not list"):
                read([0.0])


def test_prefetch_takes_all_some_or_a_workers_part(path, tensors):
    data = sum(a.nbytes for a in tensors.values())
    with libst.open(path, mapping="private", prefetch="sequential") as f:
        f.prefetch()
        assert f.stats().bytes_prefetched == data
        f.prefetch(["t1", "scalar"])
        assert f.stats().bytes_prefetched >= data + tensors["t1"].nbytes + 8
        with pytest.raises(libst.NotFoundError):
            f.prefetch(["none such"])
    parts = []
    for i in range(3):
        with libst.open(path, prefetch="sequential", worker=(i, 3)) as f:
            f.prefetch()
            parts.append(f.stats().bytes_prefetched)
    assert sum(parts) == data and sum(p > 0 for p in parts) >= 1


def test_without_a_mapping_prefetch_fills_memory(path, tensors):
    with libst.open(path, mapping="none") as f:
        f.prefetch()
        assert f.stats().bytes_owned == sum(a.nbytes for a in tensors.values())
        requests = f.stats().read_requests
        same({name: f[name] for name in f}, tensors)
        assert f.stats().read_requests == requests


def test_what_was_chosen_is_told(path):
    with libst.open(path, prefetch="sequential", block_size=1 << 20, direct=True) as f:
        info = f.io_info()
        assert (info.prefetch, info.io_threads, info.block_size, info.direct) == ("sequential", 1, 1 << 20, True)
        assert info.prefetch_reason.endswith("the environment)")


@pytest.mark.parametrize(
    "options",
    [{"prefetch": "some"}, {"io_threads": -1}, {"memory_limit": -1}, {"worker": (-1, 2)}, {"block_size": 2**32}],
)
def test_options_out_of_range_are_refused(path, options):
    with pytest.raises(ValueError):
        libst.open(path, **options)


def test_a_worker_counts_from_zero(path):
    with refused("INVALID_ARGUMENT"):
        libst.open(path, worker=(2, 2))


def test_the_environment_stands_in_for_options(path):
    code = f"import libst; i = libst.open({str(path)!r}).io_info(); "
    code += "print(i.prefetch, i.io_threads, i.block_size, i.direct)"
    env = {
        **os.environ,
        "ST_PREFETCH": "sequential",
        "ST_IO_THREADS": "3",
        "ST_BLOCK_SIZE": "1048576",
        "ST_DIRECT": "1",
    }
    said = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True).stdout
    assert said.split() == ["sequential", "3", "1048576", "True"]
    wrong = subprocess.run(
        [sys.executable, "-c", code], env={**env, "ST_IO_THREADS": "many"}, capture_output=True, text=True
    )
    assert wrong.returncode and "ST_IO_THREADS" in wrong.stderr


def test_a_forked_child_reads_with_a_descriptor_of_its_own(path, tensors):
    with libst.open(path) as f:
        before = f["large"]
        pid = os.fork()
        if pid == 0:
            ok = np.array_equal(f["large"], tensors["large"]) and np.array_equal(before, tensors["large"])
            os._exit(0 if ok and f.stats().reopens == 1 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert f.stats().reopens == 0


def test_neighbours_in_the_file_are_neighbours_in_memory(path):
    with libst.open(path) as f:
        infos = sorted((f.info(n) for n in f if f.info(n).nbytes), key=lambda i: i.file_offset)
        arrays = libst.load(path)
        places = [arrays[i.name].__array_interface__["data"][0] - i.file_offset for i in infos]
        assert len(set(places)) == 1
        assert places[0] % bulk._PAGE == 0


def test_one_name_is_no_list_of_names(path):
    """It would be taken letter by letter."""
    with libst.open(path) as f:
        for call in (f.read_many, f.prefetch):
            with pytest.raises(TypeError, match=r"give \['a'\]"):
                call("a")
    for options in ({"names": "a"}, {"names": "a", "mapping": "copy-on-write"}, {"deltas": "a"}):
        with pytest.raises(TypeError, match=r"give \['a'\]"):
            libst.load(path, **options)
    with pytest.raises(TypeError, match=r"give \['a'\]"):
        libst.merge(path, "a", "merged.safetensors")


def test_read_many_takes_parts(path, tensors):
    wanted = [("t7", 3), ("large", slice(5, 1000, 7)), ("t7", np.index_exp[..., ::-2]), ("scalar", ()), ("t7", -1)]
    wanted += [("large", slice(n, n + 100)) for n in range(0, 9 << 20, 99_991)]
    with libst.open(path) as f:
        got = f.read_many(wanted)
        assert len(got) == len(wanted)
        for array, (name, index) in zip(got, wanted):
            part = tensors[name][index]
            assert array.shape == part.shape and array.dtype == part.dtype, (name, index)
            assert np.array_equal(array, part)
            assert array.flags.writeable and array.flags.aligned
        told = []
        f.read_many(wanted, progress=lambda done, total: told.append((done, total)))
        assert told[-1] == (sum(array.nbytes for array in got),) * 2
        assert f.read_many([]) == {}
        for wrong, error in (
            (("none such", 0), libst.NotFoundError),
            (("t7", 8), IndexError),
            (("t7", (0, 0, 0)), IndexError),
            (("t7", [9]), IndexError),
            (("t7", [True]), TypeError),
            (("t7", slice(0, 1, 0)), ValueError),
        ):
            with pytest.raises(error):
                f.read_many([("t1", 0), wrong])


@pytest.mark.parametrize(
    "names",
    [["t1", ("t1", slice(0, 2))], ["t1", ("t1", 0)], [("t1", slice(0, 2)), "t1"], [("t1", 0), ("t1",)]],
    ids=str,
)
def test_read_many_says_what_it_takes(path, names):
    with libst.open(path) as f, pytest.raises(TypeError, match="pairs of a name and an index"):
        f.read_many(names)


def test_parts_of_packed_types_end_at_bytes(raw):
    data = bytes(range(16))
    with libst.open(raw([("t", "F4", [4, 8], data), ("u", "F6_E2M3", [4], b"abc")])) as f:
        parts = f.read_many([("t", 1), ("u", slice(None)), ("t", np.index_exp[:, 2:4])])
        assert [part.tobytes() for part in parts] == [data[4:8], b"abc", bytes([data[1], data[5], data[9], data[13]])]
        assert all(part.dtype == np.uint8 and part.ndim == 1 for part in parts)
        for cut in (np.index_exp[:, 1:3], np.index_exp[0, 0]):
            with pytest.raises(libst.FormatError) as caught:
                f.read_many([("t", 0), ("t", cut)])
            assert caught.value.status == libst.Status.SUBBYTE


def test_many_small_tensors_are_read_in_few_requests(tmp_path):
    arrays = {f"t{i}": np.full((16, 16), i, np.float32) for i in range(10_000)}
    save_file(arrays, tmp_path / "m.safetensors")
    with libst.open(tmp_path / "m.safetensors", block_size=4 << 20) as f:
        same(f.read_many(list(f)), arrays)
        assert f.stats().read_requests <= 4  # 10 MB in blocks of 4 MiB


# A dtype that its place in the file does not suit has a place of its own in memory.
def test_arrays_are_aligned_wherever_the_file_has_its_data(raw):
    tensors = [("a", "U8", [3], b"abc"), ("b", "F32", [2], bytes(range(8))), ("c", "U8", [5], b"fghij")]
    tensors += [("d", "F64", [1], bytes(8)), ("e", "U8", [0], b""), ("f", "I16", [], b"xy")]
    path = raw(tensors)
    loaded = libst.load(path)
    for name, _, shape, data in tensors:
        assert loaded[name].tobytes() == data and loaded[name].shape == tuple(shape)
        assert loaded[name].flags.aligned and loaded[name].flags.writeable


def test_shards_are_loaded_into_one_block(tmp_path):
    arrays = {f"t{i}": np.arange(i, i + 300, dtype=np.int16).reshape(3, 100) for i in range(60)}
    libst.save(tmp_path / "m.safetensors", arrays)
    libst.reshard(tmp_path / "m.safetensors", tmp_path / "shards", 7000)
    loaded = libst.load(tmp_path / "shards")
    same(loaded, arrays)
    assert len({id(array.base) for array in loaded.values()}) == 1
    with libst.open(tmp_path / "shards") as f:
        parts = f.read_many([(f"t{i}", (i % 3, slice(10, 20))) for i in range(60)])
        assert all(np.array_equal(part, arrays[f"t{i}"][i % 3, 10:20]) for i, part in enumerate(parts))
