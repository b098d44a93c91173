"""safetensors.torch: dicts of torch tensors and whole models, to files and to bytes, and back.

Tensors of a dict must not share memory, as a file would hold it twice; `save_model` keeps one
name of each such group, and `load_model` knows which names the others were.
"""

# pyright: reportAttributeAccessIssue=false
# Where torch is not installed, pyright takes this file for it.

import ctypes
import os
import stat
from collections.abc import Iterable
from typing import Any, Optional, Union

import numpy as np
import torch

from .._torch import TORCH_NAMES, laid_over, torch_tensor
from ..dtypes import NAMES
from ._bytes import TensorSpec, described, serialize, serialize_file
from ._bytes import deserialize as deserialize
from ._errors import SafetensorError, translated
from ._frameworks import check_dtype
from ._open import all_tensors, safe_open

Path = Union[str, "os.PathLike[str]"]
Tensors = dict[str, torch.Tensor]

# By the name in a header; what this torch has not is missing. Other packages import the two, and what else begins with
# an underscore here, from stock.
_TYPES: dict[str, Any] = {name: getattr(torch, kind) for name, kind in TORCH_NAMES.items() if hasattr(torch, kind)}
_SIZE: dict[Any, int] = {kind: torch.empty((), dtype=kind).element_size() for kind in _TYPES.values()}

_SMALL = 16 << 10  # bytes: a few pages, of which the memory is no more than that of a mapping

_float8_e4m3fn = _TYPES.get("F8_E4M3")
_float8_e4m3fnuz = _TYPES.get("F8_E4M3FNUZ")
_float8_e5m2 = _TYPES.get("F8_E5M2")
_float8_e5m2fnuz = _TYPES.get("F8_E5M2FNUZ")
_float8_e8m0 = _TYPES.get("F8_E8M0")
_float4_e2m1_x2 = _TYPES.get("F4")


def save(tensors: Tensors, metadata: Optional[dict[str, str]] = None) -> bytes:
    """The bytes of a file that holds these tensors, which must be contiguous and share no memory."""
    kept: list[torch.Tensor] = []
    return serialize(_flatten_as_ptr(tensors, kept), metadata=metadata)


def save_file(tensors: Tensors, filename: Path, metadata: Optional[dict[str, str]] = None) -> None:
    """Write a file that holds these tensors, durably. They must be contiguous and share no memory."""
    kept: list[torch.Tensor] = []
    serialize_file(_flatten_as_ptr(tensors, kept), filename, metadata=metadata)


def load(data: bytes) -> Tensors:
    """The tensors of a file that lies in memory."""
    content, tensors = described(data)
    found = list(tensors)
    with translated("Error while deserializing"):
        for dtype in {tensor[1] for tensor in found}:
            check_dtype(NAMES[dtype], "torch")
        # Each in memory of its own, which goes with it.
        return {
            name: laid_over(bytearray(content[place : place + nbytes]), 0, 0, nbytes, NAMES[dtype], shape)
            for name, dtype, shape, nbytes, place in found
        }


def load_file(filename: Path, device: Union[str, int] = "cpu", *, backend: str = "mmap") -> Tensors:
    """The tensors of a file, on a device."""
    if type(backend) is str and backend in ("mmap", "pread"):
        return all_tensors(filename, device, backend == "mmap" and not _is_small(filename))
    with safe_open(filename, framework="pt", device=device, backend=backend) as file:
        return file.get_tensors()


def _is_small(filename: Path) -> bool:
    """Whether all of a file is read in less time than its pages are mapped. False of the index of others."""
    try:
        of_file, is_index = os.stat(filename), os.fspath(filename).endswith(".json")
    except (OSError, TypeError, ValueError):  # which `safe_open` tells of
        return False
    return of_file.st_size <= _SMALL and stat.S_ISREG(of_file.st_mode) and not is_index


