"""Many tensors at once: `libst.load`, and what `File.read_many` and `File.prefetch` do."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np

from . import _abi
from ._callbacks import Progress
from ._names import Description, describe, encoded, index_of
from ._pin import Array, Pin
from ._torch import torch_tensor
from .dtypes import BYTES, NUMPY, PACKED
from .errors import DtypeMismatchError, ShapeMismatchError

if TYPE_CHECKING:
    from .file import File, Path

_PAGE = 4096  # what O_DIRECT wants memory and file to agree in
_ALIGNMENT = 64  # of an array that does not follow its neighbour in the file


def load(
    path: Path,
    names: Optional[Iterable[str]] = None,
    *,
    framework: str = "numpy",
    device: Any = None,
    progress: Union[bool, Progress, None] = None,
    **options: Any,
) -> dict[str, Any]:
    """Read a whole file, or some of its tensors, into memory: names to writable arrays, in the
    order of the file.

    The arrays are the caller's and do not depend on the file any more; they share one block
    of memory, which lives as long as any of them.

    Args:
        names: which tensors; None: all.
        framework: "numpy", "torch" or "jax": whose arrays.
        device: where to, as torch and jax name it; None: the CPU, without another copy (jax: where it needs none).
        progress: True for a progress bar (of tqdm, if it is installed), or a function as in `open`.
        options: of `open`: how to read.

    Raises what `open` and `File.read_many` raise.
    """
    from .file import open

    if framework not in ("numpy", "torch", "jax"):
        raise ValueError(f"framework is 'numpy', 'torch' or 'jax', not {framework!r}")
    with open(path, **options) as file, _watched(progress, file) as watch:
        arrays: dict[str, Any] = read_many(file._pin(), file if names is None else names, watch, only_names=True)
        if framework == "torch":
            for name, array in arrays.items():
                info = file.info(name)
                tensor = torch_tensor(array, info.dtype, info.shape)
                arrays[name] = tensor if device is None else tensor.to(device=device)
    if framework == "jax":
        import jax

        arrays = {name: jax.device_put(array, device) for name, array in arrays.items()}
    return arrays


def read(pin: Pin, name: str, out: Optional[Array]) -> Array:
    try:
        raw = encoded(name)
        dtype, shape = form(describe(pin.handle, raw))
        if out is None:
            out = np.empty(shape, dtype)
        else:
            check_fits(out, name, dtype, shape)
        pin.call(_abi.st_read_n, raw, len(raw), address(out), out.nbytes, None)
        return out
    finally:
        del pin


def read_many(
    pin: Pin,
    names: Union[Iterable[str], Mapping[str, Array]],
    progress: Optional[Progress],
    only_names: bool = False,
) -> dict[str, Array]:
    try:
        given: Mapping[str, Any] = names if isinstance(names, Mapping) and not only_names else {}
        raw = {name: encoded(name) for name in names}
        wanted = {name: describe(pin.handle, raw[name]) for name in raw}
        out = {name: given[name] for name in wanted if name in given}
        for name, array in out.items():
            check_fits(array, name, *form(wanted[name]))
        fresh = _arrays({name: tensor for name, tensor in wanted.items() if name not in out})
        arrays = {name: out[name] if name in out else fresh[name] for name in wanted}
        requests = (_abi.ReadRequest * len(arrays))()
        for request, (name, array) in zip(requests, arrays.items()):
            request.name = raw[name]
            request.name_len = len(raw[name])
            request.dst = address(array)
            request.dst_size = array.nbytes
        pin.call_bulk(_abi.st_read_many, requests, len(requests), progress=progress)
        return arrays
    finally:
        del pin


def prefetch(pin: Pin, names: Optional[Iterable[str]], progress: Optional[Progress]) -> None:
    try:
        if names is None:
            pin.call_bulk(_abi.st_prefetch_at, None, 0, progress=progress)
            return
        indices = [index_of(pin.handle, encoded(name)) for name in names]
        array = (ctypes.c_uint64 * len(indices))(*indices)
        pin.call_bulk(_abi.st_prefetch_at, array, len(indices), progress=progress)
    finally:
        del pin


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def form(tensor: Description) -> tuple[Any, tuple[int, ...]]:
    """The dtype and shape of an array that holds a tensor."""
    return NUMPY[tensor.dtype], (tensor.nbytes,) if tensor.dtype in PACKED else tensor.shape


def check_fits(out: Any, name: str, dtype: Any, shape: tuple[int, ...]) -> None:
    if out.dtype != dtype:
        raise DtypeMismatchError(f"out has dtype {out.dtype}, the tensor {name!r} {dtype}", tensor=name)
    if out.shape != shape:
        raise ShapeMismatchError(f"out has shape {out.shape}, the tensor {name!r} {shape}", tensor=name)
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError("out must be writable and C-contiguous")


def _arrays(tensors: dict[str, Description]) -> dict[str, Array]:
    """An empty array for each, in one block. Neighbours in the file are neighbours in it, and each
    has its file offset's place in a page where its dtype allows, so that long runs are read in one go."""
    places: dict[str, int] = {}
    end = after = -1  # in the block, in the file
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].file_offset):
        itemsize = NUMPY[tensor.dtype].itemsize  # type: ignore[union-attr]
        if end < 0:
            end = after = tensor.file_offset % _PAGE
        if tensor.file_offset != after or end % itemsize:
            end += -end % _ALIGNMENT
        places[name] = end
        end += tensor.nbytes
        after = tensor.file_offset + tensor.nbytes
    block = np.empty(max(end, 0) + _PAGE, BYTES)
    start = -block.__array_interface__["data"][0] % _PAGE
    return {
        name: np.ndarray(form(tensor)[1], form(tensor)[0], block, start + places[name])
        for name, tensor in tensors.items()
    }


@contextmanager
def _watched(progress: Union[bool, Progress, None], file: File) -> Iterator[Optional[Progress]]:
    if not progress or callable(progress):
        yield progress or None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield None
        return
    with tqdm(unit="B", unit_scale=True, unit_divisor=1024, desc=file.path) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show
