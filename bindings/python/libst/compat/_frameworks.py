"""Frameworks and devices by the names that stock takes, and arrays made into their tensors."""

import importlib
import operator
from typing import Any, Optional, Union

import numpy as np

from .._torch import TORCH_NAMES, torch_dtype, torch_tensor
from ..errors import Error
from ._bytes import check_type
from ._errors import SafetensorError

_FRAMEWORKS = {
    "np": "numpy",
    "numpy": "numpy",
    "pt": "torch",
    "torch": "torch",
    "pytorch": "torch",
    "jax": "flax",
    "flax": "flax",
    "tf": "tensorflow",
    "tensorflow": "tensorflow",
    "mlx": "mlx",
    "paddle": "paddle",
}
_NEEDED = {"torch": "torch", "flax": "jax", "paddle": "paddle"}
_INDEXED = ("cuda", "npu", "xpu", "xla", "mlu", "hpu")

Device = Union[str, int]


def framework_of(name: str) -> str:
    """The one name of a framework."""
    check_type("framework", name, str)
    framework = _FRAMEWORKS.get(name)
    if framework is None:
        raise SafetensorError(f"framework {name} is invalid")
    return framework


def import_framework(framework: str) -> None:
    """ModuleNotFoundError when a file is opened, and not at its first tensor; where stock does so."""
    if framework in _NEEDED:
        importlib.import_module(_NEEDED[framework])


def device_of(device: Optional[Device], framework: str) -> Device:
    found = _device(device)
    if found != "cpu" and framework != "torch":
        raise SafetensorError(f"Device {found} is not supported for framework {framework}")
    return found


def _device(device: Any) -> Device:
    if device is None or isinstance(device, str) and device in ("cpu", "mps"):
        return device or "cpu"
    try:
        number = -1 if isinstance(device, str) else operator.index(device)  # numpy's integers, too
    except TypeError:
        number = -1
    if 0 <= number < 2**64:
        return number
    kind, *index = str(device).split(":")
    if not isinstance(device, str) or kind not in _INDEXED or len(index) > 1:
        raise SafetensorError(f"device {device} is invalid")
    if index and not (index[0].isascii() and index[0].isdecimal()):
        raise ValueError("invalid digit found in string")
    return f"{kind}:{int(index[0]) if index else 0}"


def check_dtype(dtype: str, framework: str) -> None:
    """Raise what stock raises for an element type that a framework has not."""
    if framework == "torch":
        try:
            torch_dtype(dtype)
        except Error as error:  # Status.UNSUPPORTED
            raise dtype_not_understood(dtype) from error


def dtype_not_understood(dtype: str) -> SafetensorError:
    return SafetensorError(f"Dtype not understood: {dtype}")


def on_device(tensor: Any, device: Device) -> Any:
    """A tensor of torch that lies in this machine's memory."""
    return tensor if device == "cpu" else tensor.to(device=device)


def tensor_of(
    array: "np.ndarray[Any, Any]", dtype: str, shape: "tuple[int, ...]", framework: str, device: Device
) -> Any:
    """The framework's tensor of a numpy array that is nobody else's; of numpy and torch on the CPU without a copy."""
    if framework == "numpy":
        return array
    if framework == "torch":
        return on_device(torch_tensor(array, dtype, shape), device)
    if framework == "flax":
        return importlib.import_module("jax.numpy").asarray(array)
    if framework == "tensorflow":
        return importlib.import_module("tensorflow").convert_to_tensor(array)
    if framework == "mlx":
        return importlib.import_module("mlx.core").array(array)
    return _paddle_tensor(array, dtype)


def _paddle_tensor(array: "np.ndarray[Any, Any]", dtype: str) -> Any:
    paddle: Any = importlib.import_module("paddle")
    if not array.nbytes or array.dtype.isbuiltin == 1:
        return paddle.to_tensor(array)
    # It takes no array of a type of ml_dtypes; its bytes it does, as stock gives them.
    content = array.reshape(-1).view(np.uint8)
    return paddle.base.core.frombuffer(content, getattr(paddle, TORCH_NAMES[dtype])).reshape(list(array.shape))
