"""libst through ctypes: just what the storage tests need of st.h."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from contextlib import contextmanager
from ctypes import POINTER, Structure, byref, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ST_BUILD") or os.environ.get("BUILD") or ROOT / "build").resolve()
LIBRARY = Path(os.environ.get("LIBST_LIBRARY") or BUILD / "capi" / "libst.so.2").resolve()

READ_WRITE = 1
FOREVER = -1
MAP_AUTO, MAP_SHARED, MAP_PRIVATE, MAP_NONE = range(4)
STORAGE = ("unknown", "local", "memory", "network", "parallel", "fuse", "object store")
PREFETCH_AUTO, PREFETCH_NONE, PREFETCH_SEQUENTIAL, PREFETCH_PARALLEL = range(4)
DIRECT_AUTO, DIRECT_OFF, DIRECT_ON = range(3)
LOAD_HUGE_PAGES, LOAD_DIRECT = 1, 2

LogFn = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_char_p)
ProgressFn = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p, c_uint64, c_uint64)


class Tensor(Structure):
    _fields_ = [
        ("name", c_void_p),
        ("name_len", c_size_t),
        ("dtype", c_uint32),
        ("rank", c_uint32),
        ("shape", POINTER(c_uint64)),
        ("data", c_void_p),
        ("nbytes", c_uint64),
        ("file_offset", c_uint64),
        ("shard", c_uint32),
        ("reserved0", c_uint32),
        ("reserved", c_uint64 * 2),
    ]


class OpenOptions(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("map", c_uint32),
        ("lock_timeout_ms", c_int32),
        ("progress", c_void_p),
        ("progress_user", c_void_p),
        ("log", LogFn),
        ("log_user", c_void_p),
        ("prefetch", c_uint32),
        ("direct", c_uint32),
        ("io_threads", c_uint32),
        ("block_size", c_uint32),
        ("worker_index", c_uint32),
        ("worker_count", c_uint32),
        ("memory_limit", c_uint64),
    ]


class ErrorInfo(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("status", c_int32),
        ("os_errno", c_int32),
        ("shard", c_uint32),
        ("offset", c_uint64),
        ("message", c_char_p),
        ("tensor", c_char_p),
        ("tensor_len", c_size_t),
        ("holder_pid", c_int64),
    ]


class IoInfo(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("storage", c_uint32),
        ("map", c_uint32),
        ("map_fallbacks", c_uint32),
        ("file_size", c_uint64),
        ("header_size", c_uint64),
        ("data_offset", c_uint64),
        ("filesystem", ctypes.c_char * 64),
        ("reason", ctypes.c_char * 256),
        ("prefetch", c_uint32),
        ("direct", c_uint32),
        ("io_threads", c_uint32),
        ("block_size", c_uint32),
        ("prefetch_reason", ctypes.c_char * 256),
    ]


class Stats(Structure):
    _fields_ = [("struct_size", c_uint32), ("map_fallbacks", c_uint32)] + [
        (name, c_uint64)
        for name in (
            "bytes_read bytes_mapped bytes_resident bytes_private_dirty bytes_owned index_bytes bytes_written "
            "journal_bytes commits recoveries lock_waits read_requests bytes_prefetched reopens"
        ).split()
    ]


class Range(Structure):
    _fields_ = [("start", c_int64), ("stop", c_int64), ("step", c_int64)]


class ReadRequest(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("name_len", c_size_t),
        ("index", c_uint64),
        ("dst", c_void_p),
        ("dst_size", c_size_t),
        ("ranges", POINTER(Range)),
        ("range_count", c_size_t),
    ]


class LoadOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("progress", c_void_p), ("progress_user", c_void_p)]


# The names of the statuses, from the header itself.
STATUS = {
    int(number): name
    for name, number in re.findall(
        r"^#define (ST_OK|ST_E_\w+) (\d+)", (ROOT / "capi/include/st/st.h").read_text(), re.MULTILINE
    )
}


class StError(Exception):
    def __init__(self, status, message, os_errno):
        super().__init__(f"{status}: {message}")
        self.status, self.message, self.os_errno = status, message, os_errno


def _load():
    lib = ctypes.CDLL(str(LIBRARY))
    handle, name = c_void_p, [c_char_p, c_size_t]
    signatures = {
        "st_open": [c_char_p, POINTER(OpenOptions), POINTER(handle)],
        "st_close": [handle],
        "st_at": [handle, c_size_t, POINTER(Tensor)],
        "st_find": [handle, *name, POINTER(c_size_t)],
        "st_get_n": [handle, *name, POINTER(Tensor)],
        "st_read_n": [handle, *name, c_void_p, c_size_t, c_void_p],
        "st_update_n": [handle, *name, POINTER(Tensor)],
        "st_begin": [handle, c_void_p, POINTER(handle)],
        "st_txn_update_n": [handle, *name, POINTER(Tensor)],
        "st_commit": [handle],
        "st_abort": [handle],
        "st_verify": [c_char_p, c_void_p, c_void_p],
        "st_recover": [c_char_p],
        "st_get_io_info": [handle, POINTER(IoInfo)],
        "st_get_stats": [handle, POINTER(Stats)],
        "st_read_many": [handle, POINTER(ReadRequest), c_size_t, c_void_p, c_void_p],
        "st_prefetch": [handle, POINTER(c_char_p), c_size_t],
        "st_prefetch_at": [handle, POINTER(c_uint64), c_size_t, c_void_p, c_void_p],
        "st_load": [handle, POINTER(c_uint64), c_size_t, POINTER(LoadOptions)],
        "st_last_error_info": [POINTER(ErrorInfo)],
    }
    for function, arguments in signatures.items():
        getattr(lib, function).argtypes = arguments
        getattr(lib, function).restype = c_int32
    lib.st_count.argtypes, lib.st_count.restype = [handle], c_size_t
    lib.st_abort.restype = None
    return lib


lib = _load()


def check(status):
    if status == 0:
        return
    info = ErrorInfo(struct_size=ctypes.sizeof(ErrorInfo))
    lib.st_last_error_info(byref(info))
    raise StError(STATUS.get(status, str(status)), (info.message or b"").decode(), info.os_errno)


def recover(path):
    check(lib.st_recover(os.fsencode(path)))


def verify(path):
    check(lib.st_verify(os.fsencode(path), None, None))


def status_of(call, *arguments, **options):
    """The name of the status that a call answers."""
    try:
        call(*arguments, **options)
    except StError as e:
        return e.status
    return "ST_OK"


def _progress(call):
    """A callback that lives as long as what it answers is used."""
    if call is None:
        return None
    function = ProgressFn(lambda user, done, total: int(bool(call(done, total))))
    pointer = ctypes.cast(function, c_void_p)
    pointer.function = function
    return pointer


class File:
    """An open file. `log` collects what libst had to say."""

    def __init__(self, path, writable=True, map=MAP_AUTO, lock_timeout_ms=10_000, **reading):
        """`reading`: the fields of the options that say how to read."""
        self.log = []
        self._log_fn = LogFn(lambda user, level, message: self.log.append(message.decode()))
        options = OpenOptions(
            struct_size=ctypes.sizeof(OpenOptions),
            flags=READ_WRITE if writable else 0,
            map=map,
            lock_timeout_ms=lock_timeout_ms,
            log=self._log_fn,
            **reading,
        )
        self._handle = c_void_p()
        check(lib.st_open(os.fsencode(path), byref(options), byref(self._handle)))

    def close(self):
        handle, self._handle = self._handle, c_void_p()
        check(lib.st_close(handle))

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
            t = Tensor()
            check(lib.st_at(self._handle, i, byref(t)))
            result.append(ctypes.string_at(t.name, t.name_len).decode())
        return result

    def describe(self, name):
        index, t = c_size_t(), Tensor()
        check(lib.st_find(self._handle, name.encode(), len(name.encode()), byref(index)))
        check(lib.st_at(self._handle, index, byref(t)))
        return t

    def read(self, name):
        nbytes = self.describe(name).nbytes
        buffer = ctypes.create_string_buffer(nbytes)
        check(lib.st_read_n(self._handle, name.encode(), len(name.encode()), buffer, nbytes, None))
        return buffer.raw

    def shown(self, name):
        """What st_get answers."""
        t = Tensor()
        check(lib.st_get_n(self._handle, name.encode(), len(name.encode()), byref(t)))
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
        check(lib.st_update_n(self._handle, name.encode(), len(name.encode()), byref(self._value(name, payload))))

    def update_all(self, payloads):
        """One transaction: a dict of names and bytes."""
        self.update_from({name: self._value(name, payload) for name, payload in payloads.items()})

    def update_from(self, values):
        """The same of names and tensors, whose data must stay."""
        txn = c_void_p()
        check(lib.st_begin(self._handle, None, byref(txn)))
        for name, value in values.items():
            status = lib.st_txn_update_n(txn, name.encode(), len(name.encode()), byref(value))
            if status != 0:
                try:
                    check(status)
                finally:
                    lib.st_abort(txn)
        status = lib.st_commit(txn)
        if STATUS.get(status) == "ST_E_BUSY":
            try:
                check(status)
            finally:
                lib.st_abort(txn)
        check(status)

    def io_info(self):
        info = IoInfo(struct_size=ctypes.sizeof(IoInfo))
        check(lib.st_get_io_info(self._handle, byref(info)))
        return info

    def stats(self):
        stats = Stats(struct_size=ctypes.sizeof(Stats))
        check(lib.st_get_stats(self._handle, byref(stats)))
        return stats

    def read_many(self, names=None, progress=None):
        """These tensors (all), by name. `progress(done, total)` cancels by answering something true."""
        sizes = {name: self.describe(name).nbytes for name in names or self.names()}
        buffers = {name: memoryview(mmap.mmap(-1, n))[:n] if n else b"" for name, n in sizes.items()}  # at page bounds
        requests = (ReadRequest * len(buffers))()
        for request, (name, buffer) in zip(requests, buffers.items(), strict=True):
            request.name, request.name_len = name.encode(), len(name.encode())
            request.dst_size = len(buffer)
            request.dst = ctypes.addressof(ctypes.c_char.from_buffer(buffer)) if buffer else None
        check(lib.st_read_many(self._handle, requests, len(requests), _progress(progress), None))
        return buffers

    def prefetch(self, names=None):
        if names is None:
            check(lib.st_prefetch(self._handle, None, 0))
        else:
            check(lib.st_prefetch(self._handle, (c_char_p * len(names))(*(n.encode() for n in names)), len(names)))

    def prefetch_at(self, indices=None, progress=None):
        chosen = (c_uint64 * len(indices))(*indices) if indices is not None else None
        check(lib.st_prefetch_at(self._handle, chosen, len(indices or ()), _progress(progress), None))

    def load(self, indices=None, flags=0, progress=None):
        """Into memory of the handle: views then show that."""
        options = LoadOptions(struct_size=ctypes.sizeof(LoadOptions), flags=flags, progress=_progress(progress))
        chosen = (c_uint64 * len(indices))(*indices) if indices is not None else None
        check(lib.st_load(self._handle, chosen, len(indices or ()), byref(options)))


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
