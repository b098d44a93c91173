"""st.h in ctypes, and nothing else: types, structs and functions by their C names.

A test holds every line of it against the header. Whoever calls these checks the
status and keeps what it points at alive; file.py and its neighbours do.
"""

import ctypes
from ctypes import POINTER, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from ._library import library
from ._library import path as library_path

c_status = c_int32

# ---------------------------------------------------------------- callbacks


class Report(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("level", c_uint32),
        ("status", c_status),
        ("reserved0", c_uint32),
        ("offset", c_uint64),
        ("message", c_char_p),
    ]


progress_fn = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)
log_fn = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_char_p)
report_fn = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Report))

# ------------------------------------------------------------------ structs


class ErrorInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("status", c_status),
        ("os_errno", c_int32),
        ("shard", c_uint32),
        ("offset", c_uint64),
        ("message", c_char_p),
        ("tensor", c_void_p),  # with a length: it may hold NUL
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
        ("delta_count", c_uint64),
    ]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", c_void_p),  # with a length: it may hold NUL
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


class Range(ctypes.Structure):
    _fields_ = [("start", c_int64), ("stop", c_int64), ("step", c_int64)]


class ReadRequest(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("name_len", c_size_t),
        ("index", c_uint64),
        ("dst", c_void_p),
        ("dst_size", c_size_t),
        ("ranges", POINTER(Range)),
        ("range_count", c_size_t),
    ]


class LoadOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("progress", progress_fn),
        ("progress_user", c_void_p),
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


class DiffOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("alignment", c_uint32),
        ("lock_timeout_ms", c_int32),
        ("reserved0", c_uint32),
        ("progress", progress_fn),
        ("progress_user", c_void_p),
    ]


class PatchOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("reverse", c_char_p),
        ("plan", POINTER(Plan)),
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
    ]


class Metadata(ctypes.Structure):
    _fields_ = [
        ("key", c_void_p),  # with a length: it may hold NUL
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


class VerifyOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved0", c_uint32),
        ("report", report_fn),
        ("report_user", c_void_p),
        ("progress", progress_fn),
        ("progress_user", c_void_p),
        ("deltas", POINTER(c_char_p)),
        ("delta_count", c_uint64),
    ]


class RecoverOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("lock_timeout_ms", c_int32),
        ("report", report_fn),
        ("user", c_void_p),
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


# ---------------------------------------------------------------- constants

ST_LOG_INFO = 1
ST_LOG_WARNING = 2
ST_REPORT_ERROR = 3

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

ST_LOAD_HUGE_PAGES = 1
ST_LOAD_DIRECT = 2

ST_TIMEOUT_FOREVER = -1

ST_TXN_COPY = 1
ST_COMMIT_PUBLISH = 2
ST_TXN_BREAK_LINKS = 4
ST_TXN_NEW_NAMES = 8

ST_PLAN_NOTHING = 0
ST_PLAN_PATCH = 1
ST_PLAN_PUBLISH = 2

ST_LAYOUT_KEEP = 0
ST_LAYOUT_CANONICAL = 1
ST_LAYOUT_STOCK = 2

ST_STORAGE_UNKNOWN = 0
ST_STORAGE_LOCAL = 1
ST_STORAGE_MEMORY = 2
ST_STORAGE_NETWORK = 3
ST_STORAGE_PARALLEL = 4
ST_STORAGE_FUSE = 5
ST_STORAGE_OBJECT_STORE = 6

# ---------------------------------------------------------------- functions
# A handle is passed as a plain address (c_void_p). A name is passed as bytes
# with its length, so that it may hold NUL.


def _function(name: str, restype: Any, *argtypes: Any) -> Any:
    try:
        function = library[name]
    except AttributeError:
        raise ImportError(f"{library_path} has no {name}; it is older than this package") from None
    function.restype = restype
    function.argtypes = argtypes
    return function


_file = c_void_p
_txn = c_void_p
_tensor = POINTER(Tensor)

st_status_name = _function("st_status_name", c_char_p, c_status)
st_last_error = _function("st_last_error", c_char_p)
st_error_info_init = _function("st_error_info_init", None, POINTER(ErrorInfo), c_size_t)
st_last_error_info = _function("st_last_error_info", c_status, POINTER(ErrorInfo))

st_dtype_name = _function("st_dtype_name", c_char_p, c_uint32)
st_dtype_bits = _function("st_dtype_bits", c_uint32, c_uint32)
st_dtype_parse = _function("st_dtype_parse", c_status, c_char_p, POINTER(c_uint32))
st_version = _function("st_version", c_char_p)

