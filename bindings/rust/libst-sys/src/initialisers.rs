//! The macros of st.h that stand for an initialiser, as values.

use core::ffi::c_char;
use core::mem::size_of;
use core::ptr::{null, null_mut};

use crate::generated::*;

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
