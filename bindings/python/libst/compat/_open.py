"""safe_open, and the slices that it gives, as stock has them."""

import os
from types import TracebackType
from typing import Any, Optional, Union

from .. import file as _file
from ..bulk import read_many
from ..errors import NotFoundError
from ..file import File
from ._bytes import check_type, file_name
from ._errors import SafetensorError, missing, translated
from ._frameworks import Device, check_dtype, device_of, framework_of, import_framework, tensor_of
from ._slices import stock_index

# How the file is reached, by stock's name of the backend. "view" is ours: tensors of numpy
# are read-only views of the file, and nothing is read before it is looked at.
_MAPS = {"mmap": "auto", "pread": "none", "view": "auto"}

_SMALL = 4096  # bytes that are copied from the mapping, as a read takes ten times as long


class safe_open:
    """Open a file and get its tensors by name, in the manner of one of the frameworks.

    Tensors are in memory of their own, read in large blocks: they may be written to, and do not depend on
    the file any more. With `backend="view"`, and for numpy, they are read-only and the file's own bytes.
    """

    __slots__ = ("_file", "_framework", "_device", "_view", "_mapped")

    _file: Optional[File]  # None: closed

    def __init__(
        self,
        filename: Union[str, "os.PathLike[str]"],
        framework: str,
        device: Optional[Device] = "cpu",
        *,
        backend: str = "mmap",
    ) -> None:
        self._file = None
        path = file_name(filename)
        check_type("backend", backend, str)
        self._framework = framework_of(framework)
        self._device = device_of(device, self._framework)
        import_framework(self._framework)
        if backend not in _MAPS:
            raise SafetensorError(f'backend "{backend}" is invalid (expected one of: "mmap", "pread")')
        self._view = backend == "view"
        if self._view and self._framework != "numpy":
            raise SafetensorError('backend "view" is for framework numpy; other tensors may be written to')
        if "\0" in path:
            raise FileNotFoundError(f"No such file or directory: {path}")
        with translated("Error while deserializing header", path):
            self._file = _file.open(path, map=_MAPS[backend])
        self._mapped = self._file.io_info().map != "none"

    def keys(self) -> list[str]:
        """The names, sorted."""
        return sorted(self._live())

    def offset_keys(self) -> list[str]:
        """The names, in the order of the file."""
        return list(self._live())

    def metadata(self) -> Optional[dict[str, str]]:
        """The pairs of `__metadata__`; None if the file has none."""
        return dict(self._live().metadata) or None

    def get_tensor(self, name: str) -> Any:
        """One tensor. SafetensorError if there is none of that name."""
        file = self._live()
        _check_name(name)
        with translated("Error while reading"):
            try:
                if self._framework == "numpy":
                    if not self._mapped and not self._view:
                        return file.read(name)
                    view = file[name]
                    if self._view:
                        return view
                    return view.copy() if view.nbytes <= _SMALL else file.read(name)
                tensor = file.info(name)
                check_dtype(tensor.dtype, self._framework)
                return tensor_of(file.read(name), tensor.dtype, tensor.shape, self._framework, self._device)
            except NotFoundError as error:
                raise missing(name) from error

    def get_tensors(self) -> dict[str, Any]:
        """All of them, read in the order of the file and by as many readers as the storage likes.

        They share one block of memory, which lives as long as any of them.
        """
        file = self._live()
        with translated("Error while reading"):
            if self._view:
                return {name: file[name] for name in file}
            infos = [] if self._framework == "numpy" else [file.info(name) for name in file]
            for tensor in infos:
                check_dtype(tensor.dtype, self._framework)
            arrays: dict[str, Any] = read_many(file._pin(), None, None)
            for tensor in infos:
                arrays[tensor.name] = tensor_of(
                    arrays[tensor.name], tensor.dtype, tensor.shape, self._framework, self._device
                )
            return arrays

    def get_slice(self, name: str) -> "PySafeSlice":
        """A tensor to read parts of: `f.get_slice("w")[:, ::8]` reads only the bytes of that part."""
        file = self._live()
        _check_name(name)
        if name not in file:
            raise missing(name)
        return PySafeSlice(file, name, self._framework, self._device)

    def __enter__(self) -> "safe_open":
        return self

    def __exit__(
        self,
        _exc_type: Optional[type[BaseException]],
        _exc_value: Optional[BaseException],
        _traceback: Optional[TracebackType],
    ) -> None:
        self._file = None  # not closed: as with stock, slices that live go on reading

    def _live(self) -> File:
        if self._file is None:
            raise SafetensorError("File is closed")
        return self._file


def _safe_open_handle(
    file_handle: Any, framework: str, device: Optional[Device] = "cpu", *, backend: str = "mmap"
) -> safe_open:
    """`safe_open` of the file behind an open Python file. That may be closed then, and its position stays."""
    opened = f"/proc/self/fd/{file_handle.fileno()}"
    path = os.path.realpath(opened)
    return safe_open(path if os.path.exists(path) else opened, framework, device, backend=backend)


class PySafeSlice:
    """A tensor of a file, not read yet. It keeps the file open."""

    __slots__ = ("_file", "_name", "_framework", "_device")

    def __init__(self, file: File, name: str, framework: str, device: Device) -> None:
        self._file = file
        self._name = name
        self._framework = framework
        self._device = device

    def get_shape(self) -> list[int]:
        return list(self._file.info(self._name).shape)

    def get_dtype(self) -> str:
        """As in a header: "F32"."""
        return self._file.info(self._name).dtype

    def __getitem__(self, index: Any) -> Any:
        """What stock answers to that index: of torch what torch takes; of the others integers, slices that begin and
        end inside the tensor, of any positive step, and one Ellipsis."""
        tensor = self._file.info(self._name)
        check_dtype(tensor.dtype, self._framework)
        if self._framework == "torch" and not _reads(index, tensor.shape):
            array = self._file.read(self._name)
            return tensor_of(array, tensor.dtype, tensor.shape, self._framework, self._device)[index]
        if self._framework != "torch":
            index = stock_index(index, tensor.shape)
        with translated("Error during slicing"):
            array = self._file.slice(self._name)[index]
        return tensor_of(array, tensor.dtype, array.shape, self._framework, self._device)


def _reads(index: Any, shape: tuple[int, ...]) -> bool:
    """Whether libst reads what torch would give for this index; if not, torch has to say what it makes of it."""
    parts = index if isinstance(index, tuple) else (index,)
    axes = [part for part in parts if part is not Ellipsis]
    if len(parts) - len(axes) > 1 or len(axes) > len(shape):
        return False
    place = next((i for i, part in enumerate(parts) if part is Ellipsis), len(parts))
    extents = shape[:place] + shape[len(shape) - (len(axes) - place) :]
    for part, extent in zip(axes, extents):
        if type(part) is int:
            if not -extent <= part < extent:
                return False
        elif not isinstance(part, slice) or any(
            type(bound) not in (int, type(None)) for bound in (part.start, part.stop, part.step)
        ):
            return False
        elif part.step is not None and part.step < 1:
            return False
    return True


def _check_name(name: str) -> None:
    check_type("name", name, str)
    name.encode()  # UnicodeEncodeError, as stock has it
