"""Generated from capi/include/st/st.h by capi/generate.py; do not edit.

st.h in ctypes. It needs no library, so tests can load it by its path. A handle is
an address; so is, in structs and results, a string with a length beside it, as it may hold NUL.
"""

import ctypes
from ctypes import POINTER, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

c_status = c_int32
c_dtype = c_uint32


progress_fn = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)


log_fn = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_char_p)


class SourceRange(ctypes.Structure):
    _fields_ = [
        ("offset", c_uint64),
        ("nbytes", c_uint64),
        ("dst", c_void_p),
    ]


source_read_fn = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(SourceRange), c_size_t)


source_close_fn = ctypes.CFUNCTYPE(None, c_void_p)


class Report(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("level", c_uint32),
        ("status", c_status),
        ("reserved0", c_uint32),
        ("offset", c_uint64),
        ("message", c_char_p),
        ("reserved1", c_size_t),
    ]


report_fn = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Report))


class ErrorInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("status", c_status),
        ("os_errno", c_int32),
        ("shard", c_uint32),
        ("offset", c_uint64),
        ("message", c_char_p),
        ("tensor", c_void_p),
        ("tensor_len", c_size_t),
        ("holder_pid", c_int64),
    ]


class OpenOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("map", c_uint32),
        ("lock_timeout_ms", c_int32),
        ("progress", progress_fn),
        ("progress_user", c_void_p),
        ("log", log_fn),
        ("log_user", c_void_p),
        ("prefetch", c_uint32),
        ("direct", c_uint32),
        ("io_threads", c_uint32),
        ("block_size", c_uint32),
        ("worker_index", c_uint32),
        ("worker_count", c_uint32),
        ("memory_limit", c_uint64),
        ("deltas", POINTER(c_char_p)),
        ("delta_count", c_size_t),
    ]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", c_void_p),
        ("name_len", c_size_t),
        ("dtype", c_dtype),
        ("rank", c_uint32),
        ("shape", POINTER(c_uint64)),
        ("data", c_void_p),
        ("nbytes", c_uint64),
        ("file_offset", c_uint64),
        ("shard", c_uint32),
        ("reserved0", c_uint32),
        ("reserved", c_uint64 * 2),
    ]


class Range(ctypes.Structure):
    _fields_ = [
        ("start", c_int64),
        ("stop", c_int64),
        ("step", c_int64),
    ]


class TxnOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("lock_timeout_ms", c_int32),
        ("shard_grace_s", c_uint32),
        ("progress", progress_fn),
        ("progress_user", c_void_p),
        ("layout", c_uint32),
        ("alignment", c_uint32),
        ("header_reserve", c_uint64),
    ]


class Plan(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_uint32),
        ("file_size", c_uint64),
        ("data_offset", c_uint64),
        ("bytes_written", c_uint64),
        ("bytes_shared", c_uint64),
        ("bytes_copied", c_uint64),
        ("space_needed", c_uint64),
        ("space_free", c_uint64),
        ("how", c_char * 256),
    ]


class Metadata(ctypes.Structure):
    _fields_ = [
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("value", c_void_p),
        ("value_len", c_size_t),
    ]


class SaveOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("layout", c_uint32),
        ("alignment", c_uint32),
        ("header_reserve", c_uint64),
        ("lock_timeout_ms", c_int32),
        ("reserved0", c_uint32),
        ("progress", progress_fn),
        ("progress_user", c_void_p),
    ]


class Source(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("most_reads", c_uint32),
        ("size", c_uint64),
        ("name", c_char_p),
        ("identity", c_char_p),
        ("read", source_read_fn),
        ("close", source_close_fn),
        ("user", c_void_p),
        ("reserved0", c_size_t),
    ]


class BulkOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("progress", progress_fn),
        ("progress_user", c_void_p),
    ]


