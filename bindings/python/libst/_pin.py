"""One state of a file: whatever takes several steps to read is read from one.

A File moves on, with each commit through it and each refresh, in whatever thread. A Pin does not: it is a handle of its
own (`st_snapshot`). Slices and iterators keep it, and the last of them closes it. Arrays over a mapped file keep the
mapping alone; arrays over other memory keep the pin.

An error's traceback must keep no pin, or it would keep the file open. So what has one in a local variable drops it
before an exception leaves, and callers have it in none.
"""

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_void_p, memmove
from functools import partial
from typing import Any, Callable, Optional

import numpy as np

from . import _abi
from ._abi import SIZES
from ._callbacks import Callbacks, Progress
from ._few import FEW, Tensor, few_tensors
from ._forms import Form, all_forms, forms_of_file
from ._handle import Handle, Mapping, Memory, borrowed_by, opened
from ._names import Description, describe, encoded, names
from ._rows import describe_all, new_array
from ._sized import sized
from ._torch import laid_over
from ._url import is_url
from .dtypes import BYTES, NAMES, WHOLE
from .errors import StorageError, check, error
from .status import Status

Array = np.ndarray[Any, Any]

# Where views of a mapped file lie: first address, end, and a buffer from the first to the end.
_NOT_YET: tuple[int, int, Any] = (0, 0, None)

_MAPPED = (_abi.ST_MAP_SHARED, _abi.ST_MAP_PRIVATE, _abi.ST_MAP_COPY_ON_WRITE)

_SOME = 4  # tensors of a file that are described one by one
_FEW = 16 << 10  # bytes of a header whose names are kept, once they were listed

#: Bytes of a read in one piece that is not long: it does not ask progress (st_progress_fn).
BRIEF = 64 << 10

#: Bytes of a tensor that is copied from a mapping anyway.
COPIED = 4 << 10

_brief_read = _abi.bare_read
_ndarray = np.ndarray
_Tensor = _abi.Tensor


