// How core says that something failed: a status, one sentence, and the parts a
// program may want (errno, tensor, shard, offset). Must never lose errno.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "base/error_number.h"
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
  // Unless it is about one already.
  Error about_tensor_at_least(std::string_view name) && {
    return has_tensor ? std::move(*this) : std::move(*this).about_tensor(name);
  }
  Error at_offset(uint64_t o) && {
    offset = o;
    return std::move(*this);
  }
};

template <class T>
using Result = tl::expected<T, Error>;
using Failure = tl::unexpected<Error>;

// ST_TRY(f()) returns the error of f() to the caller, if there is one. ST_TRY(auto x, f()) does the same, and else
// moves the value of f() into x. ST_TRY(x, f()) fills an older x; ST_TRY(auto &&x, f()) moves nothing, where that would
// cost. One name serves all, as the first argument shows what is kept. The forms with x are several statements, so
// braces go around them where an `if` decides about them. ST_TRY_NAMED is variadic because clang-tidy would otherwise
// want brackets around the name that it declares.
#define ST_TRY(...) ST_TRY_CHOSEN(__VA_ARGS__, ST_TRY_VALUE, ST_TRY_VOID, )(__VA_ARGS__)
#define ST_TRY_CHOSEN(first, second, chosen, ...) chosen
#define ST_TRY_VOID(expression)                                                                                \
  do {                                                                                                         \
    if (auto st_tried_ = (expression); !st_tried_) return ::tl::make_unexpected(std::move(st_tried_.error())); \
  } while (false)
#define ST_TRY_VALUE(value, expression) ST_TRY_NAMED(ST_TRY_NAME(st_tried_, __LINE__), value, expression)
#define ST_TRY_NAME(name, line) ST_TRY_JOINED(name, line)
#define ST_TRY_JOINED(name, line) name##line
#define ST_TRY_NAMED(tried, value, ...)                               \
  auto tried = (__VA_ARGS__);                                         \
  if (!tried) return ::tl::make_unexpected(std::move(tried.error())); \
  value = *std::move(tried)

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

// A name as it may stand in a sentence: in quotes, the bytes escaped of what is not to be seen (visible.h), and cut
// where somebody chose a name of a megabyte.
std::string in_quotes(std::string_view name);

template <class... Parts>
Error error(Status status, const Parts &...parts) {
  return Error{status, text(parts...)};
}
template <class... Parts>
Failure fail(Status status, const Parts &...parts) {
  return Failure(error(status, parts...));
}

// The failure of one system call: "cannot WHAT 'PATH': No such file or directory".
Error os_error(int err, std::string_view what, std::string_view path);
// The same error, about that tensor, which its sentence names first.
Error naming_tensor(std::string_view name, Error e);

}  // namespace st
