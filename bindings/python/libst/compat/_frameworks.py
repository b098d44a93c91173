"""Frameworks and devices by the names that stock takes, and arrays made into their tensors."""

import importlib
import operator
from typing import Any, Optional, Union

import numpy as np

from .._torch import TORCH_NAMES, torch_dtype, torch_tensor
from ..errors import Error
from ._bytes import check_type
from ._errors import MissingDtypeError, SafetensorError

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
_INDEXED = ("cuda", "musa", "npu", "xpu", "xla", "mlu", "hpu")

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
    if framework in ("torch", "paddle"):
        importlib.import_module(framework)


def device_of(device: Optional[Device], framework: str) -> Device:
    found = _device(device)
    if found != "cpu" and framework not in ("torch", "paddle"):
        raise SafetensorError(f"Device {found} is not supported for framework {framework}")
    return found


def _device(device: Any) -> Device:
    if device is None:
        return "cpu"
    if isinstance(device, str):
        return _named(device)
    try:
        number = int(operator.index(device))  # numpy's integers, too
    except TypeError:
        number = -1
    if not 0 <= number < 2**64:
        raise SafetensorError(f"device {device!r} is invalid")
    return number


def _named(device: str) -> str:
    if device == "cpu":
        return device
    kind, colon, index = device.partition(":")
    if kind not in ("mps", *_INDEXED) or ":" in index:
        raise SafetensorError(f"device {device} is invalid")
    number = _parsed(index) if colon else 0
    if kind != "mps":
        return f"{kind}:{number}"
    if number:
        raise SafetensorError(f"device {device} is invalid: only mps or mps:0 is supported")
    return kind


def _parsed(text: str) -> int:
    """A number as Rust takes it, in which stock is written."""
    if not text:
        raise ValueError("cannot parse integer from empty string")
    digits = text[1:] if text[0] == "+" else text
    if not (digits.isascii() and digits.isdecimal()):
        raise ValueError("invalid digit found in string")
    digits = digits.lstrip("0") or "0"
    if len(digits) > len(str(2**64)) or int(digits) >= 2**64:  # int() refuses very many
        raise ValueError("number too large to fit in target type")
    return int(digits)


def check_dtype(dtype: str, framework: str) -> None:
    """Raise what stock raises for an element type that a framework has not."""
    if framework == "torch":
        try:
            torch_dtype(dtype)
        except Error as error:  # Status.UNSUPPORTED
            raise _lacking(dtype) from error


def _lacking(dtype: str) -> SafetensorError:
    name = TORCH_NAMES.get(dtype)
    if name is None:
        return SafetensorError(f"Dtype not understood: {dtype}")
    return MissingDtypeError(f"module 'torch' has no attribute '{name}'")


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
        return importlib.import_module("jax").numpy.asarray(array)
    if framework == "tensorflow":
        return importlib.import_module("tensorflow").convert_to_tensor(array)
    if framework == "mlx":
        return importlib.import_module("mlx.core").array(array)
    tensor = _paddle_tensor(array, dtype)
    return tensor if device == "cpu" else tensor.to(_paddle_device(device))


def _paddle_tensor(array: "np.ndarray[Any, Any]", dtype: str) -> Any:
    paddle: Any = importlib.import_module("paddle")
    if not array.nbytes or array.dtype.isbuiltin == 1:
        return paddle.to_tensor(array)
    # It takes no array of a type of ml_dtypes; its bytes it does, as stock gives them.
    content = array.reshape(-1).view(np.uint8)
    return paddle.base.core.frombuffer(content, getattr(paddle, TORCH_NAMES[dtype])).reshape(list(array.shape))


def _paddle_device(device: Device) -> Device:
    """Its own name of it."""
    return device.replace("cuda", "gpu") if isinstance(device, str) else device
