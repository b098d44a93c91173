"""TensorSpec, serialize, serialize_file and deserialize, as stock has them.

Of the format only the header that `serialize` puts before bytes in memory is made here,
as the C library writes files; a test holds it against what the library writes.
"""

import ctypes
import errno
import json
import operator
import os
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, Optional, Union

from .. import _abi
from .._few import Tensor
from .._memory import tensors_in
from .._rows import Columns
from ..dtypes import NAMES
from ..save import save_stock
from ._errors import TOO_MANY_BYTES, SafetensorError, translated, translated_writing
from ._link import new_file_beside, sweep

_INDEX = re.compile(r"\.safetensors\.index(\.[^./]*)?\.json\Z")
_DTYPES = {
    "bool": "BOOL",
    "int8": "I8",
    "uint8": "U8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2": "F8_E5M2",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "float4_e2m1fn_x2": "F4",
    "complex64": "C64",
}
_NUMBERS = {name: number for number, name in NAMES.items()}
_BITS = {name: int(_abi.st_dtype_bits(number)) for name, number in _NUMBERS.items()}
_ALIGNMENT = 8  # of the data, as stock pads
_TOO_BIG = 2**64  # for one of stock's numbers


class TensorSpec:
    """A tensor to write: what it is, and where its bytes lie. They must stay there while it is written."""

    __slots__ = ("_dtype", "_shape", "_data_ptr", "_data_len")

    def __init__(self, *, dtype: str, shape: Sequence[int], data_ptr: int, data_len: int) -> None:
        check_type("dtype", dtype, str)
        dtype.encode()  # UnicodeEncodeError, before what the others are refused for
        extents = _extents(shape)
        data_ptr, data_len = _unsigned("data_ptr", data_ptr), _unsigned("data_len", data_len)
        if dtype not in _DTYPES:
            raise SafetensorError(f'Unknown dtype "{dtype}". Supported dtypes: {", ".join(_DTYPES)}')
        if dtype == "float4_e2m1fn_x2" and extents:
            if extents[-1] >= _TOO_BIG // 2:
                raise SafetensorError(f"F4 last-dim {extents[-1]} doubled to logical shape overflows usize")
            extents[-1] *= 2  # torch counts pairs
        self._dtype = _DTYPES[dtype]
        self._shape = extents
        self._data_ptr = data_ptr
        self._data_len = data_len

    @property
    def dtype(self) -> str:
        """As in a header: "F32"."""
        return self._dtype

    @property
    def shape(self) -> list[int]:
        """In elements."""
        return list(self._shape)

    @property
    def data_ptr(self) -> int:
        return self._data_ptr

    @property
    def data_len(self) -> int:
        """In bytes."""
        return self._data_len

    def __reduce__(self) -> NoReturn:
        raise TypeError("a TensorSpec points into the memory of its process: send the tensor, and make one of it there")

    def __repr__(self) -> str:
        return (
            f"TensorSpec(dtype={self._dtype!r}, shape={self._shape}, "
            f"data_ptr={self._data_ptr}, data_len={self._data_len})"
        )

    def _check(self) -> None:
        """That the bytes are as many as the shape says."""
        bits = 1
        for factor in (*self._shape, _BITS[self._dtype]):
            bits *= factor
            if bits >= _TOO_BIG:  # though a 0 may follow
                raise SafetensorError(f"Error while serializing: {TOO_MANY_BYTES}")
        if bits % 8 or bits // 8 != self._data_len or (self._data_len and not self._data_ptr):
            raise SafetensorError("Error while serializing: invalid shape, data type, or offset for tensor")

    def _bytes(self) -> Any:
        """The bytes, not copied."""
        return (ctypes.c_ubyte * self._data_len).from_address(self._data_ptr) if self._data_len else b""


