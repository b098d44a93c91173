//! Generated from capi/include/st/st.h by capi/generate.py; do not edit.

/// Macros that stand for an initialiser.
pub const INITIALISERS: &[&str] = &["ST_RANGE_ALL"];

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
                data_bytes, base, result, file_size }
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
