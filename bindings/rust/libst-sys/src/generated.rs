//! Generated from capi/include/st/st.h by capi/generate.py; do not edit.

use core::ffi::{c_char, c_int, c_void};
use core::marker::PhantomData;

pub type st_status = i32;
pub type st_dtype = u32;

/// Opaque.
#[repr(C)]
pub struct st_file {
    _private: [u8; 0],
    _neither_send_nor_sync: PhantomData<*mut c_void>,
}

/// Opaque.
#[repr(C)]
pub struct st_txn {
    _private: [u8; 0],
    _neither_send_nor_sync: PhantomData<*mut c_void>,
}

/// Opaque.
#[repr(C)]
pub struct st_writer {
    _private: [u8; 0],
    _neither_send_nor_sync: PhantomData<*mut c_void>,
}

/// Opaque.
#[repr(C)]
pub struct st_mapping {
    _private: [u8; 0],
    _neither_send_nor_sync: PhantomData<*mut c_void>,
}

pub type st_progress_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, done_bytes: u64, total_bytes: u64) -> c_int>;

pub type st_log_fn = Option<unsafe extern "C" fn(user: *mut c_void, level: u32, message: *const c_char)>;

pub type st_source_read_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, ranges: *const st_source_range, n: usize) -> c_int>;

pub type st_source_close_fn = Option<unsafe extern "C" fn(user: *mut c_void)>;

