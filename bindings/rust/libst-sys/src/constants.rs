//! Constants of st.h, in its order, and the ST_..._INIT macros as values.

use core::ffi::c_char;
use core::mem::size_of;
use core::ptr::{null, null_mut};

use crate::types::*;

pub const ST_VERSION_MAJOR: u32 = 2;
pub const ST_VERSION_MINOR: u32 = 0;
pub const ST_VERSION_PATCH: u32 = 0;
pub const ST_OK: st_status = 0;
pub const ST_E_INVALID_ARGUMENT: st_status = 1;
pub const ST_E_NOMEM: st_status = 2;
pub const ST_E_INTERNAL: st_status = 3;
pub const ST_E_UNSUPPORTED: st_status = 4;
pub const ST_E_CANCELLED: st_status = 5;
pub const ST_E_INTERRUPTED: st_status = 6;
pub const ST_E_NOT_FOUND: st_status = 7;
pub const ST_E_OUT_OF_RANGE: st_status = 8;
pub const ST_E_BUFFER_SIZE: st_status = 9;
pub const ST_E_READ_ONLY: st_status = 10;
pub const ST_E_BUSY: st_status = 11;
pub const ST_E_FORKED: st_status = 12;
pub const ST_E_IO: st_status = 20;
pub const ST_E_NO_FILE: st_status = 21;
pub const ST_E_PERMISSION: st_status = 22;
pub const ST_E_NO_SPACE: st_status = 23;
pub const ST_E_NOT_REGULAR: st_status = 24;
pub const ST_E_FILE_CHANGED: st_status = 25;
pub const ST_E_LOCK_UNSUPPORTED: st_status = 26;
pub const ST_E_POISONED: st_status = 27;
pub const ST_E_HEADER_TOO_SMALL: st_status = 40;
pub const ST_E_HEADER_TOO_LARGE: st_status = 41;
pub const ST_E_HEADER_TRUNCATED: st_status = 42;
pub const ST_E_HEADER_UTF8: st_status = 43;
pub const ST_E_HEADER_JSON: st_status = 44;
pub const ST_E_METADATA: st_status = 45;
pub const ST_E_TENSOR_INFO: st_status = 46;
pub const ST_E_DTYPE: st_status = 47;
pub const ST_E_SHAPE_OVERFLOW: st_status = 48;
pub const ST_E_OFFSETS: st_status = 49;
pub const ST_E_OVERLAP: st_status = 50;
pub const ST_E_HOLE: st_status = 51;
pub const ST_E_SIZE_MISMATCH: st_status = 52;
pub const ST_E_SUBBYTE: st_status = 53;
pub const ST_E_TRUNCATED: st_status = 54;
pub const ST_E_TRAILING_DATA: st_status = 55;
pub const ST_E_DUPLICATE_NAME: st_status = 56;
pub const ST_E_SHARD_INDEX: st_status = 57;
pub const ST_E_SHARD_MISSING: st_status = 58;
pub const ST_E_SHARD_TENSOR: st_status = 59;
pub const ST_E_SHARD_DUPLICATE: st_status = 60;
pub const ST_E_SHARD_PATH: st_status = 61;
pub const ST_E_DELTA: st_status = 62;
pub const ST_E_DELTA_BASE: st_status = 63;
pub const ST_E_DTYPE_MISMATCH: st_status = 70;
pub const ST_E_SHAPE_MISMATCH: st_status = 71;
pub const ST_E_NBYTES_MISMATCH: st_status = 72;
pub const ST_E_NEEDS_RECOVERY: st_status = 73;
pub const ST_E_JOURNAL: st_status = 74;
pub const ST_E_TXN_FAILED: st_status = 75;
pub const ST_E_HARD_LINKS: st_status = 80;
pub const ST_E_INCOMPLETE: st_status = 81;
pub const ST_DTYPE_BOOL: st_dtype = 1;
pub const ST_DTYPE_F4: st_dtype = 2;
pub const ST_DTYPE_F6_E2M3: st_dtype = 3;
pub const ST_DTYPE_F6_E3M2: st_dtype = 4;
pub const ST_DTYPE_U8: st_dtype = 5;
pub const ST_DTYPE_I8: st_dtype = 6;
pub const ST_DTYPE_F8_E5M2: st_dtype = 7;
pub const ST_DTYPE_F8_E4M3: st_dtype = 8;
pub const ST_DTYPE_F8_E8M0: st_dtype = 9;
pub const ST_DTYPE_F8_E4M3FNUZ: st_dtype = 10;
pub const ST_DTYPE_F8_E5M2FNUZ: st_dtype = 11;
pub const ST_DTYPE_I16: st_dtype = 12;
pub const ST_DTYPE_U16: st_dtype = 13;
pub const ST_DTYPE_F16: st_dtype = 14;
pub const ST_DTYPE_BF16: st_dtype = 15;
pub const ST_DTYPE_I32: st_dtype = 16;
pub const ST_DTYPE_U32: st_dtype = 17;
pub const ST_DTYPE_F32: st_dtype = 18;
pub const ST_DTYPE_C64: st_dtype = 19;
pub const ST_DTYPE_F64: st_dtype = 20;
pub const ST_DTYPE_I64: st_dtype = 21;
pub const ST_DTYPE_U64: st_dtype = 22;
pub const ST_LOG_INFO: u32 = 1;
pub const ST_LOG_WARNING: u32 = 2;
pub const ST_OPEN_READ_WRITE: u32 = 1;
pub const ST_MAP_AUTO: u32 = 0;
pub const ST_MAP_SHARED: u32 = 1;
pub const ST_MAP_PRIVATE: u32 = 2;
pub const ST_MAP_NONE: u32 = 3;
pub const ST_MAP_COPY_ON_WRITE: u32 = 4;
pub const ST_PREFETCH_AUTO: u32 = 0;
pub const ST_PREFETCH_NONE: u32 = 1;
pub const ST_PREFETCH_SEQUENTIAL: u32 = 2;
pub const ST_PREFETCH_PARALLEL: u32 = 3;
pub const ST_DIRECT_AUTO: u32 = 0;
pub const ST_DIRECT_OFF: u32 = 1;
pub const ST_DIRECT_ON: u32 = 2;
pub const ST_TIMEOUT_FOREVER: i32 = -1;

