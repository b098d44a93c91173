"""What safetensors 0.9 adds, against its release candidate: signatures, answers and errors that need no GPU."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import REPOSITORY
from libst.compat._install import SHADOW

NAME = "safetensors==0.9.0rc1"
FOLDER = REPOSITORY / "build" / "cache" / NAME.replace("==", "-")

ASK = """
import inspect, json, sys
import safetensors
from safetensors import safe_open
path = sys.argv[1]

def said(call):
    try:
        return repr(call())
    except AttributeError:
        return "AttributeError"
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def signature(of):
    return [(p.name, p.kind.name, str(p.default)) for p in list(inspect.signature(of).parameters.values())[1:]]

answers = {name: signature(getattr(safe_open, name)) for name in ("prefetch", "get_tensor_meta")}
answers["loader"] = {
    name: [p[:2] for p in signature(getattr(safetensors.PrefetchLoader, name))] for name in ("names", "take", "close")
}
answers["names"] = [hasattr(safetensors, name) for name in ("PrefetchLoader", "TensorMeta", "PySafeSlice")]
for backend in ("mmap", "pread"):
    with safe_open(path, "np", backend=backend) as f:
        for name in f.keys():
            meta = f.get_tensor_meta(name)
            answers[f"{backend} {name}"] = [repr(meta), meta.dtype, meta.shape, list(meta.data_offsets)]
        answers[f"{backend} none"] = said(lambda: f.get_tensor_meta("none"))
        answers[f"{backend} number"] = said(lambda: f.get_tensor_meta(3)).split(":")[0]
        answers[f"{backend} prefetch"] = said(lambda: f.prefetch())
        answers[f"{backend} frozen"] = said(lambda: setattr(meta, "dtype", "F64"))
    answers[f"{backend} closed"] = [said(lambda: f.get_tensor_meta("a")), said(lambda: f.prefetch())]
answers["slice"] = type(safe_open(path, "np").get_slice("a")).__name__
print(json.dumps(answers))
"""


def ask(folder, path):
    env = {**os.environ, "PYTHONPATH": ":".join([str(folder), *sys.path])}
    said = subprocess.run([sys.executable, "-c", ASK, path], env=env, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


@pytest.fixture(scope="module")
def stock():
    if not FOLDER.exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--target"]
        if subprocess.run([*command, FOLDER, NAME], capture_output=True).returncode:
            pytest.skip(f"{NAME} cannot be had from PyPI")
    return FOLDER


def test_what_is_new_is_as_the_release_candidate_has_it(stock, tmp_path):
    from safetensors.numpy import save_file

    tensors = {
        "a": np.arange(6, dtype="<f4").reshape(2, 3),
        "b": np.zeros(3, "u1"),
        "é": np.float16(1),
        "0": np.empty((0, 2)),
    }
    path = tmp_path / "model.safetensors"
    save_file({name: np.asarray(tensor) for name, tensor in tensors.items()}, path)
    theirs, ours = ask(stock, path), ask(SHADOW, path)
    assert ours == theirs
    assert len(ours) > 15
