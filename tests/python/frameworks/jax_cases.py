"""Arrays of jax as views of files, and libst.compat.flax against safetensors.flax."""

import gc

import jax
import libst
import libst.compat.flax as compat
import ml_dtypes
import numpy as np
import pytest
import safetensors.flax as stock
from conftest import is_mapped

TENSORS = {
    "f32": np.arange(1024, dtype=np.float32).reshape(32, 32),
    "bf16": np.arange(64).astype(ml_dtypes.bfloat16),
    "f8": np.arange(64).astype(ml_dtypes.float8_e4m3fn),
    "i8": np.arange(64, dtype=np.int8),
    "odd": np.arange(7, dtype=np.float16),
    "rest": np.arange(15, dtype=np.float32),
    "empty": np.empty((0, 3), np.float32),
    "scalar": np.array(2.5, np.float32),
}


@pytest.fixture
def path(tmp_path):
    libst.save(tmp_path / "model.safetensors", TENSORS)
    return tmp_path / "model.safetensors"


def test_views_are_of_the_file_and_keep_it(path):
    with libst.open(path) as f:
        arrays = {name: f.jax(name) for name in f}
        aligned = [name for name in f if f[name].size and f.info(name).file_offset % 64 == 0]
        assert {"f32", "bf16"} <= set(aligned)
        for name in aligned:
            assert arrays[name].unsafe_buffer_pointer() == f[name].__array_interface__["data"][0], name
    gc.collect()
    for name, array in arrays.items():
        assert array.dtype == TENSORS[name].dtype and np.array_equal(np.asarray(array), TENSORS[name]), name
    assert is_mapped(path)
    del array, arrays
    gc.collect()
    assert not is_mapped(path)


def test_whole_files_load_into_jax(path):
    arrays = libst.load(path, framework="jax", device=jax.devices("cpu")[0])
    assert all(isinstance(array, jax.Array) for array in arrays.values())
    assert all(np.array_equal(np.asarray(arrays[name]), array) for name, array in TENSORS.items())


def test_arrays_that_were_read_speak_dlpack(path):
    """Views are read-only, which DLPack as jax and older torch speak it cannot say."""
    with libst.open(path) as f:
        array = f.read("f32")
        assert np.array_equal(np.asarray(jax.dlpack.from_dlpack(array)), TENSORS["f32"])
        with pytest.raises(BufferError):
            jax.dlpack.from_dlpack(f["f32"])


def test_flax_files_are_those_of_stock(tmp_path):
    arrays = {name: jax.numpy.asarray(array) for name, array in TENSORS.items() if name != "f8"}
    compat.save_file(dict(arrays), tmp_path / "libst", {"a": "b"})
    stock.save_file(dict(arrays), tmp_path / "stock", {"a": "b"})
    data = (tmp_path / "stock").read_bytes()
    assert (tmp_path / "libst").read_bytes() == data == compat.save(dict(arrays), {"a": "b"})
    for loaded in (compat.load_file(tmp_path / "stock"), compat.load(data), stock.load_file(tmp_path / "libst")):
        assert set(loaded) == set(arrays)
        for name, array in loaded.items():
            assert isinstance(array, jax.Array) and array.dtype == arrays[name].dtype
            assert np.array_equal(np.asarray(array), TENSORS[name])


def test_saving_leaves_the_dict_as_it_was(tmp_path):
    arrays = {"a": jax.numpy.ones(3)}
    compat.save_file(arrays, tmp_path / "file")
    assert isinstance(arrays["a"], jax.Array)


def test_helpers_that_others_import_answer_as_stocks():
    arrays = {"f32": TENSORS["f32"], "bf16": TENSORS["bf16"]}
    for package in (stock, compat):
        on = package._np2jnp(dict(arrays))
        assert all(isinstance(array, jax.Array) for array in on.values())
        back = package._jnp2np(on)
        assert all(np.array_equal(back[name], array) for name, array in arrays.items())
