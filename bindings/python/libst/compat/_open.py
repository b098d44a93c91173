"""safe_open, and the slices that it gives, as stock has them."""

import os
from types import TracebackType
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from .. import _abi
from .. import file as _file
from .._forms import Form, all_forms
from .._pin import Array, Pin
from ..bulk import read_all_torch, read_many, read_torch
from ..dtypes import NAMES, PACKED
from ..errors import Error, NotFoundError
from ..file import File
from ..slices import TensorSlice
from ._ahead import WORTH_IT, Wanted, map_ahead, read_ahead
from ._bytes import check_type, file_name
from ._copies import Copies
from ._errors import SafetensorError, missing, translate, translated
from ._frameworks import (
    Device,
    check_dtype,
    device_of,
    framework_of,
    import_framework,
    on_device,
    tensor_of,
)
from ._prefetch import PrefetchLoader, PrefetchPlan, TensorMeta, start, tensor_meta
from ._slices import stock_index

# How the file is reached, by stock's name of the backend. "view" is ours: tensors of numpy
# are read-only views of the file, and nothing is read before it is looked at.
_MAPS = {"mmap": "auto", "pread": "none", "view": "auto"}

_ALL = slice(None)

_OPENING = "Error while deserializing header"  # of a file, or of one more shard

_READ_AHEAD = 128 << 10  # bytes between pieces up to which a page of one comes with those of the next


class safe_open:
    """Open a file and get its tensors by name, in the manner of one of the frameworks.

    They may be written to. Those of torch are copy-on-write views of the file, as stock's are: what is written never
    reaches it. Others, and where mappings are slow torch's too, are in memory of their own, read in large blocks, and
    do not depend on the file any more. With `backend="view"`, for numpy, they are read-only and the file's own bytes.
    """

    __slots__ = ("_file", "_framework", "_device", "_view", "_shared", "_of", "_copies", "_last")

    _file: Optional[File]  # None: closed
    _of: "Optional[_Of]"  # the same
    _last: "Optional[PySafeSlice]"  # which a loop over rows asks for again and again
    _copies: Optional[Copies]  # from the mapping; None: there are none

    def __init__(
        self,
        filename: Union[str, "os.PathLike[str]"],
        framework: str,
        device: Optional[Device] = "cpu",
        *,
        backend: str = "mmap",
    ) -> None:
        self._file = self._of = self._last = None
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
        _refuse_nul(path)
        try:
            with translated(_OPENING, path):
                shared = backend == "mmap" and self._framework == "torch"
                self._file = _file.open(path, mapping="copy-on-write" if shared else _MAPS[backend])
                self._file._keep_still()
                map_ = self._file._pin().map  # of shards the first one's, which is opened for it
                self._shared = shared and self._file._pin().shows_writable
        except BaseException:
            self._file = None  # not in the traceback, where it would stay open
            raise
        local = map_ == _abi.ST_MAP_SHARED  # as local disks are mapped, and no others
        copies = Copies(local, path) if map_ != _abi.ST_MAP_NONE else None
        self._copies = copies if self._framework == "numpy" and not self._view else None
        as_torch = self._framework == "torch" and backend != "pread"
        self._of = _Of(self._file, self._framework, self._device, self._shared, copies, local, as_torch)

    def keys(self) -> list[str]:
        """The names, sorted."""
        return sorted(self.offset_keys())

    def offset_keys(self) -> list[str]:
        """The names, in the order of the file."""
        file = self._live()
        with translated(_OPENING):
            return list(file)

    def metadata(self) -> Optional[dict[str, str]]:
        """The pairs of `__metadata__`; None if the file has none."""
        return dict(self._live().metadata) or None

    def get_tensor(self, name: str) -> Any:
        """One tensor. SafetensorError if there is none of that name."""
        file = self._live()
        if self._copies is not None and type(name) is str:
            try:
                copy = (file._pins or file._anew())[0].copy(name, self._copies.take)
                if copy is not None:
                    return copy
            except Error:
                pass  # told below, as stock tells it
        _check_name(name)
        with translated("Error while reading"):
            try:
                if self._framework == "numpy":
                    return file[name] if self._view else file.read(name)
                if self._framework == "torch":
                    read = file._pin().torch(name) if self._shared else read_torch(file._pin(), name)
                    return on_device(read, self._device)
                tensor = file.info(name)
                return tensor_of(file.read(name), tensor.dtype, tensor.shape, self._framework, self._device)
            except NotFoundError as error:
                raise missing(name) from error
            except Error:
                check_dtype(file.info(name).dtype, self._framework)
                raise

    def get_tensors(self) -> dict[str, Any]:
        """All of them, read in the order of the file and by as many readers as the storage likes.

        Those of numpy share one block of memory, which lives as long as any of them. In a file of at most three, none
        above 64 KiB, each may have memory of its own. Those of torch that are read have their own above 64 KiB.
        """
        file = self._live()
        with translated("Error while reading"):
            if self._view:
                return {name: file[name] for name in file}
            if self._framework == "torch":
                return _all_of_torch(file._pin(), str(file.path), self._shared, self._device)
            infos = [] if self._framework == "numpy" else [file.info(name) for name in file]
            arrays: dict[str, Any] = read_many(file._pin(), None, None)
            for tensor in infos:
                arrays[tensor.name] = tensor_of(
                    arrays[tensor.name], tensor.dtype, tensor.shape, self._framework, self._device
                )
            return arrays

    def get_tensor_meta(self, name: str) -> TensorMeta:
        """What the header says of a tensor; nothing is read."""
        _check_name(name)
        file = self._live()
        with translated(_OPENING):
            return tensor_meta(file, name)

    def prefetch(
        self, plan: Optional[PrefetchPlan] = None, *, device: Optional[Device] = None, threads: int = 8
    ) -> PrefetchLoader:
        """Begin to read tensors in the background, for torch: all, or those of `plan`, whole or a slice of the first
        dimension. `device` is the file's own if None."""
        wanted = self._device if device is None else device_of(device, self._framework)
        file = self._live()
        with translated(_OPENING):
            return start(file, self._framework, plan, wanted, threads)

    def get_slice(self, name: str) -> "PySafeSlice":
        """A tensor to read parts of: `f.get_slice("w")[:, ::8]` reads that part and not the whole tensor."""
        of = self._of
        if of is None:
            raise _closed()
        last = self._last
        if last is not None and type(name) is str and last._name == name:
            return last
        form = of.file._pin().forms.get(name) if type(name) is str else None
        if form is None:
            _check_name(name)
            try:
                form = of.file._pin().form(name)
            except NotFoundError as error:
                raise missing(name) from error
            except Error as error:
                translate(error, _OPENING)
                raise
        self._last = last = PySafeSlice(of, name, form)
        return last

    def __enter__(self) -> "safe_open":
        return self

    def __exit__(
        self,
        _exc_type: Optional[type[BaseException]],
        _exc_value: Optional[BaseException],
        _traceback: Optional[TracebackType],
    ) -> None:
        self._file = self._of = self._last = None  # not closed: as with stock, slices that live go on reading

    def _live(self) -> File:
        if self._file is None:
            raise _closed()
        return self._file


