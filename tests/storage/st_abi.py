"""libst through ctypes, without the Python package: of that only its table of st.h, by its path."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_size_t, c_void_p
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ST_BUILD") or os.environ.get("BUILD") or ROOT / "build").resolve()
LIBRARY = Path(os.environ.get("LIBST_LIBRARY") or BUILD / "capi" / "libst.so.2").resolve()

_spec = spec_from_file_location("_st_h", ROOT / "bindings/python/libst/_st_h.py")
st_h = module_from_spec(_spec)
_spec.loader.exec_module(st_h)

CONSTANTS = {name: value for name, value in vars(st_h).items() if name.startswith("ST_")}
STATUS = {value: name for name, value in CONSTANTS.items() if name == "ST_OK" or name.startswith("ST_E_")}
STORAGE = {value: name[11:].lower().replace("_", " ") for name, value in CONSTANTS.items() if "_STORAGE_" in name}
MAP_AUTO, MAP_SHARED = st_h.ST_MAP_AUTO, st_h.ST_MAP_SHARED
MAP_PRIVATE, MAP_NONE = st_h.ST_MAP_PRIVATE, st_h.ST_MAP_NONE
PREFETCH_NONE, PREFETCH_SEQUENTIAL = st_h.ST_PREFETCH_NONE, st_h.ST_PREFETCH_SEQUENTIAL
PREFETCH_PARALLEL = st_h.ST_PREFETCH_PARALLEL

lib = ctypes.CDLL(str(LIBRARY))
st_h.declare(lib)


class StError(Exception):
    def __init__(self, status, message, os_errno):
        super().__init__(f"{status}: {message}")
        self.status, self.message, self.os_errno = status, message, os_errno


def check(status):
    if status == 0:
        return
    info = st_h.ErrorInfo(struct_size=ctypes.sizeof(st_h.ErrorInfo))
    lib.st_last_error_info(byref(info))
    raise StError(STATUS.get(status, str(status)), (info.message or b"").decode(), info.os_errno)


def recover(path):
    check(lib.st_recover(os.fsencode(path), None))


def verify(path):
    check(lib.st_verify(os.fsencode(path), None))


def status_of(call, *arguments, **options):
    """The name of the status that a call answers."""
    try:
        call(*arguments, **options)
    except StError as e:
        return e.status
    return "ST_OK"


def _bulk(progress, flags=0):
    options = st_h.BulkOptions(struct_size=ctypes.sizeof(st_h.BulkOptions), flags=flags)
    if progress:
        options.progress = st_h.progress_fn(lambda user, done, total: int(bool(progress(done, total))))
    return options


class File:
    """An open file. `log` collects what libst had to say."""

    def __init__(self, path, writable=True, map=MAP_AUTO, lock_timeout_ms=st_h.ST_TIMEOUT_DEFAULT, **reading):
        """`reading`: the fields of the options that say how to read."""
        self.log = []
        self._log_fn = st_h.log_fn(lambda user, level, message: self.log.append(message.decode()))
        options = st_h.OpenOptions(
            struct_size=ctypes.sizeof(st_h.OpenOptions),
            flags=st_h.ST_OPEN_READ_WRITE if writable else 0,
            map=map,
            lock_timeout_ms=lock_timeout_ms,
            log=self._log_fn,
            **reading,
        )
        self._handle = c_void_p()
        check(lib.st_open(os.fsencode(path), byref(options), byref(self._handle)))

    def close(self):
        handle, self._handle = self._handle, c_void_p()
        lib.st_close(handle)

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def names(self):
        result = []
        for i in range(lib.st_count(self._handle)):
            t = st_h.Tensor()
            check(lib.st_at(self._handle, i, 1, byref(t)))
            result.append(ctypes.string_at(t.name, t.name_len).decode())
        return result

    def describe(self, name):
        t = st_h.Tensor()
        check(lib.st_describe(self._handle, name.encode(), len(name.encode()), byref(t)))
        return t

    def read(self, name):
        nbytes = self.describe(name).nbytes
        buffer = ctypes.create_string_buffer(nbytes)
        check(lib.st_read(self._handle, name.encode(), len(name.encode()), buffer, nbytes, None))
        return buffer.raw

    def shown(self, name):
        """What st_get answers."""
        t = st_h.Tensor()
        check(lib.st_get(self._handle, name.encode(), len(name.encode()), byref(t)))
        return t

    def view(self, name):
        """A copy of the bytes that st_get shows."""
        t = self.shown(name)
        return ctypes.string_at(t.data, t.nbytes) if t.nbytes else b""

    def _value(self, name, payload):
        t = self.describe(name)
        assert t.nbytes == len(payload)
        t.data = ctypes.cast(c_char_p(payload), c_void_p)
        return t

    def update(self, name, payload):
        check(lib.st_update(self._handle, name.encode(), len(name.encode()), byref(self._value(name, payload))))

    def update_all(self, payloads, publish=False):
        """One transaction: a dict of names and bytes."""
        self.update_from({name: self._value(name, payload) for name, payload in payloads.items()}, publish)

    def update_from(self, values, publish=False):
        """The same of names and tensors, whose data must stay."""
        txn = c_void_p()
        options = st_h.TxnOptions(struct_size=ctypes.sizeof(st_h.TxnOptions), flags=st_h.ST_TXN_PUBLISH)
        options.lock_timeout_ms = st_h.ST_TIMEOUT_DEFAULT
        check(lib.st_txn_begin(self._handle, byref(options) if publish else None, byref(txn)))
        try:
            for name, value in values.items():
                check(lib.st_txn_update(txn, name.encode(), len(name.encode()), byref(value)))
            check(lib.st_txn_commit(txn))
        finally:
            lib.st_txn_free(txn)

    def refresh(self):
        check(lib.st_refresh(self._handle))

    def io_info(self):
        info = st_h.IoInfo(struct_size=ctypes.sizeof(st_h.IoInfo))
        check(lib.st_file_io_info(self._handle, byref(info)))
        return info

    def stats(self):
        stats = st_h.Stats(struct_size=ctypes.sizeof(st_h.Stats))
        check(lib.st_file_stats(self._handle, byref(stats)))
        return stats

    def read_many(self, names=None, progress=None):
        """These tensors (all), by name. `progress(done, total)` cancels by answering something true."""
        sizes = {name: self.describe(name).nbytes for name in names or self.names()}
        buffers = {name: memoryview(mmap.mmap(-1, n))[:n] if n else b"" for name, n in sizes.items()}  # at page bounds
        encoded = {name: ctypes.create_string_buffer(name.encode()) for name in sizes}
        requests = (st_h.ReadRequest * len(buffers))()
        for request, (name, buffer) in zip(requests, buffers.items(), strict=True):
            request.name, request.name_len = ctypes.addressof(encoded[name]), len(encoded[name]) - 1
            request.dst_size = len(buffer)
            request.dst = ctypes.addressof(ctypes.c_char.from_buffer(buffer)) if buffer else None
        check(lib.st_read_many(self._handle, requests, len(requests), byref(_bulk(progress))))
        return buffers

    def prefetch(self, names=None, progress=None):
        """These tensors (all), by name."""
        every = self.names()
        chosen = None if names is None else (c_size_t * len(names))(*map(every.index, names))
        check(lib.st_prefetch(self._handle, chosen, len(names or ()), byref(_bulk(progress))))

    def load(self, indices=None, flags=0, progress=None):
        """Into memory of the handle: views then show that."""
        chosen = None if indices is None else (c_size_t * len(indices))(*indices)
        check(lib.st_load(self._handle, chosen, len(indices or ()), byref(_bulk(progress, flags))))


def resident(mapping):
    """How many bytes of a writable (private) Python mapping are in memory."""
    pages = -(-len(mapping) // mmap.PAGESIZE)
    vector = (ctypes.c_ubyte * pages)()
    here = ctypes.c_char.from_buffer(mapping)
    status = ctypes.CDLL(None).mincore(c_void_p(ctypes.addressof(here)), c_size_t(len(mapping)), vector)
    del here
    assert status == 0, "mincore failed"
    return sum(page & 1 for page in vector) * mmap.PAGESIZE


@contextmanager
def refused(*statuses):
    """The block must fail with one of these statuses; `as` gives the error."""
    caught = StError("", "", 0)
    try:
        yield caught
    except StError as e:
        assert e.status in statuses, f"{e.status} ({e.message}), not {' or '.join(statuses)}"
        assert e.message, "a failure without a word"
        caught.__init__(e.status, e.message, e.os_errno)
        return
    raise AssertionError(f"ST_OK, not {' or '.join(statuses)}")