pub type st_report_fn = Option<unsafe extern "C" fn(user: *mut c_void, report: *const st_report) -> c_int>;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_error_info {
    pub struct_size: u32,
    pub status: st_status,
    pub os_errno: i32,
    pub shard: u32,
    pub offset: u64,
    pub message: *const c_char,
    pub tensor: *const c_char,
    pub tensor_len: usize,
    pub holder_pid: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_open_options {
    pub struct_size: u32,
    pub flags: u32,
    pub map: u32,
    pub lock_timeout_ms: i32,
    pub progress: st_progress_fn,
    pub progress_user: *mut c_void,
    pub log: st_log_fn,
    pub log_user: *mut c_void,
    pub prefetch: u32,
    pub direct: u32,
    pub io_threads: u32,
    pub block_size: u32,
    pub worker_index: u32,
    pub worker_count: u32,
    pub memory_limit: u64,
    pub deltas: *const *const c_char,
    pub delta_count: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_tensor {
    pub name: *const c_char,
    pub name_len: usize,
    pub dtype: st_dtype,
    pub rank: u32,
    pub shape: *const u64,
    pub data: *const c_void,
    pub nbytes: u64,
    pub file_offset: u64,
    pub shard: u32,
    pub reserved0: u32,
    pub reserved: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct st_range {
    pub start: i64,
    pub stop: i64,
    pub step: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_txn_options {
    pub struct_size: u32,
    pub flags: u32,
    pub lock_timeout_ms: i32,
    pub shard_grace_s: u32,
    pub progress: st_progress_fn,
    pub progress_user: *mut c_void,
    pub layout: u32,
    pub alignment: u32,
    pub header_reserve: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_plan {
    pub struct_size: u32,
    pub kind: u32,
    pub file_size: u64,
    pub data_offset: u64,
    pub bytes_written: u64,
    pub bytes_shared: u64,
    pub bytes_copied: u64,
    pub space_needed: u64,
    pub space_free: u64,
    pub how: [c_char; 256],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_metadata {
    pub key: *const c_char,
    pub key_len: usize,
    pub value: *const c_char,
    pub value_len: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_save_options {
    pub struct_size: u32,
    pub flags: u32,
    pub layout: u32,
    pub alignment: u32,
    pub header_reserve: u64,
    pub lock_timeout_ms: i32,
    pub reserved0: u32,
    pub progress: st_progress_fn,
    pub progress_user: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_source_range {
    pub offset: u64,
    pub nbytes: u64,
    pub dst: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_source {
    pub struct_size: u32,
    pub most_reads: u32,
    pub size: u64,
    pub name: *const c_char,
    pub identity: *const c_char,
    pub read: st_source_read_fn,
    pub close: st_source_close_fn,
    pub user: *mut c_void,
    pub reserved0: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_bulk_options {
    pub struct_size: u32,
    pub flags: u32,
    pub progress: st_progress_fn,
    pub progress_user: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_read_request {
    pub name: *const c_char,
    pub name_len: usize,
    pub index: usize,
    pub dst: *mut c_void,
    pub dst_size: usize,
    pub ranges: *const st_range,
    pub range_count: usize,
    pub reserved: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_delta_create_options {
    pub struct_size: u32,
    pub alignment: u32,
    pub lock_timeout_ms: i32,
    pub reserved0: u32,
    pub progress: st_progress_fn,
    pub progress_user: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_delta_apply_options {
    pub struct_size: u32,
    pub flags: u32,
    pub reverse: *const c_char,
    pub lock_timeout_ms: i32,
    pub reserved0: u32,
    pub progress: st_progress_fn,
    pub progress_user: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_delta_info {
    pub struct_size: u32,
    pub reserved0: u32,
    pub changed: u64,
    pub added: u64,
    pub deleted: u64,
    pub metadata_set: u64,
    pub metadata_removed: u64,
    pub data_bytes: u64,
    pub base: [c_char; 40],
    pub result: [c_char; 40],
    pub file_size: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_report {
    pub struct_size: u32,
    pub level: u32,
    pub status: st_status,
    pub reserved0: u32,
    pub offset: u64,
    pub message: *const c_char,
    pub reserved1: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_verify_options {
    pub struct_size: u32,
    pub reserved0: u32,
    pub report: st_report_fn,
    pub report_user: *mut c_void,
    pub progress: st_progress_fn,
    pub progress_user: *mut c_void,
    pub deltas: *const *const c_char,
    pub delta_count: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_recover_options {
    pub struct_size: u32,
    pub lock_timeout_ms: i32,
    pub report: st_report_fn,
    pub report_user: *mut c_void,
    pub progress: st_progress_fn,
    pub progress_user: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_io_info {
    pub struct_size: u32,
    pub storage: u32,
    pub map: u32,
    pub map_fallbacks: u32,
    pub file_size: u64,
    pub header_size: u64,
    pub data_offset: u64,
    pub filesystem: [c_char; 64],
    pub reason: [c_char; 256],
    pub prefetch: u32,
    pub direct: u32,
    pub io_threads: u32,
    pub block_size: u32,
    pub prefetch_reason: [c_char; 256],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_stats {
    pub struct_size: u32,
    pub map_fallbacks: u32,
    pub bytes_read: u64,
    pub bytes_mapped: u64,
    pub bytes_resident: u64,
    pub bytes_private_dirty: u64,
    pub bytes_owned: u64,
    pub index_bytes: u64,
    pub bytes_written: u64,
    pub journal_bytes: u64,
    pub commits: u64,
    pub recoveries: u64,
    pub lock_waits: u64,
    pub read_requests: u64,
    pub bytes_prefetched: u64,
    pub reopens: u64,
}

pub const ST_VERSION_MAJOR: u32 = 2;
pub const ST_VERSION_MINOR: u32 = 0;
pub const ST_VERSION_PATCH: u32 = 0;
pub const ST_NTS: usize = usize::MAX;
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
pub const ST_E_CHECKSUM: st_status = 28;
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
pub const ST_ACTION_NONE: u32 = 0;
pub const ST_ACTION_FIX: u32 = 1;
pub const ST_ACTION_RETRY: u32 = 2;
pub const ST_ACTION_REOPEN: u32 = 3;
pub const ST_ACTION_SPACE: u32 = 4;
pub const ST_ACTION_MOVE: u32 = 5;
pub const ST_ACTION_END: u32 = 6;
pub const ST_ACTION_REPORT: u32 = 7;
pub const ST_LOG_INFO: u32 = 1;
pub const ST_LOG_WARNING: u32 = 2;
pub const ST_LOG_ERROR: u32 = 3;
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
pub const ST_TIMEOUT_DEFAULT: i32 = 0;
pub const ST_TIMEOUT_FOREVER: i32 = -1;
pub const ST_TIMEOUT_NONE: i32 = -2;
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
pub const ST_LAYOUT_KEEP: u32 = 0;
pub const ST_LAYOUT_CANONICAL: u32 = 1;
pub const ST_LAYOUT_STOCK: u32 = 2;
pub const ST_TXN_COPY: u32 = 1;
pub const ST_TXN_PUBLISH: u32 = 2;
pub const ST_TXN_BREAK_LINKS: u32 = 4;
pub const ST_TXN_NEW_NAMES: u32 = 8;
pub const ST_TXN_JOURNAL_ONLY: u32 = 16;
pub const ST_GRACE_DEFAULT: u32 = 0;
pub const ST_GRACE_NONE: u32 = 4294967295;
pub const ST_PLAN_NOTHING: u32 = 0;
pub const ST_PLAN_PATCH: u32 = 1;
pub const ST_PLAN_PUBLISH: u32 = 2;
pub const ST_REOPEN_COPY_ON_WRITE: u32 = 1;
pub const ST_BULK_HUGE_PAGES: u32 = 1;
pub const ST_BULK_DIRECT: u32 = 2;
pub const ST_BULK_FRESH_MEMORY: u32 = 4;
pub const ST_STORAGE_UNKNOWN: u32 = 0;
pub const ST_STORAGE_LOCAL: u32 = 1;
pub const ST_STORAGE_MEMORY: u32 = 2;
pub const ST_STORAGE_NETWORK: u32 = 3;
pub const ST_STORAGE_PARALLEL: u32 = 4;
pub const ST_STORAGE_FUSE: u32 = 5;
pub const ST_STORAGE_OBJECT_STORE: u32 = 6;

extern "C" {
    pub fn st_version() -> *const c_char;
    pub fn st_build_info() -> *const c_char;
    pub fn st_status_name(status: st_status) -> *const c_char;
    pub fn st_status_action(status: st_status) -> u32;
    pub fn st_last_error() -> *const c_char;
    pub fn st_last_error_info(out: *mut st_error_info) -> st_status;
    pub fn st_open(path: *const c_char, opts: *const st_open_options, out: *mut *mut st_file) -> st_status;
    pub fn st_open_memory(bytes: *const c_void, size: usize, out: *mut *mut st_file) -> st_status;
    pub fn st_close(file: *mut st_file);
    pub fn st_refresh(file: *mut st_file) -> st_status;
    pub fn st_interrupt(file: *mut st_file);
    pub fn st_dtype_name(dtype: st_dtype) -> *const c_char;
    pub fn st_dtype_bits(dtype: st_dtype) -> u32;
    pub fn st_dtype_parse(name: *const c_char, name_len: usize, out: *mut st_dtype) -> st_status;
    pub fn st_count(file: *const st_file) -> usize;
    pub fn st_at(file: *mut st_file, first: usize, n: usize, out: *mut st_tensor) -> st_status;
    pub fn st_describe(
        file: *mut st_file,
        name: *const c_char,
        name_len: usize,
        out: *mut st_tensor,
    ) -> st_status;
    pub fn st_find(file: *mut st_file, name: *const c_char, name_len: usize, out: *mut usize) -> st_status;
    pub fn st_names(file: *mut st_file, dst: *mut c_char, size: *mut usize) -> st_status;
    pub fn st_metadata_count(file: *const st_file) -> usize;
    pub fn st_metadata_at(
        file: *mut st_file,
        i: usize,
        key: *mut *const c_char,
        key_len: *mut usize,
        value: *mut *const c_char,
        value_len: *mut usize,
    ) -> st_status;
    pub fn st_metadata_get(
        file: *mut st_file,
        key: *const c_char,
        key_len: usize,
        value: *mut *const c_char,
        value_len: *mut usize,
    ) -> st_status;
    pub fn st_get(file: *mut st_file, name: *const c_char, name_len: usize, out: *mut st_tensor)
        -> st_status;
    pub fn st_get_at(file: *mut st_file, i: usize, out: *mut st_tensor) -> st_status;
    pub fn st_read(
        file: *mut st_file,
        name: *const c_char,
        name_len: usize,
        dst: *mut c_void,
        dst_size: usize,
        read: *mut st_tensor,
    ) -> st_status;
    pub fn st_slice_shape(
        file: *mut st_file,
        name: *const c_char,
        name_len: usize,
        ranges: *const st_range,
        n: usize,
        shape: *mut u64,
        capacity: usize,
        rank: *mut usize,
        nbytes: *mut u64,
    ) -> st_status;
    pub fn st_read_slice(
        file: *mut st_file,
        name: *const c_char,
        name_len: usize,
        ranges: *const st_range,
        n: usize,
        dst: *mut c_void,
        dst_size: usize,
        read: *mut st_tensor,
    ) -> st_status;
    pub fn st_update(
        file: *mut st_file,
        name: *const c_char,
        name_len: usize,
        value: *const st_tensor,
    ) -> st_status;
    pub fn st_txn_begin(file: *mut st_file, opts: *const st_txn_options, out: *mut *mut st_txn) -> st_status;
    pub fn st_txn_update(
        txn: *mut st_txn,
        name: *const c_char,
        name_len: usize,
        value: *const st_tensor,
    ) -> st_status;
    pub fn st_txn_update_slice(
        txn: *mut st_txn,
        name: *const c_char,
        name_len: usize,
        ranges: *const st_range,
        n: usize,
        indices: *const i64,
        index_count: usize,
        value: *const st_tensor,
    ) -> st_status;
    pub fn st_txn_put(
        txn: *mut st_txn,
        name: *const c_char,
        name_len: usize,
        value: *const st_tensor,
    ) -> st_status;
    pub fn st_txn_delete(txn: *mut st_txn, name: *const c_char, name_len: usize) -> st_status;
    pub fn st_txn_rename(
        txn: *mut st_txn,
        from: *const c_char,
        from_len: usize,
        to: *const c_char,
        to_len: usize,
    ) -> st_status;
    pub fn st_txn_set_metadata(
        txn: *mut st_txn,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
    ) -> st_status;
    pub fn st_txn_plan(txn: *mut st_txn, out: *mut st_plan) -> st_status;
    pub fn st_txn_commit(txn: *mut st_txn) -> st_status;
    pub fn st_txn_free(txn: *mut st_txn);
    pub fn st_sync(file: *mut st_file) -> st_status;
    pub fn st_save(
        path: *const c_char,
        tensors: *const st_tensor,
        n: usize,
        meta: *const st_metadata,
        m: usize,
        opts: *const st_save_options,
    ) -> st_status;
    pub fn st_writer_open(
        path: *const c_char,
        declared: *const st_tensor,
        n: usize,
        meta: *const st_metadata,
        m: usize,
        opts: *const st_save_options,
        out: *mut *mut st_writer,
    ) -> st_status;
    pub fn st_writer_write(
        writer: *mut st_writer,
        name: *const c_char,
        name_len: usize,
        data: *const c_void,
        nbytes: u64,
    ) -> st_status;
    pub fn st_writer_put(writer: *mut st_writer, tensor: *const st_tensor) -> st_status;
    pub fn st_writer_finish(writer: *mut st_writer) -> st_status;
    pub fn st_writer_free(writer: *mut st_writer);
    pub fn st_reopen(file: *const st_file, flags: u32, out: *mut *mut st_file) -> st_status;
    pub fn st_snapshot(file: *mut st_file, out: *mut *mut st_file) -> st_status;
    pub fn st_mapping_keep(
        file: *mut st_file,
        out: *mut *mut st_mapping,
        data: *mut *const c_void,
        size: *mut usize,
    ) -> st_status;
    pub fn st_mapping_free(mapping: *mut st_mapping);
    pub fn st_release(file: *mut st_file);
    pub fn st_open_source(
        source: *const st_source,
        opts: *const st_open_options,
        out: *mut *mut st_file,
    ) -> st_status;
    pub fn st_read_many(
        file: *mut st_file,
        reqs: *const st_read_request,
        n: usize,
        opts: *const st_bulk_options,
    ) -> st_status;
    pub fn st_prefetch(
        file: *mut st_file,
        indices: *const usize,
        n: usize,
        opts: *const st_bulk_options,
    ) -> st_status;
    pub fn st_load(
        file: *mut st_file,
        indices: *const usize,
        n: usize,
        opts: *const st_bulk_options,
    ) -> st_status;
    pub fn st_shard_count(file: *const st_file) -> u32;
    pub fn st_shard_path(file: *const st_file, shard: u32, path: *mut *const c_char) -> st_status;
    pub fn st_reshard(
        from: *const c_char,
        to_folder: *const c_char,
        max_shard_size: u64,
        opts: *const st_save_options,
    ) -> st_status;
    pub fn st_join(from: *const c_char, to: *const c_char, opts: *const st_save_options) -> st_status;
    pub fn st_delta_create(
        from: *const c_char,
        to: *const c_char,
        delta: *const c_char,
        opts: *const st_delta_create_options,
    ) -> st_status;
    pub fn st_delta_apply(
        base: *const c_char,
        delta: *const c_char,
        opts: *const st_delta_apply_options,
        done: *mut st_plan,
    ) -> st_status;
    pub fn st_apply_delta(
        file: *mut st_file,
        delta: *const c_char,
        opts: *const st_delta_apply_options,
        done: *mut st_plan,
    ) -> st_status;
    pub fn st_delta_merge(
        base: *const c_char,
        deltas: *const *const c_char,
        n: usize,
        to: *const c_char,
        opts: *const st_save_options,
    ) -> st_status;
    pub fn st_delta_describe(delta: *const c_char, out: *mut st_delta_info) -> st_status;
    pub fn st_verify(path: *const c_char, opts: *const st_verify_options) -> st_status;
    pub fn st_recover(path: *const c_char, opts: *const st_recover_options) -> st_status;
    pub fn st_compact(path: *const c_char, opts: *const st_txn_options) -> st_status;
    pub fn st_file_io_info(file: *const st_file, out: *mut st_io_info) -> st_status;
    pub fn st_shard_io_info(file: *const st_file, shard: u32, out: *mut st_io_info) -> st_status;
    pub fn st_file_stats(file: *const st_file, out: *mut st_stats) -> st_status;
}