class ReadRequest(ctypes.Structure):
    _fields_ = [
        ("name", c_void_p),
        ("name_len", c_size_t),
        ("index", c_size_t),
        ("dst", c_void_p),
        ("dst_size", c_size_t),
        ("ranges", POINTER(Range)),
        ("range_count", c_size_t),
        ("reserved", c_uint64),
    ]


class DeltaCreateOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("alignment", c_uint32),
        ("lock_timeout_ms", c_int32),
        ("reserved0", c_uint32),
        ("progress", progress_fn),
        ("progress_user", c_void_p),
    ]


class DeltaApplyOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("reverse", c_char_p),
        ("lock_timeout_ms", c_int32),
        ("reserved0", c_uint32),
        ("progress", progress_fn),
        ("progress_user", c_void_p),
    ]


class DeltaInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved0", c_uint32),
        ("changed", c_uint64),
        ("added", c_uint64),
        ("deleted", c_uint64),
        ("metadata_set", c_uint64),
        ("metadata_removed", c_uint64),
        ("data_bytes", c_uint64),
        ("base", c_char * 40),
        ("result", c_char * 40),
        ("file_size", c_uint64),
    ]


class VerifyOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved0", c_uint32),
        ("report", report_fn),
        ("report_user", c_void_p),
        ("progress", progress_fn),
        ("progress_user", c_void_p),
        ("deltas", POINTER(c_char_p)),
        ("delta_count", c_size_t),
    ]


class RecoverOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("lock_timeout_ms", c_int32),
        ("report", report_fn),
        ("report_user", c_void_p),
        ("progress", progress_fn),
        ("progress_user", c_void_p),
    ]


class IoInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("storage", c_uint32),
        ("map", c_uint32),
        ("map_fallbacks", c_uint32),
        ("file_size", c_uint64),
        ("header_size", c_uint64),
        ("data_offset", c_uint64),
        ("filesystem", c_char * 64),
        ("reason", c_char * 256),
        ("prefetch", c_uint32),
        ("direct", c_uint32),
        ("io_threads", c_uint32),
        ("block_size", c_uint32),
        ("prefetch_reason", c_char * 256),
    ]


class Stats(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("map_fallbacks", c_uint32),
        ("bytes_read", c_uint64),
        ("bytes_mapped", c_uint64),
        ("bytes_resident", c_uint64),
        ("bytes_private_dirty", c_uint64),
        ("bytes_owned", c_uint64),
        ("index_bytes", c_uint64),
        ("bytes_written", c_uint64),
        ("journal_bytes", c_uint64),
        ("commits", c_uint64),
        ("recoveries", c_uint64),
        ("lock_waits", c_uint64),
        ("read_requests", c_uint64),
        ("bytes_prefetched", c_uint64),
        ("reopens", c_uint64),
    ]


