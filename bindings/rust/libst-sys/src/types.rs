//! Types of st.h.

use core::ffi::{c_char, c_int, c_void};

/// Opaque.
#[repr(C)]
pub struct st_file {
    _private: [u8; 0],
    _neither_send_nor_sync: core::marker::PhantomData<*mut c_void>,
}

/// Opaque.
#[repr(C)]
pub struct st_txn {
    _private: [u8; 0],
    _neither_send_nor_sync: core::marker::PhantomData<*mut c_void>,
}

/// Opaque.
#[repr(C)]
pub struct st_writer {
    _private: [u8; 0],
    _neither_send_nor_sync: core::marker::PhantomData<*mut c_void>,
}

pub type st_status = i32;
pub type st_dtype = u32;

pub type st_progress_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, done_bytes: u64, total_bytes: u64) -> c_int>;
pub type st_log_fn = Option<unsafe extern "C" fn(user: *mut c_void, level: u32, message: *const c_char)>;
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
    pub delta_count: u64,
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
pub struct st_read_request {
    pub name: *const c_char,
    pub name_len: usize,
    pub index: u64,
    pub dst: *mut c_void,
    pub dst_size: usize,
    pub ranges: *const st_range,
    pub range_count: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_load_options {
    pub struct_size: u32,
    pub flags: u32,
    pub progress: st_progress_fn,
    pub progress_user: *mut c_void,
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
pub struct st_diff_options {
    pub struct_size: u32,
    pub alignment: u32,
    pub lock_timeout_ms: i32,
    pub reserved0: u32,
    pub progress: st_progress_fn,
    pub progress_user: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_patch_options {
    pub struct_size: u32,
    pub flags: u32,
    pub reverse: *const c_char,
    pub plan: *mut st_plan,
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
    pub delta_count: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct st_recover_options {
    pub struct_size: u32,
    pub lock_timeout_ms: i32,
    pub report: st_report_fn,
    pub user: *mut c_void,
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
