"""safetensors.flax: dicts of jax arrays, to files and to bytes, and back."""

import os
from typing import Optional, Union

import jax.numpy as jnp
import numpy as np
from jax import Array

from . import numpy, safe_open


def save(tensors: dict[str, Array], metadata: Optional[dict[str, str]] = None) -> bytes:
    """The bytes of a file that holds these arrays."""
    return numpy.save(_to_numpy(tensors), metadata=metadata)


def save_file(
    tensors: dict[str, Array],
    filename: Union[str, "os.PathLike[str]"],
    metadata: Optional[dict[str, str]] = None,
) -> None:
    """Write a file that holds these arrays, durably."""
    numpy.save_file(_to_numpy(tensors), filename, metadata=metadata)


def load(data: bytes) -> dict[str, Array]:
    """The arrays of a file that lies in memory."""
    return {name: jnp.asarray(array) for name, array in numpy.load(data).items()}


def load_file(filename: Union[str, "os.PathLike[str]"], *, backend: str = "mmap") -> dict[str, Array]:
    """The arrays of a file."""
    with safe_open(filename, framework="flax", backend=backend) as file:
        return file.get_tensors()


def _to_numpy(tensors: dict[str, Array]) -> "dict[str, np.ndarray]":
    return {name: np.asarray(array) for name, array in tensors.items()}
