#include "failure.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "interrupt.h"
#include "json.h"
#include "sized.h"
#include "text.h"

namespace stctl {
namespace {

#ifdef EDQUOT  // which Windows lacks
constexpr int over_quota = EDQUOT;
#else
constexpr int over_quota = ENOSPC;
#endif

// As libst says it, too.
constexpr std::string_view free_some = "; free some room";

std::string advice_on(int err) {
  if (err != ENOSPC && err != over_quota) return {};
  return fmt::format("{}{}", free_some, err == ENOSPC ? "" : ", or have the quota raised");
}

}  // namespace

Failure Failure::of_libst(st_status status) {
  auto info = sized<st_error_info>();
  Failure failure(exit_code_of(status), st_last_error());
  failure.status_ = status;
  if (st_last_error_info(&info) == ST_OK && info.status == status) {
    failure.os_errno_ = info.os_errno;
    failure.holder_pid_ = info.holder_pid;
    if (info.offset != UINT64_MAX) failure.offset_ = info.offset;
    if (info.tensor) failure.tensor_ = std::string(info.tensor, info.tensor_len);
  }
  if (status == ST_E_HARD_LINKS) failure.message_ += " with --break-links";
  const bool stopped = status == ST_E_INTERRUPTED || status == ST_E_CANCELLED;
  if (stopped && interrupted()) {
    failure.exit_code_ = exit_signal + interrupted();
    // It was stctl's callback, and the user knows of none.
    constexpr std::string_view callback = "the progress callback cancelled the call";
    if (failure.message_.starts_with(callback)) failure.message_.replace(0, callback.size(), "interrupted");
  }
  return failure;
}

Failure Failure::of_errno(int err, const char *what, const std::string &path, st_status status) {
  Failure failure(exit_failed,
                  std::string("cannot ") + what + " '" + escape(path) + "': " + std::strerror(err) + advice_on(err));
  failure.os_errno_ = err;
  failure.status_ = status;
  return failure;
}

Failure Failure::with_nothing_changed() const {
  Failure copy = *this;
  const bool is_full = status_ == ST_E_NO_SPACE || os_errno_ == ENOSPC || os_errno_ == over_quota;
  if (is_full && message_.find("nothing was changed") == message_.npos)
    copy.message_.insert(std::min(message_.rfind(free_some), message_.size()), "; nothing was changed");
  return copy;
}

Failure Failure::with_exit_code(int code) const {
  Failure copy = *this;
  copy.exit_code_ = code;
  return copy;
}

std::string Failure::sentence() const {
  return status_ == ST_OK ? message_ : message_ + " (" + st_status_name(status_) + ")";
}

void Failure::write(Json &json) const {
  json.begin_object();
  json.key("status");
  if (status_ == ST_OK) {
    json.null();
  } else {
    json.value(st_status_name(status_));
  }
  json.field("message", message_);
  json.field("exit_code", static_cast<int64_t>(exit_code_));
  if (os_errno_) json.field("errno", static_cast<int64_t>(os_errno_));
  if (tensor_) json.field("tensor", *tensor_);
  if (offset_) json.field("offset", *offset_);
  if (holder_pid_) json.field("holder_pid", holder_pid_);
  json.end_object();
}

void check(st_status status) {
  if (status != ST_OK) throw Failure::of_libst(status);
}

void check_change(st_status status) {
  if (status == ST_E_NO_SPACE) throw Failure::of_libst(status).with_nothing_changed();
  check(status);
}

void check_one_source(size_t given, const char *options) {
  if (given == 0) throw UsageFailure(fmt::format("one of {} is needed", options));
  if (given > 1) throw UsageFailure(fmt::format("only one of {} is taken, but {} were given", options, given));
}

}  // namespace stctl
