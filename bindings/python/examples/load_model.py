"""Load a model of many shards into its parameters, as transformers and diffusers do.

    python load_model.py folder

The folder holds `model.safetensors.index.json`, whose `weight_map` says which shard has which
tensor. Each shard is read once, in the order of the file, straight into the arrays that are the parameters.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

import libst
import numpy as np

Model = dict[str, np.ndarray]


def parameters(folder: Path) -> Model:
    """What a framework would have made by now: an array of the right form for each tensor, not filled yet."""
    model: Model = {}
    for shard in shards(folder):
        with libst.open(folder / shard) as file:
            model.update({name: np.empty_like(file[name]) for name in file})  # reads no data
    return model


def shards(folder: Path) -> dict[str, list[str]]:
    """Which names are in which shard."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    names = defaultdict(list)
    for name, shard in index["weight_map"].items():
        names[shard].append(name)
    return names


def load_into(model: Model, folder: Path) -> None:
    """Fill a model; KeyError for a tensor that it, or a shard, has not."""
    for shard, names in shards(folder).items():
        with libst.open(folder / shard) as file:
            file.read_many({name: model[name] for name in names})


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python load_model.py folder")
    folder = Path(sys.argv[1])
    model = parameters(folder)
    load_into(model, folder)
    print(f"{len(model)} tensors, {sum(array.nbytes for array in model.values())} bytes")


if __name__ == "__main__":
    main()
