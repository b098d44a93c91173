"""libst through its C ABI, by ctypes alone: so that a verdict here is the library's and not a binding's. Of the Python
package this takes only its table of st.h, by its path.

Knows only what the differential tests need: open, list, view, update, verify.
"""

from __future__ import annotations

import ctypes as c
import os
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(os.environ.get("LIBST_LIBRARY", ROOT / "build/capi/libst.so.2"))

_spec = spec_from_file_location("_st_h", ROOT / "bindings/python/libst/_st_h.py")
st_h = module_from_spec(_spec)
_spec.loader.exec_module(st_h)
MAP_AUTO, MAP_NONE = st_h.ST_MAP_AUTO, st_h.ST_MAP_NONE


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: list[int]
    data: bytes
    file_offset: int


class Refused(Exception):
    """A status other than ST_OK; `status` is its name."""

    def __init__(self, status: str, message: str):
        super().__init__(f"{status}: {message}")
        self.status = status


_lib: c.CDLL | None = None


def lib() -> c.CDLL:
    global _lib
    if _lib is None:
        _lib = c.CDLL(str(LIBRARY))
        st_h.declare(_lib)
    return _lib


def status_name(status: int) -> str:
    return lib().st_status_name(status).decode()


def _check(status: int) -> None:
    if status != 0:
        raise Refused(status_name(status), lib().st_last_error().decode("utf-8", "replace"))


class Closes:
    """What `with` closes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class File(Closes):
    """An open handle. `File(path)` or `File(memory=bytes)`; close it, or use `with`."""

    def __init__(
        self,
        path: str | os.PathLike | None = None,
        *,
        memory: bytes | None = None,
        map: int = MAP_AUTO,
        write: bool = False,
    ):
        self._handle = c.c_void_p()
        self._memory = memory  # borrowed by the handle until close
        if memory is not None:
            _check(lib().st_open_memory(memory, len(memory), c.byref(self._handle)))
        else:
            flags = st_h.ST_OPEN_READ_WRITE if write else 0
            options = st_h.OpenOptions(struct_size=c.sizeof(st_h.OpenOptions), map=map, flags=flags)
            _check(lib().st_open(os.fsencode(path), c.byref(options), c.byref(self._handle)))

    def close(self) -> None:
        handle, self._handle = self._handle, None
        lib().st_close(handle)

    def tensors(self, *, data: bool = True) -> dict[str, Tensor]:
        """Everything in the file, in the order of offsets. Also checks that st_find agrees with the order."""
        found: dict[str, Tensor] = {}
        previous = 0
        for i in range(lib().st_count(self._handle)):
            t = st_h.Tensor()
            out = c.byref(t)
            _check(lib().st_get_at(self._handle, i, out) if data else lib().st_at(self._handle, i, 1, out))
            raw_name = c.string_at(t.name, t.name_len)
            index = c.c_size_t()
            _check(lib().st_find(self._handle, raw_name, len(raw_name), c.byref(index)))
            assert index.value == i, (raw_name, index.value, i)
            assert c.string_at(t.name + t.name_len, 1) == b"\0", "names end in NUL"
            assert t.file_offset >= previous and t.shard == 0 and t.reserved0 == 0
            previous = t.file_offset
            content = c.string_at(t.data, t.nbytes) if data and t.nbytes else b""
            shape = [t.shape[d] for d in range(t.rank)]
            found[raw_name.decode()] = Tensor(lib().st_dtype_name(t.dtype).decode(), shape, content, t.file_offset)
        return found

    def metadata(self) -> dict[str, str]:
        """What st_metadata_get answers for every key that st_metadata_at lists."""
        found = {}
        key, value, key_len, value_len = c.c_void_p(), c.c_void_p(), c.c_size_t(), c.c_size_t()
        for i in range(lib().st_metadata_count(self._handle)):
            _check(lib().st_metadata_at(self._handle, i, *map(c.byref, (key, key_len, value, value_len))))
            k = c.string_at(key, key_len.value)
            _check(lib().st_metadata_get(self._handle, k, len(k), c.byref(value), c.byref(value_len)))
            found[k.decode()] = c.string_at(value, value_len.value).decode()
        return found

    def update(self, name: str, data: bytes) -> None:
        """st_update with the tensor's own dtype and shape."""
        t, raw_name = st_h.Tensor(), name.encode()
        _check(lib().st_describe(self._handle, raw_name, len(raw_name), c.byref(t)))
        keep = c.create_string_buffer(data, len(data))
        t.data, t.nbytes = c.cast(keep, c.c_void_p), len(data)
        _check(lib().st_update(self._handle, raw_name, len(raw_name), c.byref(t)))


def verify(path: str | os.PathLike) -> str:
    """The name of the status of st_verify."""
    return status_name(lib().st_verify(os.fsencode(path), None))
