//! Generated from capi/include/st/st.h by capi/generate.py; do not edit.
//! Names of st.h, for tests that walk over all of them.

#![allow(dead_code, unused_macros)] // each test uses a part of it

pub const FUNCTIONS: &[&str] = &[
    "st_version",
    "st_build_info",
    "st_status_name",
    "st_last_error",
    "st_last_error_info",
    "st_open",
    "st_open_memory",
    "st_close",
    "st_refresh",
    "st_interrupt",
    "st_dtype_name",
    "st_dtype_bits",
    "st_dtype_parse",
    "st_count",
    "st_at",
    "st_describe",
    "st_find",
    "st_names",
    "st_metadata_count",
    "st_metadata_at",
    "st_metadata_get",
    "st_get",
    "st_get_at",
    "st_read",
    "st_slice_shape",
    "st_read_slice",
    "st_update",
    "st_txn_begin",
    "st_txn_update",
    "st_txn_update_slice",
    "st_txn_put",
    "st_txn_delete",
    "st_txn_rename",
    "st_txn_set_metadata",
    "st_txn_plan",
    "st_txn_commit",
    "st_txn_free",
    "st_sync",
    "st_save",
    "st_writer_open",
    "st_writer_write",
    "st_writer_put",
    "st_writer_finish",
    "st_writer_free",
    "st_reopen",
    "st_snapshot",
    "st_mapping_keep",
    "st_mapping_free",
    "st_release",
    "st_open_source",
    "st_read_many",
    "st_prefetch",
    "st_load",
    "st_shard_count",
    "st_shard_path",
    "st_reshard",
    "st_join",
    "st_delta_create",
    "st_delta_apply",
    "st_apply_delta",
    "st_delta_merge",
    "st_delta_describe",
    "st_verify",
    "st_recover",
    "st_compact",
    "st_file_io_info",
    "st_file_stats",
];

/// Macros that stand for an initialiser.
pub const INITIALISERS: &[&str] = &["ST_RANGE_ALL"];

