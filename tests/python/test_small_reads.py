"""Brief reads, slices and views: what the package keeps of a file, so that they cost few steps."""

import gc
import threading

import libst
import numpy as np
import pytest
from libst.compat import safe_open
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
    wrong = []

    def work(f, seed):
        order = np.random.default_rng(seed).permutation(list(tensors))
        for name in order:
            if not np.array_equal(f.read(str(name)), tensors[str(name)]):
                wrong.append(name)

    with libst.open(path) as f:
        threads = [threading.Thread(target=work, args=(f, seed)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


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