pub const ST_NUL_TERMINATED: usize = usize::MAX;
pub const ST_LOAD_HUGE_PAGES: u32 = 1;
pub const ST_LOAD_DIRECT: u32 = 2;
pub const ST_LAYOUT_KEEP: u32 = 0;
pub const ST_LAYOUT_CANONICAL: u32 = 1;
pub const ST_LAYOUT_STOCK: u32 = 2;
pub const ST_TXN_COPY: u32 = 1;
pub const ST_COMMIT_PUBLISH: u32 = 2;
pub const ST_TXN_BREAK_LINKS: u32 = 4;
pub const ST_TXN_NEW_NAMES: u32 = 8;
pub const ST_PLAN_NOTHING: u32 = 0;
pub const ST_PLAN_PATCH: u32 = 1;
pub const ST_PLAN_PUBLISH: u32 = 2;
pub const ST_REPORT_ERROR: u32 = 3;
pub const ST_STORAGE_UNKNOWN: u32 = 0;
pub const ST_STORAGE_LOCAL: u32 = 1;
pub const ST_STORAGE_MEMORY: u32 = 2;
pub const ST_STORAGE_NETWORK: u32 = 3;
pub const ST_STORAGE_PARALLEL: u32 = 4;
pub const ST_STORAGE_FUSE: u32 = 5;
pub const ST_STORAGE_OBJECT_STORE: u32 = 6;

pub const ST_RANGE_ALL: st_range = st_range { start: 0, stop: i64::MAX, step: 1 };

pub const ST_ERROR_INFO_INIT: st_error_info = st_error_info {
    struct_size: size_of::<st_error_info>() as u32,
    status: ST_OK,
    os_errno: 0,
    shard: 0,
    offset: 0,
    message: null(),
    tensor: null(),
    tensor_len: 0,
    holder_pid: 0,
};

pub const ST_OPEN_OPTIONS_INIT: st_open_options = st_open_options {
    struct_size: size_of::<st_open_options>() as u32,
    flags: 0,
    map: ST_MAP_AUTO,
    lock_timeout_ms: 10_000,
    progress: None,
    progress_user: null_mut(),
    log: None,
    log_user: null_mut(),
    prefetch: ST_PREFETCH_AUTO,
    direct: ST_DIRECT_AUTO,
    io_threads: 0,
    block_size: 0,
    worker_index: 0,
    worker_count: 0,
    memory_limit: 0,
    deltas: null(),
    delta_count: 0,
};