/// Macros that stand for a number, and what Rust makes of it.
pub const CONSTANTS: &[(&str, i64)] = &[
    ("ST_VERSION_MAJOR", libst_sys::ST_VERSION_MAJOR as i64),
    ("ST_VERSION_MINOR", libst_sys::ST_VERSION_MINOR as i64),
    ("ST_VERSION_PATCH", libst_sys::ST_VERSION_PATCH as i64),
    ("ST_NTS", libst_sys::ST_NTS as i64),
    ("ST_OK", libst_sys::ST_OK as i64),
    ("ST_E_INVALID_ARGUMENT", libst_sys::ST_E_INVALID_ARGUMENT as i64),
    ("ST_E_NOMEM", libst_sys::ST_E_NOMEM as i64),
    ("ST_E_INTERNAL", libst_sys::ST_E_INTERNAL as i64),
    ("ST_E_UNSUPPORTED", libst_sys::ST_E_UNSUPPORTED as i64),
    ("ST_E_CANCELLED", libst_sys::ST_E_CANCELLED as i64),
    ("ST_E_INTERRUPTED", libst_sys::ST_E_INTERRUPTED as i64),
    ("ST_E_NOT_FOUND", libst_sys::ST_E_NOT_FOUND as i64),
    ("ST_E_OUT_OF_RANGE", libst_sys::ST_E_OUT_OF_RANGE as i64),
    ("ST_E_BUFFER_SIZE", libst_sys::ST_E_BUFFER_SIZE as i64),
    ("ST_E_READ_ONLY", libst_sys::ST_E_READ_ONLY as i64),
    ("ST_E_BUSY", libst_sys::ST_E_BUSY as i64),
    ("ST_E_FORKED", libst_sys::ST_E_FORKED as i64),
    ("ST_E_IO", libst_sys::ST_E_IO as i64),
    ("ST_E_NO_FILE", libst_sys::ST_E_NO_FILE as i64),
    ("ST_E_PERMISSION", libst_sys::ST_E_PERMISSION as i64),
    ("ST_E_NO_SPACE", libst_sys::ST_E_NO_SPACE as i64),
    ("ST_E_NOT_REGULAR", libst_sys::ST_E_NOT_REGULAR as i64),
    ("ST_E_FILE_CHANGED", libst_sys::ST_E_FILE_CHANGED as i64),
    ("ST_E_LOCK_UNSUPPORTED", libst_sys::ST_E_LOCK_UNSUPPORTED as i64),
    ("ST_E_POISONED", libst_sys::ST_E_POISONED as i64),
    ("ST_E_CHECKSUM", libst_sys::ST_E_CHECKSUM as i64),
    ("ST_E_HEADER_TOO_SMALL", libst_sys::ST_E_HEADER_TOO_SMALL as i64),
    ("ST_E_HEADER_TOO_LARGE", libst_sys::ST_E_HEADER_TOO_LARGE as i64),
    ("ST_E_HEADER_TRUNCATED", libst_sys::ST_E_HEADER_TRUNCATED as i64),
    ("ST_E_HEADER_UTF8", libst_sys::ST_E_HEADER_UTF8 as i64),
    ("ST_E_HEADER_JSON", libst_sys::ST_E_HEADER_JSON as i64),
    ("ST_E_METADATA", libst_sys::ST_E_METADATA as i64),
    ("ST_E_TENSOR_INFO", libst_sys::ST_E_TENSOR_INFO as i64),
    ("ST_E_DTYPE", libst_sys::ST_E_DTYPE as i64),
    ("ST_E_SHAPE_OVERFLOW", libst_sys::ST_E_SHAPE_OVERFLOW as i64),
    ("ST_E_OFFSETS", libst_sys::ST_E_OFFSETS as i64),
    ("ST_E_OVERLAP", libst_sys::ST_E_OVERLAP as i64),
    ("ST_E_HOLE", libst_sys::ST_E_HOLE as i64),
    ("ST_E_SIZE_MISMATCH", libst_sys::ST_E_SIZE_MISMATCH as i64),
    ("ST_E_SUBBYTE", libst_sys::ST_E_SUBBYTE as i64),
    ("ST_E_TRUNCATED", libst_sys::ST_E_TRUNCATED as i64),
    ("ST_E_TRAILING_DATA", libst_sys::ST_E_TRAILING_DATA as i64),
    ("ST_E_DUPLICATE_NAME", libst_sys::ST_E_DUPLICATE_NAME as i64),
    ("ST_E_SHARD_INDEX", libst_sys::ST_E_SHARD_INDEX as i64),
    ("ST_E_SHARD_MISSING", libst_sys::ST_E_SHARD_MISSING as i64),
    ("ST_E_SHARD_TENSOR", libst_sys::ST_E_SHARD_TENSOR as i64),
    ("ST_E_SHARD_DUPLICATE", libst_sys::ST_E_SHARD_DUPLICATE as i64),
    ("ST_E_SHARD_PATH", libst_sys::ST_E_SHARD_PATH as i64),
    ("ST_E_DELTA", libst_sys::ST_E_DELTA as i64),
    ("ST_E_DELTA_BASE", libst_sys::ST_E_DELTA_BASE as i64),
    ("ST_E_DTYPE_MISMATCH", libst_sys::ST_E_DTYPE_MISMATCH as i64),
    ("ST_E_SHAPE_MISMATCH", libst_sys::ST_E_SHAPE_MISMATCH as i64),
    ("ST_E_NBYTES_MISMATCH", libst_sys::ST_E_NBYTES_MISMATCH as i64),
    ("ST_E_NEEDS_RECOVERY", libst_sys::ST_E_NEEDS_RECOVERY as i64),
    ("ST_E_JOURNAL", libst_sys::ST_E_JOURNAL as i64),
    ("ST_E_TXN_FAILED", libst_sys::ST_E_TXN_FAILED as i64),
    ("ST_E_HARD_LINKS", libst_sys::ST_E_HARD_LINKS as i64),
    ("ST_E_INCOMPLETE", libst_sys::ST_E_INCOMPLETE as i64),
    ("ST_LOG_INFO", libst_sys::ST_LOG_INFO as i64),
    ("ST_LOG_WARNING", libst_sys::ST_LOG_WARNING as i64),
    ("ST_LOG_ERROR", libst_sys::ST_LOG_ERROR as i64),
    ("ST_OPEN_READ_WRITE", libst_sys::ST_OPEN_READ_WRITE as i64),
    ("ST_MAP_AUTO", libst_sys::ST_MAP_AUTO as i64),
    ("ST_MAP_SHARED", libst_sys::ST_MAP_SHARED as i64),
    ("ST_MAP_PRIVATE", libst_sys::ST_MAP_PRIVATE as i64),
    ("ST_MAP_NONE", libst_sys::ST_MAP_NONE as i64),
    ("ST_MAP_COPY_ON_WRITE", libst_sys::ST_MAP_COPY_ON_WRITE as i64),
    ("ST_PREFETCH_AUTO", libst_sys::ST_PREFETCH_AUTO as i64),
    ("ST_PREFETCH_NONE", libst_sys::ST_PREFETCH_NONE as i64),
    ("ST_PREFETCH_SEQUENTIAL", libst_sys::ST_PREFETCH_SEQUENTIAL as i64),
    ("ST_PREFETCH_PARALLEL", libst_sys::ST_PREFETCH_PARALLEL as i64),
    ("ST_DIRECT_AUTO", libst_sys::ST_DIRECT_AUTO as i64),
    ("ST_DIRECT_OFF", libst_sys::ST_DIRECT_OFF as i64),
    ("ST_DIRECT_ON", libst_sys::ST_DIRECT_ON as i64),
    ("ST_TIMEOUT_DEFAULT", libst_sys::ST_TIMEOUT_DEFAULT as i64),
    ("ST_TIMEOUT_FOREVER", libst_sys::ST_TIMEOUT_FOREVER as i64),
    ("ST_TIMEOUT_NONE", libst_sys::ST_TIMEOUT_NONE as i64),
    ("ST_DTYPE_BOOL", libst_sys::ST_DTYPE_BOOL as i64),
    ("ST_DTYPE_F4", libst_sys::ST_DTYPE_F4 as i64),
    ("ST_DTYPE_F6_E2M3", libst_sys::ST_DTYPE_F6_E2M3 as i64),
    ("ST_DTYPE_F6_E3M2", libst_sys::ST_DTYPE_F6_E3M2 as i64),
    ("ST_DTYPE_U8", libst_sys::ST_DTYPE_U8 as i64),
    ("ST_DTYPE_I8", libst_sys::ST_DTYPE_I8 as i64),
    ("ST_DTYPE_F8_E5M2", libst_sys::ST_DTYPE_F8_E5M2 as i64),
    ("ST_DTYPE_F8_E4M3", libst_sys::ST_DTYPE_F8_E4M3 as i64),
    ("ST_DTYPE_F8_E8M0", libst_sys::ST_DTYPE_F8_E8M0 as i64),
    ("ST_DTYPE_F8_E4M3FNUZ", libst_sys::ST_DTYPE_F8_E4M3FNUZ as i64),
    ("ST_DTYPE_F8_E5M2FNUZ", libst_sys::ST_DTYPE_F8_E5M2FNUZ as i64),
    ("ST_DTYPE_I16", libst_sys::ST_DTYPE_I16 as i64),
    ("ST_DTYPE_U16", libst_sys::ST_DTYPE_U16 as i64),
    ("ST_DTYPE_F16", libst_sys::ST_DTYPE_F16 as i64),
    ("ST_DTYPE_BF16", libst_sys::ST_DTYPE_BF16 as i64),
    ("ST_DTYPE_I32", libst_sys::ST_DTYPE_I32 as i64),
    ("ST_DTYPE_U32", libst_sys::ST_DTYPE_U32 as i64),
    ("ST_DTYPE_F32", libst_sys::ST_DTYPE_F32 as i64),
    ("ST_DTYPE_C64", libst_sys::ST_DTYPE_C64 as i64),
    ("ST_DTYPE_F64", libst_sys::ST_DTYPE_F64 as i64),
    ("ST_DTYPE_I64", libst_sys::ST_DTYPE_I64 as i64),
    ("ST_DTYPE_U64", libst_sys::ST_DTYPE_U64 as i64),
    ("ST_LAYOUT_KEEP", libst_sys::ST_LAYOUT_KEEP as i64),
    ("ST_LAYOUT_CANONICAL", libst_sys::ST_LAYOUT_CANONICAL as i64),
    ("ST_LAYOUT_STOCK", libst_sys::ST_LAYOUT_STOCK as i64),
    ("ST_TXN_COPY", libst_sys::ST_TXN_COPY as i64),
    ("ST_TXN_PUBLISH", libst_sys::ST_TXN_PUBLISH as i64),
    ("ST_TXN_BREAK_LINKS", libst_sys::ST_TXN_BREAK_LINKS as i64),
    ("ST_TXN_NEW_NAMES", libst_sys::ST_TXN_NEW_NAMES as i64),
    ("ST_TXN_JOURNAL_ONLY", libst_sys::ST_TXN_JOURNAL_ONLY as i64),
    ("ST_GRACE_DEFAULT", libst_sys::ST_GRACE_DEFAULT as i64),
    ("ST_GRACE_NONE", libst_sys::ST_GRACE_NONE as i64),
    ("ST_PLAN_NOTHING", libst_sys::ST_PLAN_NOTHING as i64),
    ("ST_PLAN_PATCH", libst_sys::ST_PLAN_PATCH as i64),
    ("ST_PLAN_PUBLISH", libst_sys::ST_PLAN_PUBLISH as i64),
    ("ST_REOPEN_COPY_ON_WRITE", libst_sys::ST_REOPEN_COPY_ON_WRITE as i64),
    ("ST_BULK_HUGE_PAGES", libst_sys::ST_BULK_HUGE_PAGES as i64),
    ("ST_BULK_DIRECT", libst_sys::ST_BULK_DIRECT as i64),
    ("ST_BULK_FRESH_MEMORY", libst_sys::ST_BULK_FRESH_MEMORY as i64),
    ("ST_STORAGE_UNKNOWN", libst_sys::ST_STORAGE_UNKNOWN as i64),
    ("ST_STORAGE_LOCAL", libst_sys::ST_STORAGE_LOCAL as i64),
    ("ST_STORAGE_MEMORY", libst_sys::ST_STORAGE_MEMORY as i64),
    ("ST_STORAGE_NETWORK", libst_sys::ST_STORAGE_NETWORK as i64),
    ("ST_STORAGE_PARALLEL", libst_sys::ST_STORAGE_PARALLEL as i64),
    ("ST_STORAGE_FUSE", libst_sys::ST_STORAGE_FUSE as i64),
    ("ST_STORAGE_OBJECT_STORE", libst_sys::ST_STORAGE_OBJECT_STORE as i64),
];