def _refuse_nul(path: str) -> None:
    if "\0" in path:
        raise FileNotFoundError(f"No such file or directory: {path}")


def all_arrays(filename: Union[str, "os.PathLike[str]"]) -> dict[str, Array]:
    """What `safe_open(filename, "np", backend="pread")` gives of all tensors."""
    path = file_name(filename)
    _refuse_nul(path)
    pin = None
    try:
        with translated(_OPENING, path):
            pin = _file.open_pin(path)
        with translated("Error while reading"):
            return read_many(pin, None, None)
    finally:
        del pin


def all_tensors(filename: Union[str, "os.PathLike[str]"], device: Optional[Device], shared: bool) -> dict[str, Any]:
    """What `safe_open(filename, "pt", device)` gives of all tensors; shared: or else by "pread"."""
    path = file_name(filename)
    device = device_of(device, "torch")
    _refuse_nul(path)
    pin = None
    try:
        with translated(_OPENING, path):
            pin = _file.open_pin(path, "copy-on-write" if shared else "none")
            shared = shared and pin.shows_writable
        with translated("Error while reading"):
            return _all_of_torch(pin, path, shared, device)
    finally:
        del pin


def _all_of_torch(pin: Pin, path: str, shared: bool, device: Device) -> dict[str, Any]:
    """shared: as copy-on-write views."""
    try:
        try:
            tensors = _mapped(pin, path) if shared else read_all_torch(pin)
        except Error:
            for dtype, _ in all_forms(pin)[0]:
                check_dtype(NAMES[dtype], "torch")
            raise
        return tensors if device == "cpu" else {name: on_device(tensor, device) for name, tensor in tensors.items()}
    finally:
        del pin