st_open_options_init = _function("st_open_options_init", None, POINTER(OpenOptions), c_size_t)
st_open = _function("st_open", c_status, c_char_p, POINTER(OpenOptions), POINTER(c_void_p))
st_open_memory = _function("st_open_memory", c_status, c_void_p, c_size_t, POINTER(c_void_p))
st_reopen = _function("st_reopen", c_status, _file, POINTER(c_void_p))
st_reopen_copy_on_write = _function("st_reopen_copy_on_write", c_status, _file, POINTER(c_void_p))
st_close = _function("st_close", c_status, _file)
st_snapshot = _function("st_snapshot", c_status, _file, POINTER(c_void_p))
st_release = _function("st_release", None, _file)
st_interrupt = _function("st_interrupt", None, _file)

st_shard_count = _function("st_shard_count", c_size_t, _file)
st_shard_path = _function("st_shard_path", c_status, _file, c_size_t, POINTER(c_char_p))

st_count = _function("st_count", c_size_t, _file)
st_at = _function("st_at", c_status, _file, c_size_t, _tensor)
# An address, not a POINTER(Tensor): _names.py fills an array of numpy's.
st_at_many = _function("st_at_many", c_status, _file, c_size_t, c_size_t, c_void_p)
st_names = _function("st_names", c_status, _file, c_char_p, POINTER(c_size_t))
st_find = _function("st_find", c_status, _file, c_char_p, c_size_t, POINTER(c_size_t))
st_describe = _function("st_describe", c_status, _file, c_char_p, c_size_t, _tensor)
st_metadata_count = _function("st_metadata_count", c_size_t, _file)
st_metadata_at = _function(
    "st_metadata_at", c_status, _file, c_size_t,
    POINTER(c_void_p), POINTER(c_size_t), POINTER(c_void_p), POINTER(c_size_t),
)  # fmt: skip
st_metadata_get = _function("st_metadata_get", c_status, _file, c_char_p, POINTER(c_void_p), POINTER(c_size_t))
st_metadata_get_n = _function(
    "st_metadata_get_n", c_status, _file, c_char_p, c_size_t, POINTER(c_void_p), POINTER(c_size_t)
)

st_get = _function("st_get", c_status, _file, c_char_p, _tensor)
st_get_n = _function("st_get_n", c_status, _file, c_char_p, c_size_t, _tensor)
st_get_at = _function("st_get_at", c_status, _file, c_size_t, _tensor)
st_read = _function("st_read", c_status, _file, c_char_p, c_void_p, c_size_t, _tensor)
st_read_n = _function("st_read_n", c_status, _file, c_char_p, c_size_t, c_void_p, c_size_t, _tensor)
st_slice_shape = _function(
    "st_slice_shape", c_status, _file, c_char_p, c_size_t, POINTER(Range), c_size_t,
    POINTER(c_uint64), c_size_t, POINTER(c_size_t), POINTER(c_uint64),
)  # fmt: skip
st_read_slice = _function(
    "st_read_slice", c_status, _file, c_char_p, POINTER(Range), c_size_t, c_void_p, c_size_t, _tensor
)
st_read_slice_n = _function(
    "st_read_slice_n", c_status, _file, c_char_p, c_size_t, POINTER(Range), c_size_t,
    c_void_p, c_size_t, _tensor,
)  # fmt: skip

st_read_many = _function("st_read_many", c_status, _file, c_void_p, c_size_t, progress_fn, c_void_p)
st_prefetch = _function("st_prefetch", c_status, _file, POINTER(c_char_p), c_size_t)
st_prefetch_at = _function("st_prefetch_at", c_status, _file, POINTER(c_uint64), c_size_t, progress_fn, c_void_p)
st_load_options_init = _function("st_load_options_init", None, POINTER(LoadOptions), c_size_t)
st_load = _function("st_load", c_status, _file, POINTER(c_uint64), c_size_t, POINTER(LoadOptions))

