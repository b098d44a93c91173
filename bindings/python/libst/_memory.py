"""A safetensors file that lies in memory: open it, or only look what is where."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from . import _abi
from ._few import FEW, Tensor, few_tensors
from ._handle import Handle, opened
from ._names import names
from ._rows import address, describe_all, shapes
from .dtypes import BYTES


def opened_memory(data: Any) -> Handle:
    """Of anything with a C-contiguous buffer, which the handle keeps, and which must not change."""
    if type(data) is bytes:
        return opened(partial(_abi.st_open_memory, data, len(data)), data)
    view = memoryview(data).cast("B")
    source = np.frombuffer(view, BYTES) if view.nbytes else np.empty(0, BYTES)
    return opened(lambda out: int(_abi.st_open_memory(address(source), source.nbytes, out)), source)


def tensors_in(data: bytes) -> Iterable[Tensor]:
    """The tensors of a file, in their order."""
    handle = opened_memory(data)
    count = int(_abi.st_count(handle))
    if count <= FEW:
        return few_tensors(handle, count)
    rows = describe_all(lambda function, *args: int(function(handle, *args)), count)
    columns = (rows[name].tolist() for name in ("dtype", "nbytes", "file_offset"))
    dtypes, sizes, places = columns
    return zip(list(names(handle)), dtypes, list(shapes(rows, True)), sizes, places)