def _mapped(pin: Pin, path: str) -> dict[str, Any]:
    """All tensors of torch over the mapping, of which a large part is brought into memory ahead of its reader."""
    try:
        if pin.file_size < WORTH_IT:
            return pin.torch_all()
        wanted = Wanted()
        is_read = read_ahead(path, pin.file_size, wanted)
        try:
            tensors = pin.torch_all()
            begin, size, buffer = pin.mapping()
            if buffer is not None:
                wanted.by(buffer)
        except BaseException:
            wanted.by_nobody()
            raise
        if not is_read:
            map_ahead(begin, size, wanted)
        return tensors
    finally:
        del pin


def _safe_open_handle(
    file_handle: Any, framework: str, device: Optional[Device] = "cpu", *, backend: str = "mmap"
) -> safe_open:
    """`safe_open` of the file behind an open Python file. That may be closed then, and its position stays."""
    opened = f"/proc/self/fd/{file_handle.fileno()}"
    if os.name == "nt":
        opened = os.path.abspath(file_handle.name)
    path = os.path.realpath(opened)
    return safe_open(path if os.path.exists(path) else opened, framework, device, backend=backend)


class _Of(NamedTuple):
    """What slices are of."""

    file: File
    framework: str
    device: Device
    shared: bool  # tensors of torch are copy-on-write views
    copies: Optional[Copies]  # of parts, from a view
    local: bool  # so are parts in many pieces that lie close together
    as_torch: bool  # what torch takes for an index; else what stock's own reader takes


class PySafeSlice:
    """A tensor of a file, not read yet. It keeps the file open."""

    __slots__ = ("_of", "_name", "_form", "_part", "_whole")

    def __init__(self, of: _Of, name: str, form: Form) -> None:
        self._of = of
        self._name = name
        self._form = form
        # Once they were asked for: what reads parts, and the view that small ones are copied from.
        self._part: Optional[TensorSlice] = None
        self._whole: Optional[Array] = None

    def __reduce__(self) -> tuple[Any, ...]:
        return PySafeSlice, (self._of, self._name, self._form)  # without what was read

    def get_shape(self) -> list[int]:
        return list(self._form[1])

    def get_dtype(self) -> str:
        """As in a header: "F32"."""
        return NAMES[self._form[0]]

    def __getitem__(self, index: Any) -> Any:
        """What stock answers to that index: of torch's mappings what torch takes; of the others, and by `pread`,
        integers, slices that begin and end inside the tensor, of any positive step, and one Ellipsis."""
        file, framework, device, shared, _, _, as_torch = self._of
        number, shape = self._form
        if framework == "numpy":
            return self._read(stock_index(index, shape))
        dtype = NAMES[number]
        check_dtype(dtype, framework)
        if shared:
            with translated("Error during slicing"):
                tensor = file._pin().torch(self._name)
            return on_device(tensor[index], device)
        if number in PACKED and framework == "torch" or as_torch and not _reads(index, shape):  # torch counts pairs
            with translated("Error during slicing"):
                tensor = tensor_of(file.read(self._name), dtype, shape, framework, device)
            return tensor[index]
        if not as_torch:
            index = stock_index(index, shape)
            if framework == "torch" and (index is Ellipsis or index == _ALL):
                try:
                    whole = read_torch(file._pin(), self._name)
                except Error as error:
                    translate(error, "Error during slicing")
                    raise
                return on_device(whole, device)
        array = self._read(index)
        return tensor_of(array, dtype, array.shape, framework, device)

    def _read(self, index: Any) -> Array:
        try:
            copies = self._of.copies
            if self._whole is None and copies is not None and self._form[0] not in PACKED:
                self._whole = self._of.file[self._name]
            if self._whole is not None and copies is not None:
                part = self._whole[index]
                # Not a number, as numpy gives where no dimension is left.
                if type(part) is np.ndarray and (
                    copies.take_part(part)
                    if part.flags.c_contiguous
                    else self._of.local and _apart(part) <= _READ_AHEAD
                ):
                    return part.copy()
            if self._part is None:
                self._part = self._of.file.slice(self._name)
            return self._part[index]
        except Error as error:
            translate(error, "Error during slicing")
            raise


def _apart(part: Array) -> int:
    """Bytes from where one of its pieces begins to where the next one does."""
    run = part.itemsize
    for extent, stride in zip(reversed(part.shape), reversed(part.strides)):
        if extent > 1:
            if stride != run:
                return abs(stride)
            run *= extent
    return run


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


def _closed() -> SafetensorError:
    return SafetensorError("File is closed")


def _check_name(name: str) -> None:
    check_type("name", name, str)
    name.encode()  # UnicodeEncodeError, as stock has it
