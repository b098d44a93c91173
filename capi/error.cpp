// Statuses and the thread's last error.
#include <algorithm>
#include <iterator>
#include <utility>

#include "boundary.h"
#include "of_thread.h"

namespace st::capi {
namespace {

struct LastError {
  Error error = {Status::ok, {}};
  const char *static_message = nullptr;  // instead of error.message, where memory ran out
};

LastError &last() noexcept {
  return of_thread<LastError>();
}

#define ST_STATUS(in_c, in_core, action) static_assert(static_cast<int32_t>(Status::in_core) == (in_c));
#include "status_list.h"
#undef ST_STATUS

const char *message() {
  return last().static_message ? last().static_message : last().error.message.c_str();
}

}  // namespace

st_status set_last_error(Error &&e) noexcept {
  last().error = std::move(e);
  last().static_message = nullptr;
  return static_cast<st_status>(last().error.status);
}

st_status set_last_error(Status status, const char *static_message) noexcept {
  last().error = Error{status, {}};
  last().static_message = static_message;
  return static_cast<st_status>(status);
}

}  // namespace st::capi

using namespace st::capi;

const char *st_status_name(st_status status) {
  switch (status) {
#define ST_STATUS(in_c, in_core, action) \
  case in_c:                             \
    return #in_c;
#include "status_list.h"
#undef ST_STATUS
    default: return "ST_E_UNKNOWN";
  }
}

uint32_t st_status_action(st_status status) {
  static constexpr std::pair<st_status, uint32_t> actions[] = {
#define ST_STATUS(in_c, in_core, action) {in_c, action},
#include "status_list.h"
#undef ST_STATUS
  };
  const auto found =
      std::find_if(std::begin(actions), std::end(actions), [&](const auto &of) { return of.first == status; });
  return found == std::end(actions) ? ST_ACTION_NONE : found->second;
}

const char *st_last_error(void) {
  return message();
}

st_status st_last_error_info(st_error_info *out) {
  // Not through boundary(): asking after an error must not replace it.
  if (!out || !is_struct_size(out->struct_size)) return ST_E_INVALID_ARGUMENT;
  const st::Error &e = last().error;
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
