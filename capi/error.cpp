// Statuses and the thread's last error.
#include "boundary.h"

namespace st::capi {
namespace {

struct LastError {
  Error error;
  const char *static_message = nullptr;  // instead of error.message, where memory ran out
};

thread_local LastError last = {{Status::ok, {}}, nullptr};

#define ST_SAME(status) static_assert(static_cast<int32_t>(Status::status)
ST_SAME(ok) == ST_OK);
ST_SAME(invalid_argument) == ST_E_INVALID_ARGUMENT);
ST_SAME(nomem) == ST_E_NOMEM);
ST_SAME(internal) == ST_E_INTERNAL);
ST_SAME(unsupported) == ST_E_UNSUPPORTED);
ST_SAME(cancelled) == ST_E_CANCELLED);
ST_SAME(interrupted) == ST_E_INTERRUPTED);
ST_SAME(not_found) == ST_E_NOT_FOUND);
ST_SAME(out_of_range) == ST_E_OUT_OF_RANGE);
ST_SAME(buffer_size) == ST_E_BUFFER_SIZE);
ST_SAME(read_only) == ST_E_READ_ONLY);
ST_SAME(busy) == ST_E_BUSY);
ST_SAME(forked) == ST_E_FORKED);
ST_SAME(io) == ST_E_IO);
ST_SAME(no_file) == ST_E_NO_FILE);
ST_SAME(permission) == ST_E_PERMISSION);
ST_SAME(no_space) == ST_E_NO_SPACE);
ST_SAME(not_regular) == ST_E_NOT_REGULAR);
ST_SAME(file_changed) == ST_E_FILE_CHANGED);
ST_SAME(lock_unsupported) == ST_E_LOCK_UNSUPPORTED);
ST_SAME(poisoned) == ST_E_POISONED);
ST_SAME(header_too_small) == ST_E_HEADER_TOO_SMALL);
ST_SAME(header_too_large) == ST_E_HEADER_TOO_LARGE);
ST_SAME(header_truncated) == ST_E_HEADER_TRUNCATED);
ST_SAME(header_utf8) == ST_E_HEADER_UTF8);
ST_SAME(header_json) == ST_E_HEADER_JSON);
ST_SAME(metadata) == ST_E_METADATA);
ST_SAME(tensor_info) == ST_E_TENSOR_INFO);
ST_SAME(dtype) == ST_E_DTYPE);
ST_SAME(shape_overflow) == ST_E_SHAPE_OVERFLOW);
ST_SAME(offsets) == ST_E_OFFSETS);
ST_SAME(overlap) == ST_E_OVERLAP);
ST_SAME(hole) == ST_E_HOLE);
ST_SAME(size_mismatch) == ST_E_SIZE_MISMATCH);
ST_SAME(subbyte) == ST_E_SUBBYTE);
ST_SAME(truncated) == ST_E_TRUNCATED);
ST_SAME(trailing_data) == ST_E_TRAILING_DATA);
ST_SAME(duplicate_name) == ST_E_DUPLICATE_NAME);
ST_SAME(shard_index) == ST_E_SHARD_INDEX);
ST_SAME(shard_missing) == ST_E_SHARD_MISSING);
ST_SAME(shard_tensor) == ST_E_SHARD_TENSOR);
ST_SAME(shard_duplicate) == ST_E_SHARD_DUPLICATE);
ST_SAME(shard_path) == ST_E_SHARD_PATH);
ST_SAME(delta) == ST_E_DELTA);
ST_SAME(delta_base) == ST_E_DELTA_BASE);
ST_SAME(dtype_mismatch) == ST_E_DTYPE_MISMATCH);
ST_SAME(shape_mismatch) == ST_E_SHAPE_MISMATCH);
ST_SAME(nbytes_mismatch) == ST_E_NBYTES_MISMATCH);
ST_SAME(needs_recovery) == ST_E_NEEDS_RECOVERY);
ST_SAME(journal) == ST_E_JOURNAL);
ST_SAME(txn_failed) == ST_E_TXN_FAILED);
ST_SAME(hard_links) == ST_E_HARD_LINKS);
ST_SAME(incomplete) == ST_E_INCOMPLETE);
#undef ST_SAME

const char *message() {
  return last.static_message ? last.static_message : last.error.message.c_str();
}

}  // namespace