ST_VERSION_MAJOR = 2
ST_VERSION_MINOR = 0
ST_VERSION_PATCH = 0
ST_NTS = -1
ST_OK = 0
ST_E_INVALID_ARGUMENT = 1
ST_E_NOMEM = 2
ST_E_INTERNAL = 3
ST_E_UNSUPPORTED = 4
ST_E_CANCELLED = 5
ST_E_INTERRUPTED = 6
ST_E_NOT_FOUND = 7
ST_E_OUT_OF_RANGE = 8
ST_E_BUFFER_SIZE = 9
ST_E_READ_ONLY = 10
ST_E_BUSY = 11
ST_E_FORKED = 12
ST_E_IO = 20
ST_E_NO_FILE = 21
ST_E_PERMISSION = 22
ST_E_NO_SPACE = 23
ST_E_NOT_REGULAR = 24
ST_E_FILE_CHANGED = 25
ST_E_LOCK_UNSUPPORTED = 26
ST_E_POISONED = 27
ST_E_CHECKSUM = 28
ST_E_HEADER_TOO_SMALL = 40
ST_E_HEADER_TOO_LARGE = 41
ST_E_HEADER_TRUNCATED = 42
ST_E_HEADER_UTF8 = 43
ST_E_HEADER_JSON = 44
ST_E_METADATA = 45
ST_E_TENSOR_INFO = 46
ST_E_DTYPE = 47
ST_E_SHAPE_OVERFLOW = 48
ST_E_OFFSETS = 49
ST_E_OVERLAP = 50
ST_E_HOLE = 51
ST_E_SIZE_MISMATCH = 52
ST_E_SUBBYTE = 53
ST_E_TRUNCATED = 54
ST_E_TRAILING_DATA = 55
ST_E_DUPLICATE_NAME = 56
ST_E_SHARD_INDEX = 57
ST_E_SHARD_MISSING = 58
ST_E_SHARD_TENSOR = 59
ST_E_SHARD_DUPLICATE = 60
ST_E_SHARD_PATH = 61
ST_E_DELTA = 62
ST_E_DELTA_BASE = 63
ST_E_DTYPE_MISMATCH = 70
ST_E_SHAPE_MISMATCH = 71
ST_E_NBYTES_MISMATCH = 72
ST_E_NEEDS_RECOVERY = 73
ST_E_JOURNAL = 74
ST_E_TXN_FAILED = 75
ST_E_HARD_LINKS = 80
ST_E_INCOMPLETE = 81
ST_ACTION_NONE = 0
ST_ACTION_FIX = 1
ST_ACTION_RETRY = 2
ST_ACTION_REOPEN = 3
ST_ACTION_SPACE = 4
ST_ACTION_MOVE = 5
ST_ACTION_END = 6
ST_ACTION_REPORT = 7
ST_LOG_INFO = 1
ST_LOG_WARNING = 2
ST_LOG_ERROR = 3
ST_OPEN_READ_WRITE = 1
ST_MAP_AUTO = 0
ST_MAP_SHARED = 1
ST_MAP_PRIVATE = 2
ST_MAP_NONE = 3
ST_MAP_COPY_ON_WRITE = 4
ST_PREFETCH_AUTO = 0
ST_PREFETCH_NONE = 1
ST_PREFETCH_SEQUENTIAL = 2
ST_PREFETCH_PARALLEL = 3
ST_DIRECT_AUTO = 0
ST_DIRECT_OFF = 1
ST_DIRECT_ON = 2
ST_TIMEOUT_DEFAULT = 0
ST_TIMEOUT_FOREVER = -1
ST_TIMEOUT_NONE = -2
ST_DTYPE_BOOL = 1
ST_DTYPE_F4 = 2
ST_DTYPE_F6_E2M3 = 3
ST_DTYPE_F6_E3M2 = 4
ST_DTYPE_U8 = 5
ST_DTYPE_I8 = 6
ST_DTYPE_F8_E5M2 = 7
ST_DTYPE_F8_E4M3 = 8
ST_DTYPE_F8_E8M0 = 9
ST_DTYPE_F8_E4M3FNUZ = 10
ST_DTYPE_F8_E5M2FNUZ = 11
ST_DTYPE_I16 = 12
ST_DTYPE_U16 = 13
ST_DTYPE_F16 = 14
ST_DTYPE_BF16 = 15
ST_DTYPE_I32 = 16
ST_DTYPE_U32 = 17
ST_DTYPE_F32 = 18
ST_DTYPE_C64 = 19
ST_DTYPE_F64 = 20
ST_DTYPE_I64 = 21
ST_DTYPE_U64 = 22
ST_LAYOUT_KEEP = 0
ST_LAYOUT_CANONICAL = 1
ST_LAYOUT_STOCK = 2
ST_TXN_COPY = 1
ST_TXN_PUBLISH = 2
ST_TXN_BREAK_LINKS = 4
ST_TXN_NEW_NAMES = 8
ST_TXN_JOURNAL_ONLY = 16
ST_GRACE_DEFAULT = 0
ST_GRACE_NONE = 4294967295
ST_PLAN_NOTHING = 0
ST_PLAN_PATCH = 1
ST_PLAN_PUBLISH = 2
ST_REOPEN_COPY_ON_WRITE = 1
ST_BULK_HUGE_PAGES = 1
ST_BULK_DIRECT = 2
ST_BULK_FRESH_MEMORY = 4
ST_STORAGE_UNKNOWN = 0
ST_STORAGE_LOCAL = 1
ST_STORAGE_MEMORY = 2
ST_STORAGE_NETWORK = 3
ST_STORAGE_PARALLEL = 4
ST_STORAGE_FUSE = 5
ST_STORAGE_OBJECT_STORE = 6