class Pin:
    __slots__ = (
        "handle", "callbacks", "options", "forms", "_get", "_mapping", "may_write", "alone", "_asked", "_ends",
        "_quiet", "_header_size", "_keeps", "_names", "_few", "_copied", "_info", "_map_of", "_of_url", "_is_near",
    )  # fmt: skip

    handle: Handle
    callbacks: Callbacks
    options: Optional[dict[str, Any]]  # of `open`; None for a file in memory
    forms: dict[str, Form]  #: of all tensors, once some were asked for
    alone: bool  #: no callback of the user's, nor a file that is yet to be opened: a brief call runs no Python
    _get: Any
    may_write: bool  #: whether its views were asked for as such that may be written
    _mapping: tuple[int, int, Any]  # what views lie in; see _NOT_YET
    _asked: int
    _ends: list[int]  # of several files that are all open: how far the tensors of each reach
    _quiet: bool  # no callback of the user's
    _header_size: int  # of one file; else 0
    _keeps: bool  # whether its mapping can be kept alone, as far as is known
    _names: list[str]  # of all tensors, if they were listed and are few
    _few: Optional[list[Tensor]]  # all tensors, if they were asked for and are few
    _copied: int  # tensors, before there was a mapping to lay views over; _SOME at most
    _info: Optional[_abi.IoInfo]  # of the first file; None: not asked yet, as that opens the first of several
    _map_of: Optional[int]  # of the files; None: not asked yet, either
    _of_url: bool  # whether that is behind a URL, which is never mapped
    _is_near: Optional[bool]  # see is_near; None: not known yet

    def __init__(
        self,
        file: Handle,
        callbacks: Callbacks,
        guarded: bool = False,
        options: Optional[dict[str, Any]] = None,
        is_still: bool = False,
    ) -> None:
        """Of what the handle shows now. guarded: whether a callback of the user's may run when a view is taken.
        is_still: whether nothing will lead the handle to another state. It then serves the pin, too."""
        try:
            self.handle = file if is_still else opened(partial(_abi.st_snapshot, file), borrowed_by(file))
        finally:
            del file
        self.callbacks = callbacks
        self.options = options
        one = _abi.st_shard_count(self.handle) == 1
        self._quiet = not guarded
        self.alone = self._quiet and one
        self._info = self.io_info() if one else None
        self._header_size = self._info.header_size if self._info else 0
        self._map_of = None
        self._of_url = options is not None and is_url(options["path"])
        any_url = self._of_url or (options is not None and any(map(is_url, options["deltas"])))
        self._is_near = False if any_url else None
        self._keeps = one
        self.may_write = options is not None and options["mapping"] == "copy-on-write"
        self._settle(self.alone)
        self._mapping = _NOT_YET
        self._ends = []
        self.forms = {}
        self._asked = 0
        self._names = []
        self._few = None
        self._copied = 0

    def _settle(self, alone: bool) -> None:
        self.alone = alone
        # Where a view has to be read first, a signal's handler may run in the callback.
        self._get = _abi.bare_get if alone and self.map in _MAPPED else partial(self.callbacks.call, _abi.bare_get)

    def _first(self) -> _abi.IoInfo:
        try:
            if self._info is None:
                self._info = self.io_info()
            return self._info
        finally:
            del self

    @property
    def map(self) -> int:
        """The ST_MAP_... in use. Of several files the first one's, which is opened for it, unless one is known."""
        try:
            if self._map_of is None:
                self._map_of = _abi.ST_MAP_NONE if self._of_url else int(self._first().map)
            return self._map_of
        finally:
            del self

    @property
    def file_size(self) -> int:
        """Of the first file, which is opened for it."""
        return int(self._first().file_size)

    @property
    def may_be_far(self) -> bool:
        """True unless the files are known to be near: see is_near."""
        return not self._is_near

    def is_near(self, shard: int) -> bool:
        """Whether the files are on storage where a request costs no more than a system call. The first answer counts
        for all. It is asked of `shard`, which is open already."""
        if self._is_near is None:
            self.ask(shard)
        return bool(self._is_near)

    def ask(self, shard: int) -> None:
        """What is not known yet of `map` and `is_near` is as this shard says, which is open already."""
        info = self.io_info(shard) if shard else self._first()
        if self._is_near is None:
            self._is_near = info.storage in (_abi.ST_STORAGE_LOCAL, _abi.ST_STORAGE_MEMORY)
        if self._map_of is None:
            self._map_of = int(info.map)

    def view(self, name: str) -> Array:
        """See `File.__getitem__`."""
        try:
            raw = encoded(name)  # not by _look_up: this is what a loop over tensors calls
            tensor = _Tensor()
            status = self._get(self.handle, raw, SIZES[len(raw)], byref(tensor))
            if status:
                raise error(status)
            dtype = WHOLE[tensor.dtype]
            if dtype is None:
                dtype, shape = BYTES, (tensor.nbytes,)
            else:
                shape = tensor.shape[: tensor.rank]
            address = tensor.data
            if not address:  # of no bytes
                empty = np.empty(shape, dtype)
                empty.flags.writeable = self.may_write
                return empty
            start, end, buffer = self._mapping
            if not start <= address < end:
                start, buffer = self._map(tensor)
            return _ndarray(shape, dtype, buffer, address - start)
        finally:
            del self

    def copy(self, name: str, is_wanted: Callable[[int, int], bool]) -> Optional[Array]:
        """A copy of a tensor as it is in the mapping, which must be there. None if it has more than COPIED bytes, and
        its address and bytes are not what is wanted. No mapping is kept for the first few, as for views. The first is
        read, and so are longer ones among the first few."""
        try:
            raw = encoded(name)  # not by _look_up, as in `view`
            tensor = _Tensor()
            status = self._get(self.handle, raw, SIZES[len(raw)], byref(tensor))
            if status:
                raise error(status)
            address, nbytes = tensor.data or 0, tensor.nbytes
            # A page fault takes longer than a brief read. So does the question whether it is in memory.
            most = _SOME if nbytes > COPIED else 1
            is_read = self._copied < most and nbytes <= BRIEF and self.alone and self._mapping is _NOT_YET
            if nbytes > COPIED and not is_read and not is_wanted(address, nbytes):
                return None
            dtype = WHOLE[tensor.dtype]
            if dtype is None:
                dtype, shape = BYTES, (nbytes,)
            else:
                shape = tensor.shape[: tensor.rank]
            start, end, buffer = self._mapping
            if start <= address < end:
                return _ndarray(shape, dtype, buffer, address - start).copy()
            if address and self._copied >= _SOME:
                start, buffer = self._map(tensor)
                return _ndarray(shape, dtype, buffer, address - start).copy()
            made, place = new_array(shape, dtype)
            if is_read:
                status = _brief_read(self.handle, raw, SIZES[len(raw)], c_void_p(place), SIZES[nbytes], None)
                if status:
                    raise error(status)
            else:
                memmove(place, address, nbytes)
            self._copied += 1
            return made
        finally:
            del self

    def _look_up(self, name: str) -> _abi.Tensor:
        try:
            raw = encoded(name)
            tensor = _Tensor()
            status = self._get(self.handle, raw, SIZES[len(raw)], byref(tensor))
            if status:
                raise error(status)
            return tensor
        finally:
            del self

    def mapping(self) -> tuple[int, int, Any]:
        """The mapping that views lie in: where it begins, its bytes, and what keeps it. No bytes: none was needed."""
        start, end, buffer = self._mapping
        return start, end - start, buffer

    def _map(self, tensor: _abi.Tensor) -> tuple[int, Any]:
        """The memory that a view lies in, from its first address: the mapping of the whole file, made once (and once
        more in a forked child, which has its own), or of this tensor alone where there is none. Of several files
        the one that was looked at last."""
        size = self._reach(tensor.shard)
        if tensor.file_offset + tensor.nbytes > size:
            return tensor.data, Memory(self.handle, tensor.data, tensor.nbytes, self.may_write).buffer()
        start = tensor.data - tensor.file_offset
        buffer = self._kept(start, size)
        if buffer is None:
            buffer = Memory(self.handle, start, size, self.may_write).buffer()
        self._mapping = (start, start + size, buffer)
        return start, buffer

    def _kept(self, start: int, size: int) -> Any:
        """The memory from `start` as a buffer that keeps the mapping alone, so that the file's descriptors and index go
        with their last user. None where it does not lie in the mapping."""
        if not self._keeps:
            return None
        mapping = Mapping(start, size, self.may_write)
        begin = mapping.keep(self.handle)
        self._keeps = begin != 0
        return mapping.buffer() if begin == start else None

    def _reach(self, shard: int) -> int:
        """How many bytes of the mapping of a file views may lie in; 0 where there is none."""
        if shard and (self.may_write or not self._ends):  # before it is asked how the first one is mapped
            return 0
        if self.map not in _MAPPED:
            return 0
        if shard:
            return self._ends[shard]
        # What the file itself patched is shown from elsewhere, if its views may be written.
        moves = self.may_write and self.options is not None and self.options["mode"] != "r"
        return 0 if moves else self.file_size

    def torch(self, name: str) -> Any:
        """See `File.torch`. Of a pin whose views may be written."""
        try:
            tensor = self._look_up(name)
            shape = tuple(tensor.shape[: tensor.rank])
            address = tensor.data
            if not address:  # of no bytes
                return laid_over(None, 0, 0, 0, NAMES[tensor.dtype], shape)
            start, end, buffer = self._mapping
            if not start <= address < end:
                start, buffer = self._map(tensor)
            return laid_over(buffer, address, address - start, tensor.nbytes, NAMES[tensor.dtype], shape)
        finally:
            del self

    def torch_all(self) -> dict[str, Any]:
        """All tensors. Of a pin whose views may be written."""
        try:
            every = list(self.names())
            if _abi.st_shard_count(self.handle) != 1:
                return {name: self.torch(name) for name in every}
            forms, sizes, places = all_forms(self)
            filled = next((i for i, nbytes in enumerate(sizes) if nbytes), None)
            if filled is not None:
                tensor = _Tensor()
                check(_abi.st_get_at(self.handle, filled, tensor))
                self._map(tensor)
            start, _, buffer = self._mapping
            if self._mapping is _NOT_YET:
                return {name: self.torch(name) for name in every}
            return {
                name: laid_over(buffer, start + place, place, nbytes, NAMES[dtype], shape)
                for name, (dtype, shape), nbytes, place in zip(every, forms, sizes, places)
            }
        finally:
            del self

    def with_copy_on_write(self) -> "list[Pin]":
        """One of the same state whose views may be written, if they can be mapped so, and this one. None of memory, of
        several files, and of a file that was replaced."""
        again: Optional[Handle] = None
        try:
            if self.options is None or _abi.st_shard_count(self.handle) != 1:
                return []
            options = {**self.options, "mapping": "copy-on-write", "mode": "r"}
            again = _again(self.handle, self.callbacks)
            return [] if again is None else [Pin(again, self.callbacks, False, options), self]
        finally:
            del self, again

    def is_same_file(self, other: "Pin", copies: "Pin", name: str) -> bool:
        """Whether it is of the file that the other one is of, by a tensor's place in the mapping that both have; where
        they have none, whether the path still leads to the file of `copies`. All are of the same File."""
        try:
            here, there = _Tensor(), _Tensor()
            if self.map in _MAPPED and other.map in _MAPPED:
                raw = encoded(name)
                size = SIZES[len(raw)]
                check(self._get(self.handle, raw, size, byref(here)))
                if other._get(other.handle, raw, size, byref(there)):
                    return False
            if here.data and there.data:
                return bool(here.data == there.data)
            return copies.is_at_path()
        finally:
            del self, other, copies

    def is_at_path(self) -> bool:
        """Whether the path leads to this file."""
        try:
            return _again(self.handle, self.callbacks) is not None
        finally:
            del self

    @property
    def shows_writable(self) -> bool:
        """Whether views lie in a mapping, and may be written."""
        try:
            return self.may_write and self.map == _abi.ST_MAP_COPY_ON_WRITE
        finally:
            del self

    def describe(self, name: str) -> Description:
        try:
            return describe(self.answer, encoded(name))
        finally:
            del self

    def form(self, name: str) -> Form:
        """After some, and at once where names were listed, those of all tensors are at hand: it is likely that most are
        asked for."""
        try:
            raw = encoded(name)
            found = self.forms.get(name)
            if found is None:
                self._asked += 1
                if (self._asked == _SOME or self._names) and not self.forms and self._header_size:
                    self.forms = dict(zip(self.names(), forms_of_file(self)))
                    found = self.forms.get(name)
            if found is None:
                tensor = describe(self.answer, raw)
                found = tensor.dtype, tensor.shape
            return found
        finally:
            del self

    def names(self) -> Iterator[str]:
        try:
            if not self.alone:  # all files are opened for that
                self.call(_abi.st_names, None, ctypes.c_size_t())
                self._settle(self._quiet)
            if not self._names:
                self._names = [tensor[0] for tensor in self.few() or ()]
            if self._names:
                return iter(self._names)
            every = names(self.handle, self._header_size)
            if 0 < self._header_size <= _FEW:
                self._names = list(every)
                return iter(self._names)
            return every
        finally:
            del self

    def few(self) -> Optional[list[Tensor]]:
        """All tensors of one file that has few; None of another."""
        try:
            if self._few is None and self._header_size and self.alone:
                count = _abi.st_count(self.handle)
                if count <= FEW:
                    self._few = few_tensors(self.handle, count)
            return self._few
        finally:
            del self

    def items(self) -> Iterator[tuple[str, Array]]:
        every = self.names()
        shards = _abi.st_shard_count(self.handle)
        if shards != 1 and not self._ends:
            rows = describe_all(self.answer, _abi.st_count(self.handle))
            ends = np.zeros(shards, np.uint64)
            np.maximum.at(ends, rows["shard"], rows["file_offset"] + rows["nbytes"])
            self._ends = ends.tolist()
            del rows, ends
        for name in every:
            yield name, self.view(name)

    def io_info(self, shard: int = 0) -> _abi.IoInfo:
        try:
            info = sized(_abi.IoInfo)
            if shard:
                check(self.answer(_abi.st_shard_io_info, shard, info))
            else:
                check(self.answer(_abi.st_file_io_info, info))
            return info
        finally:
            del self

    def answer(self, function: Any, *args: Any) -> int:
        """The status of a call that opens a shard where it must: a server may keep it waiting."""
        try:
            return function(self.handle, *args) if self.alone else self.callbacks.call(function, self.handle, *args)
        finally:
            del self

    def call(self, function: Any, *args: Any) -> None:
        """A call that may take long, with the file's callbacks."""
        try:
            check(self.callbacks.call(function, self.handle, *args))
        finally:
            del self

    def call_bulk(self, function: Any, *args: Any, progress: Optional[Progress], flags: int = 0) -> None:
        try:
            check(self.answer_bulk(function, *args, progress=progress, flags=flags))
        finally:
            del self

    def answer_bulk(self, function: Any, *args: Any, progress: Optional[Progress], flags: int = 0) -> int:
        """The status of a call that takes st_bulk_options."""
        try:
            callbacks, options = self.callbacks, None  # by which C takes the file's
            if progress is not None:
                callbacks = Callbacks(progress)
                options = sized(_abi.BulkOptions, progress=callbacks.progress, flags=flags)
            elif flags:
                options = sized(_abi.BulkOptions, flags=flags)
            return callbacks.call(function, self.handle, *args, options)
        finally:
            del self


def _again(handle: Handle, callbacks: Callbacks) -> Optional[Handle]:
    """The file once more, with views that may be written. None where its path leads to another one."""
    try:
        return opened(
            partial(callbacks.call, _abi.st_reopen, handle, _abi.ST_REOPEN_COPY_ON_WRITE), borrowed_by(handle)
        )
    except StorageError as problem:
        if problem.status != Status.FILE_CHANGED:
            raise
        return None
    finally:
        del handle
