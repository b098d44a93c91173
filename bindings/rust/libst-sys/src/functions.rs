//! Functions of st.h, in its order.

use core::ffi::{c_char, c_void};

use crate::types::*;

extern "C" {
    pub fn st_status_name(status: st_status) -> *const c_char;
    pub fn st_last_error() -> *const c_char;
    pub fn st_error_info_init(out: *mut st_error_info, size: usize);
    pub fn st_last_error_info(out: *mut st_error_info) -> st_status;
    pub fn st_dtype_name(dtype: st_dtype) -> *const c_char;
    pub fn st_dtype_bits(dtype: st_dtype) -> u32;
    pub fn st_dtype_parse(name: *const c_char, out: *mut st_dtype) -> st_status;
    pub fn st_version() -> *const c_char;
    pub fn st_open_options_init(out: *mut st_open_options, size: usize);
    pub fn st_open(path: *const c_char, opts: *const st_open_options, out: *mut *mut st_file) -> st_status;
    pub fn st_open_memory(bytes: *const c_void, size: usize, out: *mut *mut st_file) -> st_status;
    pub fn st_reopen(file: *const st_file, out: *mut *mut st_file) -> st_status;
    pub fn st_reopen_copy_on_write(file: *const st_file, out: *mut *mut st_file) -> st_status;
    pub fn st_snapshot(file: *mut st_file, pin: *mut *mut st_file) -> st_status;
    pub fn st_release(file: *mut st_file);
    pub fn st_close(file: *mut st_file) -> st_status;
    pub fn st_interrupt(file: *mut st_file);
    pub fn st_shard_count(file: *const st_file) -> usize;
    pub fn st_shard_path(file: *const st_file, shard: usize, path: *mut *const c_char) -> st_status;
    pub fn st_count(file: *const st_file) -> usize;
    pub fn st_at(file: *mut st_file, i: usize, out: *mut st_tensor) -> st_status;
    pub fn st_at_many(file: *mut st_file, first: usize, n: usize, out: *mut st_tensor) -> st_status;
    pub fn st_names(file: *mut st_file, dst: *mut c_char, size: *mut usize) -> st_status;
    pub fn st_find(file: *mut st_file, name: *const c_char, name_len: usize, out: *mut usize) -> st_status;
    pub fn st_describe(
        file: *mut st_file,
        name: *const c_char,
        name_len: usize,
        out: *mut st_tensor,
    ) -> st_status;
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
        value: *mut *const c_char,
        value_len: *mut usize,
    ) -> st_status;
    pub fn st_metadata_get_n(
        file: *mut st_file,
        key: *const c_char,
        key_len: usize,
        value: *mut *const c_char,
        value_len: *mut usize,
    ) -> st_status;
    pub fn st_get(file: *mut st_file, name: *const c_char, out: *mut st_tensor) -> st_status;
    pub fn st_get_n(
        file: *mut st_file,
        name: *const c_char,
        name_len: usize,
        out: *mut st_tensor,
    ) -> st_status;
    pub fn st_get_at(file: *mut st_file, i: usize, out: *mut st_tensor) -> st_status;
    pub fn st_read(
        file: *mut st_file,
        name: *const c_char,
        dst: *mut c_void,
        dst_size: usize,
        read: *mut st_tensor,
    ) -> st_status;
    pub fn st_read_n(
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
        ranges: *const st_range,
        n: usize,
        dst: *mut c_void,
        dst_size: usize,
        read: *mut st_tensor,
    ) -> st_status;
    pub fn st_read_slice_n(
        file: *mut st_file,
        name: *const c_char,
        name_len: usize,
        ranges: *const st_range,
        n: usize,
        dst: *mut c_void,
        dst_size: usize,
        read: *mut st_tensor,
    ) -> st_status;
    pub fn st_read_many(
        file: *mut st_file,
        reqs: *const st_read_request,
        n: usize,
        progress: st_progress_fn,
        user: *mut c_void,
    ) -> st_status;
    pub fn st_prefetch(file: *mut st_file, names: *const *const c_char, n: usize) -> st_status;
    pub fn st_prefetch_at(
        file: *mut st_file,
        indices: *const u64,
        n: usize,
        progress: st_progress_fn,
        user: *mut c_void,
    ) -> st_status;
    pub fn st_load_options_init(out: *mut st_load_options, size: usize);
    pub fn st_load(
        file: *mut st_file,
        indices: *const u64,
        n: usize,
        opts: *const st_load_options,
    ) -> st_status;
    pub fn st_txn_options_init(out: *mut st_txn_options, size: usize);
    pub fn st_update(file: *mut st_file, name: *const c_char, value: *const st_tensor) -> st_status;
    pub fn st_update_n(
        file: *mut st_file,
        name: *const c_char,
        name_len: usize,
        value: *const st_tensor,
    ) -> st_status;
    pub fn st_begin(file: *mut st_file, opts: *const st_txn_options, out: *mut *mut st_txn) -> st_status;
    pub fn st_txn_update(txn: *mut st_txn, name: *const c_char, value: *const st_tensor) -> st_status;
    pub fn st_txn_update_n(
        txn: *mut st_txn,
        name: *const c_char,
        name_len: usize,
        value: *const st_tensor,
    ) -> st_status;
    pub fn st_txn_put(txn: *mut st_txn, name: *const c_char, value: *const st_tensor) -> st_status;
    pub fn st_txn_put_n(
        txn: *mut st_txn,
        name: *const c_char,
        name_len: usize,
        value: *const st_tensor,
    ) -> st_status;
    pub fn st_txn_delete(txn: *mut st_txn, name: *const c_char) -> st_status;
    pub fn st_txn_delete_n(txn: *mut st_txn, name: *const c_char, name_len: usize) -> st_status;
    pub fn st_txn_rename(txn: *mut st_txn, from: *const c_char, to: *const c_char) -> st_status;
    pub fn st_txn_rename_n(
        txn: *mut st_txn,
        from: *const c_char,
        from_len: usize,
        to: *const c_char,
        to_len: usize,
    ) -> st_status;
    pub fn st_txn_set_metadata(txn: *mut st_txn, key: *const c_char, value: *const c_char) -> st_status;
    pub fn st_txn_set_metadata_n(
        txn: *mut st_txn,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
    ) -> st_status;
    pub fn st_plan_init(out: *mut st_plan, size: usize);
    pub fn st_txn_plan(txn: *mut st_txn, out: *mut st_plan) -> st_status;
    pub fn st_refresh(file: *mut st_file) -> st_status;
    pub fn st_compact(path: *const c_char, opts: *const st_txn_options) -> st_status;
    pub fn st_commit(txn: *mut st_txn) -> st_status;
    pub fn st_abort(txn: *mut st_txn);
    pub fn st_save_options_init(out: *mut st_save_options, size: usize);
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
    pub fn st_writer_add(
        writer: *mut st_writer,
        name: *const c_char,
        data: *const c_void,
        nbytes: u64,
    ) -> st_status;
    pub fn st_writer_add_n(
        writer: *mut st_writer,
        name: *const c_char,
        name_len: usize,
        data: *const c_void,
        nbytes: u64,
    ) -> st_status;
    pub fn st_writer_put(writer: *mut st_writer, tensor: *const st_tensor) -> st_status;
    pub fn st_writer_finish(writer: *mut st_writer) -> st_status;
    pub fn st_writer_abort(writer: *mut st_writer);
    pub fn st_diff_options_init(out: *mut st_diff_options, size: usize);
    pub fn st_diff(
        from: *const c_char,
        to: *const c_char,
        delta: *const c_char,
        opts: *const st_diff_options,
    ) -> st_status;
    pub fn st_patch_options_init(out: *mut st_patch_options, size: usize);
    pub fn st_patch(base: *const c_char, delta: *const c_char, opts: *const st_patch_options) -> st_status;
    pub fn st_merge(
        base: *const c_char,
        deltas: *const *const c_char,
        n: usize,
        to: *const c_char,
        opts: *const st_save_options,
    ) -> st_status;
    pub fn st_delta_info_init(out: *mut st_delta_info, size: usize);
    pub fn st_get_delta_info(delta: *const c_char, out: *mut st_delta_info) -> st_status;
    pub fn st_reshard(
        from: *const c_char,
        to_folder: *const c_char,
        max_shard_size: u64,
        opts: *const st_save_options,
    ) -> st_status;
    pub fn st_join(from: *const c_char, to: *const c_char, opts: *const st_save_options) -> st_status;
    pub fn st_verify(path: *const c_char, report: st_report_fn, user: *mut c_void) -> st_status;
    pub fn st_verify_options_init(out: *mut st_verify_options, size: usize);
    pub fn st_verify_with(path: *const c_char, opts: *const st_verify_options) -> st_status;
    pub fn st_recover(path: *const c_char) -> st_status;
    pub fn st_recover_options_init(out: *mut st_recover_options, size: usize);
    pub fn st_recover_with(path: *const c_char, opts: *const st_recover_options) -> st_status;
    pub fn st_io_info_init(out: *mut st_io_info, size: usize);
    pub fn st_get_io_info(file: *const st_file, out: *mut st_io_info) -> st_status;
    pub fn st_stats_init(out: *mut st_stats, size: usize);
    pub fn st_get_stats(file: *const st_file, out: *mut st_stats) -> st_status;
}