#: What each function answers, and what it takes.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "st_version": (c_char_p,),
    "st_build_info": (c_char_p,),
    "st_status_name": (c_char_p, c_status),
    "st_status_action": (c_uint32, c_status),
    "st_last_error": (c_char_p,),
    "st_last_error_info": (c_status, POINTER(ErrorInfo)),
    "st_open": (c_status, c_char_p, POINTER(OpenOptions), POINTER(c_void_p)),
    "st_open_memory": (c_status, c_void_p, c_size_t, POINTER(c_void_p)),
    "st_close": (None, c_void_p),
    "st_refresh": (c_status, c_void_p),
    "st_interrupt": (None, c_void_p),
    "st_dtype_name": (c_char_p, c_dtype),
    "st_dtype_bits": (c_uint32, c_dtype),
    "st_dtype_parse": (c_status, c_char_p, c_size_t, POINTER(c_dtype)),
    "st_count": (c_size_t, c_void_p),
    "st_at": (c_status, c_void_p, c_size_t, c_size_t, POINTER(Tensor)),
    "st_describe": (c_status, c_void_p, c_char_p, c_size_t, POINTER(Tensor)),
    "st_find": (c_status, c_void_p, c_char_p, c_size_t, POINTER(c_size_t)),
    "st_names": (c_status, c_void_p, c_char_p, POINTER(c_size_t)),
    "st_metadata_count": (c_size_t, c_void_p),
    "st_metadata_at": (
        c_status,
        c_void_p,
        c_size_t,
        POINTER(c_void_p),
        POINTER(c_size_t),
        POINTER(c_void_p),
        POINTER(c_size_t),
    ),
    "st_metadata_get": (c_status, c_void_p, c_char_p, c_size_t, POINTER(c_void_p), POINTER(c_size_t)),
    "st_get": (c_status, c_void_p, c_char_p, c_size_t, POINTER(Tensor)),
    "st_get_at": (c_status, c_void_p, c_size_t, POINTER(Tensor)),
    "st_read": (c_status, c_void_p, c_char_p, c_size_t, c_void_p, c_size_t, POINTER(Tensor)),
    "st_slice_shape": (
        c_status,
        c_void_p,
        c_char_p,
        c_size_t,
        POINTER(Range),
        c_size_t,
        POINTER(c_uint64),
        c_size_t,
        POINTER(c_size_t),
        POINTER(c_uint64),
    ),
    "st_read_slice": (
        c_status,
        c_void_p,
        c_char_p,
        c_size_t,
        POINTER(Range),
        c_size_t,
        c_void_p,
        c_size_t,
        POINTER(Tensor),
    ),
    "st_update": (c_status, c_void_p, c_char_p, c_size_t, POINTER(Tensor)),
    "st_txn_begin": (c_status, c_void_p, POINTER(TxnOptions), POINTER(c_void_p)),
    "st_txn_update": (c_status, c_void_p, c_char_p, c_size_t, POINTER(Tensor)),
    "st_txn_update_slice": (
        c_status,
        c_void_p,
        c_char_p,
        c_size_t,
        POINTER(Range),
        c_size_t,
        POINTER(c_int64),
        c_size_t,
        POINTER(Tensor),
    ),
    "st_txn_put": (c_status, c_void_p, c_char_p, c_size_t, POINTER(Tensor)),
    "st_txn_delete": (c_status, c_void_p, c_char_p, c_size_t),
    "st_txn_rename": (c_status, c_void_p, c_char_p, c_size_t, c_char_p, c_size_t),
    "st_txn_set_metadata": (c_status, c_void_p, c_char_p, c_size_t, c_char_p, c_size_t),
    "st_txn_plan": (c_status, c_void_p, POINTER(Plan)),
    "st_txn_commit": (c_status, c_void_p),
    "st_txn_free": (None, c_void_p),
    "st_sync": (c_status, c_void_p),
    "st_save": (c_status, c_char_p, POINTER(Tensor), c_size_t, POINTER(Metadata), c_size_t, POINTER(SaveOptions)),
    "st_writer_open": (
        c_status,
        c_char_p,
        POINTER(Tensor),
        c_size_t,
        POINTER(Metadata),
        c_size_t,
        POINTER(SaveOptions),
        POINTER(c_void_p),
    ),
    "st_writer_write": (c_status, c_void_p, c_char_p, c_size_t, c_void_p, c_uint64),
    "st_writer_put": (c_status, c_void_p, POINTER(Tensor)),
    "st_writer_finish": (c_status, c_void_p),
    "st_writer_free": (None, c_void_p),
    "st_reopen": (c_status, c_void_p, c_uint32, POINTER(c_void_p)),
    "st_snapshot": (c_status, c_void_p, POINTER(c_void_p)),
    "st_mapping_keep": (c_status, c_void_p, POINTER(c_void_p), POINTER(c_void_p), POINTER(c_size_t)),
    "st_mapping_free": (None, c_void_p),
    "st_release": (None, c_void_p),
    "st_open_source": (c_status, POINTER(Source), POINTER(OpenOptions), POINTER(c_void_p)),
    "st_read_many": (c_status, c_void_p, POINTER(ReadRequest), c_size_t, POINTER(BulkOptions)),
    "st_prefetch": (c_status, c_void_p, POINTER(c_size_t), c_size_t, POINTER(BulkOptions)),
    "st_load": (c_status, c_void_p, POINTER(c_size_t), c_size_t, POINTER(BulkOptions)),
    "st_shard_count": (c_uint32, c_void_p),
    "st_shard_path": (c_status, c_void_p, c_uint32, POINTER(c_char_p)),
    "st_reshard": (c_status, c_char_p, c_char_p, c_uint64, POINTER(SaveOptions)),
    "st_join": (c_status, c_char_p, c_char_p, POINTER(SaveOptions)),
    "st_delta_create": (c_status, c_char_p, c_char_p, c_char_p, POINTER(DeltaCreateOptions)),
    "st_delta_apply": (c_status, c_char_p, c_char_p, POINTER(DeltaApplyOptions), POINTER(Plan)),
    "st_apply_delta": (c_status, c_void_p, c_char_p, POINTER(DeltaApplyOptions), POINTER(Plan)),
    "st_delta_merge": (c_status, c_char_p, POINTER(c_char_p), c_size_t, c_char_p, POINTER(SaveOptions)),
    "st_delta_describe": (c_status, c_char_p, POINTER(DeltaInfo)),
    "st_verify": (c_status, c_char_p, POINTER(VerifyOptions)),
    "st_recover": (c_status, c_char_p, POINTER(RecoverOptions)),
    "st_compact": (c_status, c_char_p, POINTER(TxnOptions)),
    "st_file_io_info": (c_status, c_void_p, POINTER(IoInfo)),
    "st_shard_io_info": (c_status, c_void_p, c_uint32, POINTER(IoInfo)),
    "st_file_stats": (c_status, c_void_p, POINTER(Stats)),
}


def declare(library: ctypes.CDLL) -> None:
    """Tell ctypes the types of the functions."""
    for name, (result, *parameters) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, parameters
