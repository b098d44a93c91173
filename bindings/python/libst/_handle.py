"""Own an st_file, and close it when nothing points into it any more.

Views are numpy arrays whose base leads, through a Memory, to the Handle. So the
handle outlives `File.close()` for as long as a view lives, and no longer. It is
that of a Pin: a File has a Handle of its own, from which no pointer is taken.
"""

import ctypes
from typing import Any, Callable, NoReturn

import numpy as np

from . import _abi
from .errors import check

# What an open st_file borrows (C callbacks, the bytes of open_memory), by its
# address. Here and not in attributes of the handle: the cycle collector clears
# attributes in no order, and these must outlive st_close.
_borrowed: dict[int, Any] = {}


# void PyObject_GC_UnTrack(void *op)
_untrack = ctypes.pythonapi.PyObject_GC_UnTrack
_untrack.argtypes = [ctypes.py_object]
_untrack.restype = None


class Handle(int):
    """The address of an st_file, which its last reference closes.

    An int, so that it is passed to C as it is. The cycle collector must not know it:
    that calls `__del__` of all objects of a dead cycle, in no good order, before it frees
    any, and a `__del__` among them may still use the file, as Transaction's does. So it is
    untracked, which an object without references to others may be, and its own
    `__del__` runs when nothing refers to it any more.
    """

    __slots__ = ()

    def __new__(cls, out: ctypes.c_void_p, borrowed: Any = None) -> "Handle":
        """Of what `out` holds, which is then empty: it is this handle's to close, at one step from when it was not.

        A signal's handler may raise before that step or after it, and either way it is closed once.
        """
        address = out.value
        assert address is not None
        self = super().__new__(cls, address)
        _untrack(self)
        out.value = None
        _borrowed[address] = borrowed
        return self

    def __del__(self, _close: Any = _abi.st_close, _owned: Any = _borrowed) -> None:
        address = int(self)
        if address in _owned:
            borrowed = _owned.pop(address)  # first: the address may be given out again
            _close(address)
            del borrowed

    def __reduce__(self) -> NoReturn:
        raise TypeError("a handle cannot be copied or pickled")


def opened(out: ctypes.c_void_p, call: Callable[[], int], borrowed: Any = None) -> Handle:
    """The handle that a call puts out; closed, if anything is raised although the call was made."""
    try:
        check(call())
        return Handle(out, borrowed)
    except BaseException:
        _abi.st_close(out)
        raise
    finally:
        del call, borrowed  # not in the traceback of an error, where they would keep a file open


def borrowed_by(handle: Handle) -> Any:
    """What an open handle borrows, for another handle of the same file to borrow as well."""
    return _borrowed[handle]


class Memory:
    """A stretch of read-only memory of a handle, as numpy wants to see it."""

    __slots__ = ("__array_interface__", "handle")

    def __init__(self, handle: Handle, address: int, nbytes: int) -> None:
        self.handle = handle
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),  # read-only
            "shape": (nbytes,),
            "typestr": "|u1",
        }


def memory(handle: Handle, address: int, nbytes: int) -> memoryview:
    """That stretch as a buffer to lay arrays over. What lies over it keeps the handle.

    A memoryview, as numpy takes that up twice as fast as an array. Nobody can
    make an array over it writable: its owner offers only a read-only buffer.
    """
    array: Any = np.asarray(Memory(handle, address, nbytes))
    return memoryview(array)