pub const ST_LOAD_OPTIONS_INIT: st_load_options = st_load_options {
    struct_size: size_of::<st_load_options>() as u32,
    flags: 0,
    progress: None,
    progress_user: null_mut(),
};

pub const ST_TXN_OPTIONS_INIT: st_txn_options = st_txn_options {
    struct_size: size_of::<st_txn_options>() as u32,
    flags: 0,
    lock_timeout_ms: 10_000,
    shard_grace_s: 3600,
    progress: None,
    progress_user: null_mut(),
    layout: ST_LAYOUT_KEEP,
    alignment: 0,
    header_reserve: 0,
};

pub const ST_PLAN_INIT: st_plan = st_plan {
    struct_size: size_of::<st_plan>() as u32,
    kind: ST_PLAN_NOTHING,
    file_size: 0,
    data_offset: 0,
    bytes_written: 0,
    bytes_shared: 0,
    bytes_copied: 0,
    space_needed: 0,
    space_free: 0,
    how: [0 as c_char; 256],
};

pub const ST_SAVE_OPTIONS_INIT: st_save_options = st_save_options {
    struct_size: size_of::<st_save_options>() as u32,
    flags: 0,
    layout: ST_LAYOUT_KEEP,
    alignment: 0,
    header_reserve: 0,
    lock_timeout_ms: 10_000,
    reserved0: 0,
    progress: None,
    progress_user: null_mut(),
};

pub const ST_DIFF_OPTIONS_INIT: st_diff_options = st_diff_options {
    struct_size: size_of::<st_diff_options>() as u32,
    alignment: 0,
    lock_timeout_ms: 10_000,
    reserved0: 0,
    progress: None,
    progress_user: null_mut(),
};

pub const ST_PATCH_OPTIONS_INIT: st_patch_options = st_patch_options {
    struct_size: size_of::<st_patch_options>() as u32,
    flags: 0,
    reverse: null(),
    plan: null_mut(),
    lock_timeout_ms: 10_000,
    reserved0: 0,
    progress: None,
    progress_user: null_mut(),
};

pub const ST_DELTA_INFO_INIT: st_delta_info = st_delta_info {
    struct_size: size_of::<st_delta_info>() as u32,
    reserved0: 0,
    changed: 0,
    added: 0,
    deleted: 0,
    metadata_set: 0,
    metadata_removed: 0,
    data_bytes: 0,
    base: [0; 40],
    result: [0; 40],
};

pub const ST_VERIFY_OPTIONS_INIT: st_verify_options = st_verify_options {
    struct_size: size_of::<st_verify_options>() as u32,
    reserved0: 0,
    report: None,
    report_user: null_mut(),
    progress: None,
    progress_user: null_mut(),
    deltas: null(),
    delta_count: 0,
};

pub const ST_RECOVER_OPTIONS_INIT: st_recover_options = st_recover_options {
    struct_size: size_of::<st_recover_options>() as u32,
    lock_timeout_ms: 10_000,
    report: None,
    user: null_mut(),
};

pub const ST_IO_INFO_INIT: st_io_info = st_io_info {
    struct_size: size_of::<st_io_info>() as u32,
    storage: ST_STORAGE_UNKNOWN,
    map: ST_MAP_AUTO,
    map_fallbacks: 0,
    file_size: 0,
    header_size: 0,
    data_offset: 0,
    filesystem: [0 as c_char; 64],
    reason: [0 as c_char; 256],
    prefetch: ST_PREFETCH_AUTO,
    direct: ST_DIRECT_AUTO,
    io_threads: 0,
    block_size: 0,
    prefetch_reason: [0 as c_char; 256],
};

pub const ST_STATS_INIT: st_stats = st_stats {
    struct_size: size_of::<st_stats>() as u32,
    map_fallbacks: 0,
    bytes_read: 0,
    bytes_mapped: 0,
    bytes_resident: 0,
    bytes_private_dirty: 0,
    bytes_owned: 0,
    index_bytes: 0,
    bytes_written: 0,
    journal_bytes: 0,
    commits: 0,
    recoveries: 0,
    lock_waits: 0,
    read_requests: 0,
    bytes_prefetched: 0,
    reopens: 0,
};
