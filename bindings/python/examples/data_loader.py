"""Samples of a data set read by eight worker processes, as a PyTorch DataLoader would have it.

    python data_loader.py dataset.safetensors [--start fork|spawn]

The parent opens the file and hands the data set to its workers. However they are started, each
has a descriptor and a mapping of its own: a file that is pickled is opened anew where it arrives, and
one that a fork handed on reopens itself. With torch, give `Samples` to a DataLoader as it is.
"""

import argparse
import multiprocessing
from pathlib import Path

import libst
import numpy as np

WORKERS = 8


class Samples:
    """Tensors of one file by number."""

    def __init__(self, path: Path) -> None:
        self.file = libst.open(path)
        self.names = list(self.file)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.file.read(self.names[index])


def start(samples: Samples) -> None:
    global dataset
    dataset = samples


def mean(index: int) -> float:
    return float(dataset[index].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--start", choices=["fork", "spawn"], default="spawn")
    options = parser.parse_args()
    samples = Samples(options.path)
    context = multiprocessing.get_context(options.start)
    with context.Pool(WORKERS, start, (samples,)) as pool:
        means = pool.map(mean, range(len(samples)), chunksize=1)
    print(f"{len(means)} samples, mean {np.mean(means):.6f}")


if __name__ == "__main__":
    main()
