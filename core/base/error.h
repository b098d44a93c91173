// How core says that something failed: a status, one sentence, and the parts a
// program may want (errno, tensor, shard, offset). Must never lose errno.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "base/status.h"

namespace st {

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
