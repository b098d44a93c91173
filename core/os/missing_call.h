// The answers of a call that is not there: the kernel is too old, the filesystem has none, or a sandbox forbids it.
#pragma once

#include <cerrno>
#include <cstdint>

namespace st::os {

inline bool is_missing(int64_t answer) {
  return answer == -ENOSYS || answer == -EPERM || answer == -EINVAL || answer == -EOPNOTSUPP;
}

}  // namespace st::os