st_txn_options_init = _function("st_txn_options_init", None, POINTER(TxnOptions), c_size_t)
st_update = _function("st_update", c_status, _file, c_char_p, _tensor)
st_update_n = _function("st_update_n", c_status, _file, c_char_p, c_size_t, _tensor)
st_begin = _function("st_begin", c_status, _file, POINTER(TxnOptions), POINTER(c_void_p))
st_txn_update = _function("st_txn_update", c_status, _txn, c_char_p, _tensor)
st_txn_update_n = _function("st_txn_update_n", c_status, _txn, c_char_p, c_size_t, _tensor)
st_txn_put = _function("st_txn_put", c_status, _txn, c_char_p, _tensor)
st_txn_put_n = _function("st_txn_put_n", c_status, _txn, c_char_p, c_size_t, _tensor)
st_txn_delete = _function("st_txn_delete", c_status, _txn, c_char_p)
st_txn_delete_n = _function("st_txn_delete_n", c_status, _txn, c_char_p, c_size_t)
st_txn_rename = _function("st_txn_rename", c_status, _txn, c_char_p, c_char_p)
st_txn_rename_n = _function("st_txn_rename_n", c_status, _txn, c_char_p, c_size_t, c_char_p, c_size_t)
st_txn_set_metadata = _function("st_txn_set_metadata", c_status, _txn, c_char_p, c_char_p)
st_txn_set_metadata_n = _function("st_txn_set_metadata_n", c_status, _txn, c_char_p, c_size_t, c_char_p, c_size_t)
st_plan_init = _function("st_plan_init", None, POINTER(Plan), c_size_t)
st_txn_plan = _function("st_txn_plan", c_status, _txn, POINTER(Plan))
st_refresh = _function("st_refresh", c_status, _file)
st_compact = _function("st_compact", c_status, c_char_p, POINTER(TxnOptions))
st_commit = _function("st_commit", c_status, _txn)
st_abort = _function("st_abort", None, _txn)

_metadata = POINTER(Metadata)
_writer = c_void_p
st_save_options_init = _function("st_save_options_init", None, POINTER(SaveOptions), c_size_t)
st_save = _function("st_save", c_status, c_char_p, _tensor, c_size_t, _metadata, c_size_t, POINTER(SaveOptions))
st_reshard = _function("st_reshard", c_status, c_char_p, c_char_p, c_uint64, POINTER(SaveOptions))
st_join = _function("st_join", c_status, c_char_p, c_char_p, POINTER(SaveOptions))
st_writer_open = _function(
    "st_writer_open", c_status, c_char_p, _tensor, c_size_t, _metadata, c_size_t, POINTER(SaveOptions),
    POINTER(c_void_p),
)  # fmt: skip
st_writer_add = _function("st_writer_add", c_status, _writer, c_char_p, c_void_p, c_uint64)
st_writer_add_n = _function("st_writer_add_n", c_status, _writer, c_char_p, c_size_t, c_void_p, c_uint64)
st_writer_put = _function("st_writer_put", c_status, _writer, _tensor)
st_writer_finish = _function("st_writer_finish", c_status, _writer)
st_writer_abort = _function("st_writer_abort", None, _writer)

_paths = POINTER(c_char_p)
st_diff_options_init = _function("st_diff_options_init", None, POINTER(DiffOptions), c_size_t)
st_diff = _function("st_diff", c_status, c_char_p, c_char_p, c_char_p, POINTER(DiffOptions))
st_patch_options_init = _function("st_patch_options_init", None, POINTER(PatchOptions), c_size_t)
st_patch = _function("st_patch", c_status, c_char_p, c_char_p, POINTER(PatchOptions))
st_merge = _function("st_merge", c_status, c_char_p, _paths, c_size_t, c_char_p, POINTER(SaveOptions))
st_delta_info_init = _function("st_delta_info_init", None, POINTER(DeltaInfo), c_size_t)
st_get_delta_info = _function("st_get_delta_info", c_status, c_char_p, POINTER(DeltaInfo))

st_verify = _function("st_verify", c_status, c_char_p, report_fn, c_void_p)
st_verify_options_init = _function("st_verify_options_init", None, POINTER(VerifyOptions), c_size_t)
st_verify_with = _function("st_verify_with", c_status, c_char_p, POINTER(VerifyOptions))
st_recover = _function("st_recover", c_status, c_char_p)
st_recover_options_init = _function("st_recover_options_init", None, POINTER(RecoverOptions), c_size_t)
st_recover_with = _function("st_recover_with", c_status, c_char_p, POINTER(RecoverOptions))

st_io_info_init = _function("st_io_info_init", None, POINTER(IoInfo), c_size_t)
st_get_io_info = _function("st_get_io_info", c_status, _file, POINTER(IoInfo))
st_stats_init = _function("st_stats_init", None, POINTER(Stats), c_size_t)
st_get_stats = _function("st_get_stats", c_status, _file, POINTER(Stats))