/// Every struct with its fields, given to a macro.
macro_rules! structs {
    ($with:ident) => {
        $with! {
            st_error_info { struct_size, status, os_errno, shard, offset, message, tensor, tensor_len,
                holder_pid }
            st_open_options { struct_size, flags, map, lock_timeout_ms, progress, progress_user, log,
                log_user, prefetch, direct, io_threads, block_size, worker_index, worker_count, memory_limit,
                deltas, delta_count }
            st_tensor { name, name_len, dtype, rank, shape, data, nbytes, file_offset, shard, reserved0,
                reserved }
            st_range { start, stop, step }
            st_txn_options { struct_size, flags, lock_timeout_ms, shard_grace_s, progress, progress_user,
                layout, alignment, header_reserve }
            st_plan { struct_size, kind, file_size, data_offset, bytes_written, bytes_shared, bytes_copied,
                space_needed, space_free, how }
            st_metadata { key, key_len, value, value_len }
            st_save_options { struct_size, flags, layout, alignment, header_reserve, lock_timeout_ms,
                reserved0, progress, progress_user }
            st_source_range { offset, nbytes, dst }
            st_source { struct_size, most_reads, size, name, identity, read, close, user, reserved0 }
            st_bulk_options { struct_size, flags, progress, progress_user }
            st_read_request { name, name_len, index, dst, dst_size, ranges, range_count, reserved }
            st_delta_create_options { struct_size, alignment, lock_timeout_ms, reserved0, progress,
                progress_user }
            st_delta_apply_options { struct_size, flags, reverse, lock_timeout_ms, reserved0, progress,
                progress_user }
            st_delta_info { struct_size, reserved0, changed, added, deleted, metadata_set, metadata_removed,
                data_bytes, base, result }
            st_report { struct_size, level, status, reserved0, offset, message, reserved1 }
            st_verify_options { struct_size, reserved0, report, report_user, progress, progress_user, deltas,
                delta_count }
            st_recover_options { struct_size, lock_timeout_ms, report, report_user, progress, progress_user }
            st_io_info { struct_size, storage, map, map_fallbacks, file_size, header_size, data_offset,
                filesystem, reason, prefetch, direct, io_threads, block_size, prefetch_reason }
            st_stats { struct_size, map_fallbacks, bytes_read, bytes_mapped, bytes_resident,
                bytes_private_dirty, bytes_owned, index_bytes, bytes_written, journal_bytes, commits,
                recoveries, lock_waits, read_requests, bytes_prefetched, reopens }
        }
    };
}

macro_rules! names {
    ($($name:ident { $($field:ident),* })*) => {
        &[$((stringify!($name), &[$(stringify!($field)),*])),*]
    };
}

pub const STRUCTS: &[(&str, &[&str])] = structs!(names);
