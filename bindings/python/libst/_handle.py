"""Own what C gives, an st_file, st_mapping, st_txn or st_writer, and free it once: when nothing points to it any more.

Views are numpy arrays whose base leads to the Mapping that they lie in. Where nothing is mapped it leads, through a
Memory, to the Handle of an st_file. So the memory outlives `File.close()` for as long as a view lives, and no longer.
The file is that of a Pin: a File that may move on has a Handle of its own, from which no pointer is taken.
"""

import ctypes
import weakref
from functools import partial
from operator import methodcaller
from typing import Any, Callable, NoReturn

import numpy as np

from . import _abi
from .errors import check

# void PyObject_GC_UnTrack(void *op)
_untrack = ctypes.pythonapi.PyObject_GC_UnTrack
_untrack.argtypes = [ctypes.py_object]
_untrack.restype = None


class Handle(ctypes.c_void_p):
    """The address of what a call has put here; the last reference frees it.

    All that happens then is C: the callbacks of weak references to it call `st_close`, `st_txn_free` or
    `st_writer_free`, and after that drop what was borrowed. A `__del__` would be Python, at whose first line, and
    after each call that it makes, a signal's handler may raise; the file would then stay open.

    The cycle collector must not know a handle: that clears weak references to all objects of a dead cycle, and calls
    their `__del__`, in no good order before it frees any, and a `__del__` among them may still use the file. So it is
    untracked, which an object may be that leads into no cycle.
    """

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a handle cannot be copied or pickled")


class _Closing(weakref.ref[Handle]):
    """Frees what a dead handle held."""

    close: Callable[[], object] = int  # nothing, until it is told what: a signal's handler may raise in between


class _Borrowing(weakref.ref[Handle]):
    """Keeps what C borrows: the faces of callbacks, the bytes of open_memory, payloads. Not the handle itself does, as
    its attributes are gone before it is freed. The collector sees nothing of it: nothing borrowed may lead to the
    handle."""

    __slots__ = ("borrowed", "closing")
    __hash__ = object.__hash__
    __eq__ = object.__eq__
    borrowed: Any
    closing: _Closing


_borrowings: set[_Borrowing] = set()
_forget = _borrowings.discard
_close = methodcaller("close")


def _empty(borrowed: Any, free: Callable[[Any], None]) -> Handle:
    """A handle to put an address in."""
    address = ctypes.c_void_p()
    handle = Handle.from_buffer(address)  # so that what frees needs no handle to know what it holds
    _untrack(handle)
    kept = _Borrowing(handle, _forget)
    kept.borrowed = borrowed
    kept.closing = _Closing(handle, _close)  # the later of two callbacks is called first
    kept.closing.close = partial(free, address)
    _borrowings.add(kept)
    return handle


def opened(call: Callable[[Handle], int], borrowed: Any = None, free: Callable[[Any], None] = _abi.st_close) -> Handle:
    """The handle in which a call puts what it opens; freed, if anything is raised although the call was made."""
    handle = _empty(borrowed, free)
    try:
        check(call(handle))
        return handle
    except BaseException:
        # At once, as the traceback may keep the handle; and emptied first, with nothing between at which to raise.
        address, handle.value = handle.value, None
        free(address)
        raise
    finally:
        del call, borrowed, handle  # not in the traceback of an error, where they would keep a file open


def borrowed_by(handle: Handle) -> Any:
    """What an open handle borrows, for another handle of the same file to borrow as well."""
    for kept in weakref.getweakrefs(handle):
        if type(kept) is _Borrowing:
            return kept.borrowed
    raise AssertionError  # each handle has one


class Memory:
    """A stretch of memory of its owner, as numpy wants to see it."""

    __slots__ = ("_address", "_nbytes", "_writable", "_owner")

    def __init__(self, owner: ctypes.c_void_p, address: int, nbytes: int, writable: bool) -> None:
        self._owner = owner
        self._address = address
        self._nbytes = nbytes
        self._writable = writable

    def __reduce__(self) -> NoReturn:
        raise TypeError("memory of a file cannot be copied or pickled")

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Made when numpy asks, which it does once: it would be three objects for the cycle collector."""
        return {
            "version": 3,
            "data": (self._address, not self._writable),
            "shape": (self._nbytes,),
            "typestr": "|u1",
        }

    def buffer(self) -> Any:
        """A buffer to lay arrays and tensors over. What lies over it keeps the stretch, and so its owner.

        A memoryview, as numpy takes that up twice as fast as an array. If it is not writable nobody can make an array
        over it so: its owner offers only a read-only buffer. If it is writable most likely torch's tensors lie over it:
        then the array, which is two objects less for the cycle collector.
        """
        array: Any = np.asarray(self)
        return array if self._writable else memoryview(array)


class _Freeing(weakref.ref["Mapping"]):
    """Frees what a dead Mapping kept."""

    __slots__ = ()
    free: Any = _abi.st_mapping_free


class Mapping(Memory):
    """The mapping of a file, kept alone: an st_mapping.

    It is freed as a Handle is. But it is no object of ctypes, whose attributes go before its weak references. So it
    holds the one that frees it, and that is half as many objects for the cycle collector.
    """

    __slots__ = ("_freeing", "__weakref__")

    def __init__(self, address: int, nbytes: int, writable: bool) -> None:
        super().__init__(ctypes.c_void_p(), address, nbytes, writable)
        _untrack(self)
        self._freeing = _Freeing(self, methodcaller("free", self._owner))

    def keep(self, handle: Handle) -> int:
        """Keep the mapping of that file; where it begins, 0 if it cannot be kept."""
        begin = ctypes.c_void_p()
        failed = _abi.st_mapping_keep(handle, self._owner, begin, None)
        return 0 if failed else begin.value or 0