def serialize(tensor_dict: dict[str, TensorSpec], metadata: Optional[dict[str, str]] = None) -> bytes:
    """The bytes of a file that holds these tensors."""
    _check(tensor_dict, metadata)
    if "__metadata__" in tensor_dict:
        raise SafetensorError("Error while serializing: a tensor cannot have the name __metadata__")
    header: dict[str, Any] = {}
    if metadata:
        header["__metadata__"] = metadata
    order = sorted(tensor_dict, key=lambda name: (-_NUMBERS[tensor_dict[name]._dtype], name.encode()))
    end = 0
    for name in order:
        tensor = tensor_dict[name]
        begin, end = end, end + tensor._data_len
        header[name] = {"dtype": tensor._dtype, "shape": tensor._shape, "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return b"".join([struct.pack("<Q", len(text)), text, *(tensor_dict[name]._bytes() for name in order)])


def serialize_file(
    tensor_dict: dict[str, TensorSpec],
    filename: Union[str, "os.PathLike[str]"],
    metadata: Optional[dict[str, str]] = None,
) -> None:
    """Write a file that holds these tensors: byte for byte as stock does, and durably: until it returns, the
    path leads to the old file, or to none. The mode is that of the file replaced, or as umask has it. A symbolic link
    is replaced, and not what it leads to, which in the Hub's cache other revisions share."""
    _check(tensor_dict, metadata)
    columns = Columns(len(tensor_dict))
    for tensor in tensor_dict.values():
        columns.add(_NUMBERS[tensor._dtype], tensor._shape, tensor._data_len, tensor._data_ptr)
    write_columns(tensor_dict, columns, filename, metadata)


def write_columns(
    names: Iterable[str],
    columns: Columns,
    filename: Union[str, "os.PathLike[str]"],
    metadata: Optional[dict[str, str]],
) -> None:
    """The same of tensors that are known to fit."""
    path = file_name(filename)
    if "\0" in path:
        reason = f"{os.strerror(errno.EINVAL)} (os error {errno.EINVAL}): embedded null byte in the path"
        raise SafetensorError(f"Error while serializing: I/O error: {reason}")
    is_link = os.path.islink(path)
    if is_link and _INDEX.search(path):  # C is given another name, and refuses this one where it is no link's
        raise SafetensorError(f"Error while serializing: {path!r} is the name of an index of shards")
    with translated_writing():
        sweep(path, is_link)
        if not is_link:
            save_stock(path, names, columns, metadata)
            return
        with new_file_beside(path) as made:
            save_stock(made, names, columns, metadata)
            os.replace(made, path)


def deserialize(bytes: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The tensors of a file that lies in memory: [("name", {"shape": [2], "dtype": "F32", "data": bytearray}), ...]"""
    content, found = described(bytes)
    return [
        (name, {"shape": [*shape], "dtype": NAMES[dtype], "data": bytearray(content[place : place + nbytes])})
        for name, dtype, shape, nbytes, place in found
    ]


def described(bytes: bytes) -> tuple[memoryview, Iterable[Tensor]]:
    """A file that lies in memory, and what tensors are where in it."""
    check_type("bytes", bytes, _bytes)
    with translated("Error while deserializing"):
        return memoryview(bytes), tensors_in(bytes)


_bytes = bytes  # stock's keyword hides it


def file_name(filename: Union[str, "os.PathLike[str]"]) -> str:
    """The text of a path, which stock does not take as bytes."""
    try:
        path = os.fspath(filename)
    except TypeError as error:
        raise TypeError(f"argument 'filename': {error}") from None
    check_type("filename", path, str)
    return path


def check_type(argument: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise _wrong_type(argument, value, kind.__name__)


def _wrong_type(argument: str, value: Any, kind: str) -> TypeError:
    found = "'None'" if value is None else f"'{type(value).__name__}' object"
    return TypeError(f"argument '{argument}': {found} is not an instance of '{kind}'")


def _unsigned(argument: str, value: Any) -> int:
    try:
        number = int(operator.index(value))
    except TypeError as error:
        raise TypeError(f"argument '{argument}': {error}") from None
    if number < 0:
        raise OverflowError("can't convert negative int to unsigned")
    if number >= _TOO_BIG:
        raise OverflowError("int too big to convert")
    return number


def _extents(shape: Any) -> list[int]:
    if isinstance(shape, str):
        raise TypeError("argument 'shape': Can't extract `str` to `Vec`")
    # Not only what is registered as a Sequence: an array, too.
    if isinstance(shape, Mapping) or not (hasattr(shape, "__getitem__") and hasattr(shape, "__len__")):
        raise _wrong_type("shape", shape, "Sequence")
    try:
        extents = iter(shape)
    except TypeError as error:
        raise TypeError(f"argument 'shape': {error}") from None
    return [_unsigned("shape", extent) for extent in extents]


def check_metadata(metadata: Optional[dict[str, str]]) -> None:
    if metadata is None:
        return
    check_type("metadata", metadata, dict)
    for key, text in metadata.items():
        check_type("metadata", key, str)
        check_type("metadata", text, str)


def _check(tensor_dict: dict[str, TensorSpec], metadata: Optional[dict[str, str]]) -> None:
    check_type("tensor_dict", tensor_dict, dict)
    check_metadata(metadata)
    for name, tensor in tensor_dict.items():
        check_type("tensor_dict", name, str)
        check_type("tensor_dict", tensor, TensorSpec)
    for tensor in tensor_dict.values():
        tensor._check()
