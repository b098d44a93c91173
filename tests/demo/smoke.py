"""The installed package does its main job: read a stock file, change a tensor, stock sees it.

smoke.py DIRECTORY    somewhere to write; run by tests/run.sh in an environment with only the wheel
"""

import sys
from pathlib import Path

import libst
import numpy as np
from safetensors.numpy import load_file, save_file

assert "site-packages" in libst.__file__, libst.__file__
path = Path(sys.argv[1]) / "model.safetensors"
tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, dtype=np.int64)}
save_file(tensors, path, metadata={"made by": "stock"})

with libst.open(path, "r+") as f:
    assert set(f.keys()) == {"a", "b"} and f.metadata["made by"] == "stock"
    assert (f["a"] == tensors["a"]).all()
    assert (f.slice("a")[1, :2] == tensors["a"][1, :2]).all()
    f.update("b", np.array([1, 2, 3, 4]))

seen = load_file(path)
assert (seen["b"] == [1, 2, 3, 4]).all() and (seen["a"] == tensors["a"]).all()
print(f"libst {libst.__version__} from {Path(libst.__file__).parent}: reads, slices and updates a stock file")
