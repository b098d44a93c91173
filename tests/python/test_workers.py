"""Files in other threads and processes: pickling, fork, spawn, and the GIL while libst waits."""

import copy
import ctypes
import json
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import libst
import numpy as np
import pytest
from conftest import REPOSITORY, TENSORS, refused
from libst import _abi
from libst._payload import payload
from libst._sized import sized
from locks import exclusive

EXAMPLES = REPOSITORY / "bindings" / "python" / "examples"


def test_a_pickled_file_is_opened_anew_with_its_options(model):
    with libst.open(model, "r+", mapping="private", worker=(1, 2), lock_timeout=3, io_threads=2) as f:
        with pickle.loads(pickle.dumps(f)) as g:
            assert (g.path, g.mode) == (str(model), "r+")
            assert g.io_info().mapping == "private" and g.io_info().io_threads == 2
            assert np.array_equal(g["w"], TENSORS["w"]) and not np.shares_memory(g["w"], f["w"])
            g.update("b", TENSORS["b"] + 1)
        assert np.array_equal(f.read("b"), TENSORS["b"] + 1)


def test_a_copied_file_is_another_file(model):
    f = libst.open(model)
    g = copy.copy(f)
    f.close()
    assert np.array_equal(g["w"], TENSORS["w"])


def test_a_pickled_file_is_found_from_another_folder(model, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(model.parent)
    with libst.open(model.name) as f:
        monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
        with pickle.loads(pickle.dumps(f)) as g:
            assert np.array_equal(g["w"], TENSORS["w"])


def test_callbacks_stay_where_they_are(model):
    said = []
    with libst.open(model, log=lambda level, text: said.append(text), progress=lambda done, total: None) as f:
        pickle.loads(pickle.dumps(f)).close()


def test_what_has_no_path_or_no_file_any_more_is_not_pickled(model):
    with libst.open_memory(model.read_bytes()) as f, pytest.raises(TypeError, match="memory"):
        pickle.dumps(f)
    f = libst.open(model)
    f.close()
    with pytest.raises(libst.ClosedError):
        pickle.dumps(f)
    with libst.open(model) as f:
        pickled = pickle.dumps(f)
    os.remove(model)
    with refused("NO_FILE"):
        pickle.loads(pickled)


def _sum(file, name):
    return os.getpid(), float(file[name].sum()), float(file.read(name).sum())


@pytest.fixture(scope="module")
def servers():
    """What multiprocessing starts at first use and keeps, with its pipes, until Python ends."""
    multiprocessing.resource_tracker.ensure_running()
    multiprocessing.forkserver.ensure_running()


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_workers_read_files_of_their_parent(model, start):
    with libst.open(model) as f, multiprocessing.get_context(start).Pool(2) as pool:
        for name in ("w", "b"):
            pid, viewed, read = pool.apply(_sum, (f, name))
            assert pid != os.getpid() and viewed == read == TENSORS[name].sum()


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_the_data_loader_reads_all_samples(tmp_path, start):
    samples = {f"sample.{i}": np.full((16, 16), i, np.float32) for i in range(100)}
    libst.save(tmp_path / "dataset.safetensors", samples)
    command = [sys.executable, EXAMPLES / "data_loader.py", tmp_path / "dataset.safetensors", "--start", start]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "100 samples, mean 49.500000\n"


def test_the_model_loader_fills_a_model_from_its_shards(tmp_path):
    sys.path.insert(0, str(EXAMPLES))
    try:
        import load_model
    finally:
        sys.path.remove(str(EXAMPLES))
    tensors = {f"layer.{i}.weight": np.random.default_rng(i).random((8, i + 1)) for i in range(6)}
    weight_map = {name: f"model-0000{i % 3 + 1}-of-00003.safetensors" for i, name in enumerate(tensors)}
    for shard in set(weight_map.values()):
        libst.save(tmp_path / shard, {name: tensors[name] for name in tensors if weight_map[name] == shard})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    model = load_model.parameters(tmp_path)
    load_model.load_into(model, tmp_path)
    assert set(model) == set(tensors)
    for name, array in tensors.items():
        assert np.array_equal(model[name], array)
    said = subprocess.run([sys.executable, EXAMPLES / "load_model.py", tmp_path], check=True, capture_output=True)
    assert said.stdout.startswith(b"6 tensors, ")
    said = subprocess.run([sys.executable, EXAMPLES / "load_model.py"], capture_output=True, text=True)
    assert said.returncode == 1 and said.stderr == "usage: python load_model.py folder\n"


_handles = {}  # of the module, so that nothing closes them when a worker ends


def _update_without_close(array):
    _handles["r+"].update("large", array)


def test_a_reader_removes_what_workers_left_that_closed_nothing(tmp_path, monkeypatch):
    """multiprocessing ends them by os._exit."""
    path = tmp_path / "model.safetensors"
    array = np.arange(1 << 21, dtype=np.float32)
    libst.save(path, {"large": array * 0})
    with libst.open(path, "r+") as f:
        monkeypatch.setitem(_handles, "r+", f)
        worker = multiprocessing.get_context("fork").Process(target=_update_without_close, args=(array,))
        worker.start()
        worker.join()
        assert worker.exitcode == 0
        assert os.listdir(f"{path}.st-journal")
        with libst.open(path) as g:
            assert np.array_equal(g["large"], array)
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_other_threads_run_while_one_waits_for_a_lock(model):
    """One waits in C, for as long as ten minutes and without callbacks, for a lock that only another lets go of."""
    options = sized(_abi.OpenOptions, flags=_abi.ST_OPEN_READ_WRITE, lock_timeout_ms=600_000)
    file = ctypes.c_void_p()
    assert _abi.st_open(bytes(model), options, file) == 0
    stats = sized(_abi.Stats)
    tensor, array = payload("b", TENSORS["b"] + 1)
    answer = []
    thread = threading.Thread(target=lambda: answer.append(_abi.st_update(file, b"b", 1, tensor)))
    with exclusive(model):
        thread.start()
        while not stats.lock_waits:  # it is in there
            assert thread.is_alive() and _abi.st_file_stats(file, stats) == 0
    thread.join()
    assert answer == [0]
    _abi.st_close(file)
    assert np.array_equal(libst.load(model)["b"], array)


def test_paths_may_be_of_pathlib_everywhere(tmp_path):
    path = Path(tmp_path) / "a.safetensors"
    libst.save(path, {"a": np.ones(3)})
    with libst.writer(path) as w:
        w.add("a", np.ones(3))
    libst.compact(path)
    assert libst.verify(path) == [] and libst.recover(path) == []
    assert libst.load(path)["a"].sum() == 3
    with libst.open(path) as f:
        assert f["a"].sum() == 3
