"""safetensors.flax: dicts of jax arrays, to files and to bytes, and back."""

import os
from typing import Optional, Union

import jax.numpy as jnp
import numpy as np
from jax import Array

from . import numpy, safe_open


def save(tensors: dict[str, Array], metadata: Optional[dict[str, str]] = None) -> bytes:
    """The bytes of a file that holds these arrays."""
    return numpy.save(_jnp2np(tensors), metadata=metadata)


def save_file(
    tensors: dict[str, Array],
    filename: Union[str, "os.PathLike[str]"],
    metadata: Optional[dict[str, str]] = None,
) -> None:
    """Write a file that holds these arrays, durably."""
    numpy.save_file(_jnp2np(tensors), filename, metadata=metadata)


def load(data: bytes) -> dict[str, Array]:
    """The arrays of a file that lies in memory."""
    return _np2jnp(numpy.load(data))


def load_file(filename: Union[str, "os.PathLike[str]"], *, backend: str = "mmap") -> dict[str, Array]:
    """The arrays of a file."""
    with safe_open(filename, framework="flax", backend=backend) as file:
        return file.get_tensors()


# Other packages import these from stock. Stock changes the dict that it is given; these leave it.


def _np2jnp(numpy_dict: "dict[str, np.ndarray]") -> dict[str, Array]:
    return {name: jnp.asarray(array) for name, array in numpy_dict.items()}


def _jnp2np(jnp_dict: dict[str, Array]) -> "dict[str, np.ndarray]":
    return {name: np.asarray(array) for name, array in jnp_dict.items()}
