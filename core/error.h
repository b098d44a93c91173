// How core says that something failed: a status, one sentence, and the parts a
// program may want (errno, tensor, shard, offset). Must never lose errno.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace st {

// The numbers are those of st.h; capi asserts that they are equal.
enum class Status : int32_t {
  ok = 0,
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

  io = 20,
  no_file = 21,
  permission = 22,
  no_space = 23,
  not_regular = 24,
  file_changed = 25,
  lock_unsupported = 26,
  poisoned = 27,

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

  delta = 62,
  delta_base = 63,

  dtype_mismatch = 70,
  shape_mismatch = 71,
  nbytes_mismatch = 72,
  needs_recovery = 73,
  journal = 74,
  txn_failed = 75,
  hard_links = 80,
  incomplete = 81,
};

inline constexpr uint64_t no_offset = UINT64_MAX;

struct Error {
  Status status = Status::internal;
  std::string message;
  int os_errno = 0;
  uint32_t shard = 0;
  uint64_t offset = no_offset;
  std::string tensor = {};
  bool has_tensor = false;
  int64_t holder_pid = 0;

  Error about_tensor(std::string_view name) && {
    tensor = name;
    has_tensor = true;
    return std::move(*this);
  }
  Error at_offset(uint64_t o) && {
    offset = o;
    return std::move(*this);
  }
};

template <class T>
using Result = tl::expected<T, Error>;
using Failure = tl::unexpected<Error>;

// text("n is ", 3, ", not ", name): the parts joined.
inline void append_text(std::string &out, std::string_view part) {
  out += part;
}
template <std::integral N>
void append_text(std::string &out, N number) {
  out += std::to_string(number);
}
template <class... Parts>
std::string text(const Parts &...parts) {
  std::string out;
  (append_text(out, parts), ...);
  return out;
}

// A name as it may stand in a sentence: in quotes, control bytes escaped, and
// cut where somebody chose a name of a megabyte.
std::string in_quotes(std::string_view name);

template <class... Parts>
Error error(Status status, const Parts &...parts) {
  return Error{status, text(parts...)};
}
template <class... Parts>
Failure fail(Status status, const Parts &...parts) {
  return Failure(error(status, parts...));
}

// The status that an errno means, and the failure of one system call:
// "cannot WHAT 'PATH': No such file or directory".
Status status_of_errno(int err);
Error os_error(int err, std::string_view what, std::string_view path);

}  // namespace st
