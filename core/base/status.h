// Generated from capi/include/st/st.h by capi/generate.py; do not edit.
#pragma once

#include <cstdint>

namespace st {

enum class Status : int32_t {
  ok = 0,

  // The call.
  invalid_argument = 1,
  nomem = 2,
  internal = 3,
  unsupported = 4,
  cancelled = 5,
  interrupted = 6,
  not_found = 7,
  out_of_range = 8,
  buffer_size = 9,
  read_only = 10,
  busy = 11,
  forked = 12,

  // The storage.
  io = 20,
  no_file = 21,
  permission = 22,
  no_space = 23,
  not_regular = 24,
  file_changed = 25,
  lock_unsupported = 26,
  poisoned = 27,
  checksum = 28,

  // The format, one status a rule: capi/README.md has them with examples.
  header_too_small = 40,
  header_too_large = 41,
  header_truncated = 42,
  header_utf8 = 43,
  header_json = 44,
  metadata = 45,
  tensor_info = 46,
  dtype = 47,
  shape_overflow = 48,
  offsets = 49,
  overlap = 50,
  hole = 51,
  size_mismatch = 52,
  subbyte = 53,
  truncated = 54,
  trailing_data = 55,
  duplicate_name = 56,
  shard_index = 57,
  shard_missing = 58,
  shard_tensor = 59,
  shard_duplicate = 60,
  shard_path = 61,

  // Deltas.
  delta = 62,
  delta_base = 63,

  // Changing.
  dtype_mismatch = 70,
  shape_mismatch = 71,
  nbytes_mismatch = 72,
  needs_recovery = 73,
  journal = 74,
  txn_failed = 75,
  hard_links = 80,
  incomplete = 81,
};

}  // namespace st
