#include "os/given_memory.h"

#include <cstring>

#include "os/file.h"

namespace st::os {
namespace {

// So many are copied in less time than the call takes.
constexpr size_t few = 4096;

}  // namespace

Error given_memory_is_gone(int err) {
  Error e = error(Status::io, "the new bytes cannot be read: the memory that they were in is gone");
  e.os_errno = err;
  return e;
}

Result<void> copy_given(Env &env, const void *from, size_t n, void *to) {
  const auto *source = static_cast<const std::byte *>(from);
  auto *target = static_cast<std::byte *>(to);
  if (n <= few) {
    std::memcpy(target, source, n);
    return {};
  }
  for (size_t done = 0; done < n;) {
    const ssize_t took = repeat_interrupted([&] { return env.copy_memory(target + done, source + done, n - done); });
    if (took == -ENOSYS || took == -EPERM) {
      std::memcpy(target + done, source + done, n - done);
      return {};
    }
    if (took <= 0) return Failure(given_memory_is_gone(took < 0 ? static_cast<int>(-took) : EFAULT));
    done += static_cast<size_t>(took);
  }
  return {};
}

}  // namespace st::os