st_status set_last_error(Error &&e) noexcept {
  last.error = std::move(e);
  last.static_message = nullptr;
  return static_cast<st_status>(last.error.status);
}

st_status set_last_error(Status status, const char *static_message) noexcept {
  last.error = Error{status, {}};
  last.static_message = static_message;
  return static_cast<st_status>(status);
}

}  // namespace st::capi

using namespace st::capi;

const char *st_status_name(st_status status) {
  switch (status) {
#define ST_NAME(name) \
  case name: return #name;
    ST_NAME(ST_OK)
    ST_NAME(ST_E_INVALID_ARGUMENT)
    ST_NAME(ST_E_NOMEM)
    ST_NAME(ST_E_INTERNAL)
    ST_NAME(ST_E_UNSUPPORTED)
    ST_NAME(ST_E_CANCELLED)
    ST_NAME(ST_E_INTERRUPTED)
    ST_NAME(ST_E_NOT_FOUND)
    ST_NAME(ST_E_OUT_OF_RANGE)
    ST_NAME(ST_E_BUFFER_SIZE)
    ST_NAME(ST_E_READ_ONLY)
    ST_NAME(ST_E_BUSY)
    ST_NAME(ST_E_FORKED)
    ST_NAME(ST_E_IO)
    ST_NAME(ST_E_NO_FILE)
    ST_NAME(ST_E_PERMISSION)
    ST_NAME(ST_E_NO_SPACE)
    ST_NAME(ST_E_NOT_REGULAR)
    ST_NAME(ST_E_FILE_CHANGED)
    ST_NAME(ST_E_LOCK_UNSUPPORTED)
    ST_NAME(ST_E_POISONED)
    ST_NAME(ST_E_HEADER_TOO_SMALL)
    ST_NAME(ST_E_HEADER_TOO_LARGE)
    ST_NAME(ST_E_HEADER_TRUNCATED)
    ST_NAME(ST_E_HEADER_UTF8)
    ST_NAME(ST_E_HEADER_JSON)
    ST_NAME(ST_E_METADATA)
    ST_NAME(ST_E_TENSOR_INFO)
    ST_NAME(ST_E_DTYPE)
    ST_NAME(ST_E_SHAPE_OVERFLOW)
    ST_NAME(ST_E_OFFSETS)
    ST_NAME(ST_E_OVERLAP)
    ST_NAME(ST_E_HOLE)
    ST_NAME(ST_E_SIZE_MISMATCH)
    ST_NAME(ST_E_SUBBYTE)
    ST_NAME(ST_E_TRUNCATED)
    ST_NAME(ST_E_TRAILING_DATA)
    ST_NAME(ST_E_DUPLICATE_NAME)
    ST_NAME(ST_E_SHARD_INDEX)
    ST_NAME(ST_E_SHARD_MISSING)
    ST_NAME(ST_E_SHARD_TENSOR)
    ST_NAME(ST_E_SHARD_DUPLICATE)
    ST_NAME(ST_E_SHARD_PATH)
    ST_NAME(ST_E_DELTA)
    ST_NAME(ST_E_DELTA_BASE)
    ST_NAME(ST_E_DTYPE_MISMATCH)
    ST_NAME(ST_E_SHAPE_MISMATCH)
    ST_NAME(ST_E_NBYTES_MISMATCH)
    ST_NAME(ST_E_NEEDS_RECOVERY)
    ST_NAME(ST_E_JOURNAL)
    ST_NAME(ST_E_TXN_FAILED)
    ST_NAME(ST_E_HARD_LINKS)
    ST_NAME(ST_E_INCOMPLETE)
#undef ST_NAME
    default: return "ST_E_UNKNOWN";
  }
}

const char *st_last_error(void) {
  return message();
}

st_status st_last_error_info(st_error_info *out) {
  // Not through boundary(): asking after an error must not replace it.
  if (!out || out->struct_size < sizeof(uint32_t)) return ST_E_INVALID_ARGUMENT;
  const st::Error &e = last.error;
  st_error_info info{};
  info.status = static_cast<st_status>(e.status);
  info.os_errno = e.os_errno;
  info.shard = e.shard;
  info.offset = e.offset;
  info.message = message();
  info.tensor = e.has_tensor ? e.tensor.c_str() : nullptr;
  info.tensor_len = e.has_tensor ? e.tensor.size() : 0;
  info.holder_pid = e.holder_pid;
  static_cast<void>(write_result(out, info));
  return ST_OK;
}