def save_model(
    model: torch.nn.Module,
    filename: Path,
    metadata: Optional[dict[str, str]] = None,
    force_contiguous: bool = True,
) -> None:
    """Write a model's state. Of tensors that share memory one is written; the metadata names the others, as then does
    the dict that was given."""
    state = model.state_dict()
    dropped = _remove_duplicate_names(state)
    for kept_name, names in dropped.items():
        for name in names:
            if metadata is None:
                metadata = {}
            if name not in metadata:
                metadata[name] = kept_name
            del state[name]
    if force_contiguous:
        state = {name: tensor.contiguous() for name, tensor in state.items()}
    try:
        save_file(state, filename, metadata=metadata)
    except ValueError as error:
        hint = "Or use save_model(..., force_contiguous=True), read the docs for potential caveats."
        raise ValueError(f"{error} {hint}") from error


def load_model(
    model: torch.nn.Module,
    filename: Path,
    strict: bool = True,
    device: Union[str, int] = "cpu",
    *,
    backend: str = "mmap",
) -> tuple[list[str], list[str]]:
    """Load a file that `save_model` wrote into a model.

    Returns the names that the model has and the file has not, and the other way round. With `strict`
    RuntimeError if there are any.
    """
    state = load_file(filename, device=device, backend=backend)
    dropped = _remove_duplicate_names(model.state_dict(), preferred_names=list(state))
    answer = model.load_state_dict(state, strict=False)
    missing, unexpected = set(answer.missing_keys), list(answer.unexpected_keys)
    for name in (name for names in dropped.values() for name in names):
        if name in missing:
            missing.remove(name)
        else:
            unexpected.append(name)  # the file holds both, which this model cannot have apart
    if strict and (missing or unexpected):
        lines = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        for what, names in (("Missing", sorted(missing)), ("Unexpected", sorted(unexpected))):
            if names:
                quoted = ", ".join(f'"{name}"' for name in names)
                lines.append(f"    {what} key(s) in state_dict: {quoted}")
        raise RuntimeError("\n".join(lines))
    return missing, unexpected  # type: ignore[return-value]  # stock's first is a set, too


def storage_ptr(tensor: torch.Tensor) -> int:
    """The address of the memory that a tensor is a part of; 0 if it has none."""
    try:
        return int(_storage(tensor).data_ptr())
    except (NotImplementedError, RuntimeError):  # of a meta tensor
        return 0


def storage_size(tensor: torch.Tensor) -> int:
    """The size of that memory in bytes."""
    try:
        return int(_storage(tensor).nbytes())
    except (NotImplementedError, RuntimeError):
        return _nbytes(tensor)


def _nbytes(tensor: torch.Tensor) -> int:
    return int(tensor.nelement() * tensor.element_size())


def _storage(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()  # torch 1.13


def _end_ptr(tensor: torch.Tensor) -> int:
    """The address behind a tensor's last element."""
    if not tensor.nelement():
        return int(tensor.data_ptr())
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride()))
    return int(tensor.data_ptr() + (last + 1) * tensor.element_size())


def _find_shared_tensors(state_dict: Tensors) -> list[set[str]]:
    """Groups of names whose tensors overlap in memory; a tensor that shares nothing is a group of one."""
    by_storage: dict[Any, list[str]] = {}
    for name, tensor in state_dict.items():
        if tensor.device.type != "meta" and storage_ptr(tensor) and storage_size(tensor):
            place = (tensor.device, storage_ptr(tensor), storage_size(tensor))
            by_storage.setdefault(place, []).append(name)
    return _filter_shared_not_shared([set(names) for names in by_storage.values()], state_dict)


def _filter_shared_not_shared(tensors: list[set[str]], state_dict: Tensors) -> list[set[str]]:
    """Groups of names that are parts of one memory, split into groups that overlap."""
    groups: list[set[str]] = []
    for names in tensors:
        reached = -1
        for begin, end, name in sorted(
            (state_dict[name].data_ptr(), _end_ptr(state_dict[name]), name) for name in names
        ):
            if begin < reached:
                groups[-1].add(name)
            else:
                groups.append({name})
            reached = max(reached, end)
    return groups


def _is_complete(tensor: torch.Tensor) -> bool:
    """Whether a tensor is all of its memory."""
    return bool(tensor.data_ptr() == storage_ptr(tensor) and _nbytes(tensor) == storage_size(tensor))


def _remove_duplicate_names(
    state_dict: Tensors,
    *,
    preferred_names: Optional[Iterable[str]] = None,
    discard_names: Optional[Iterable[str]] = None,
) -> dict[str, list[str]]:
    """Which name to keep of each group that shares memory, and which not to."""
    preferred, discarded = set(preferred_names or ()), set(discard_names or ())
    dropped: dict[str, list[str]] = {}
    for group in _find_shared_tensors(state_dict):
        if len(group) == 1:
            # Alone, but a part of something: its memory would be written with it by nobody, and cannot be kept out.
            name = next(iter(group))
            if not _is_complete(state_dict[name]):
                raise _nothing_to_keep(group)
            continue
        complete = {name for name in group if _is_complete(state_dict[name])}
        if not complete:
            raise _nothing_to_keep(group)
        kept = min(complete & preferred or complete - discarded or complete)
        dropped[kept] = [name for name in sorted(group) if name != kept]
    return dropped


def _nothing_to_keep(group: set[str]) -> RuntimeError:
    return RuntimeError(
        "Error while trying to find names to remove to save state dict, but found no suitable name to keep for saving "
        f"amongst: {group}. None is covering the entire storage. Refusing to save/load the model since you could be "
        "storing much more memory than needed."
    )


def _evaluate_tensors_for_save(tensors: Tensors) -> None:
    """Raise what stock raises for what a file cannot hold."""
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}")
    sparse = [name for name, tensor in tensors.items() if tensor.layout != torch.strided]
    if sparse:
        raise ValueError(
            f"You are trying to save a sparse tensors: `{sparse}` which this library does not support."
            " You can make it a dense tensor before saving with `.to_dense()` but be aware this might"
            " make a much larger file than needed."
        )
    shared = [group for group in _find_shared_tensors(tensors) if len(group) > 1]
    if shared:
        raise RuntimeError(
            "Some tensors share memory, this will lead to duplicate memory on disk and potential differences when "
            f"loading them again: {shared}. A potential way to correctly save your model is to use `save_model`."
        )


def _flatten_as_ptr(tensors: Tensors, keep_alive_buffer: list[Any]) -> dict[str, TensorSpec]:
    """What to write; `keep_alive_buffer` holds the memory where it lies."""
    _evaluate_tensors_for_save(tensors)
    specs = {}
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. Call `.contiguous()` "
                "on it first; or, if it is a part of another, save that one."
            )
        if tensor.device.type != "cpu":
            tensor = tensor.to("cpu")
        if tensor.is_conj() or tensor.is_neg():  # a view, whose values are not what lies in memory
            tensor = tensor.resolve_conj().resolve_neg()
        nbytes = tensor.nelement() * _SIZE[tensor.dtype]  # KeyError where the format has no such type, as of stock
        address = tensor.data_ptr()
        if nbytes and not address:  # DTensor, and others that wrap tensors or have none
            kind = type(tensor).__name__
            raise SafetensorError(
                f"Error while serializing: {name}: {kind} has no elements in memory of its own; save what it wraps"
            )
        keep_alive_buffer.append(tensor)
        specs[name] = TensorSpec(
            dtype=str(tensor.dtype).split(".")[-1],
            shape=tensor.shape,
            data_ptr=address,
            data_len=nbytes,
        )
    return specs


def _getdtype(dtype_str: str) -> Any:
    """torch's dtype for a header's "BF16"."""
    return _TYPES[dtype_str]


def _view2torch(safeview: list[tuple[str, dict[str, Any]]]) -> Tensors:
    """The tensors of what `deserialize` answers, over its memory."""
    tensors: Tensors = {}
    for name, tensor in safeview:
        check_dtype(tensor["dtype"], "torch")
        array = np.frombuffer(tensor["data"], np.uint8)
        tensors[name] = torch_tensor(array, tensor["dtype"], tuple(tensor["shape"]))
    return tensors


def _to_ndarray(tensor: torch.Tensor) -> "tuple[np.ndarray[Any, Any], torch.Tensor]":
    """A tensor's bytes, not copied, and the tensor on the CPU whose memory they are."""
    if tensor.device.type != "cpu":
        tensor = tensor.to("cpu")
    if not tensor.nelement():
        return np.empty(0, np.uint8), tensor
    memory: Any = (ctypes.c_ubyte * _nbytes(tensor)).from_address(tensor.data_ptr())
    return np.frombuffer(memory, np.uint8), tensor
