#include "journal/lock_settled.h"

#include <algorithm>
#include <cerrno>

namespace st::write {
namespace {

// Locks what the name leads to, and looks at it. Keeps the lock if that is settled.
Result<Look> attempt(const os::Location &at, const os::LockWait &left, const LockSteps &steps,
                     std::unique_ptr<os::LockedFile> *locked) {
  ST_TRY(auto found, os::lock_named(at, steps.ranges(), left, steps.tell));
  auto look = steps.look(*found);
  if (look && *look == Look::settled) *locked = std::move(found);
  return look;
}

}  // namespace

Result<Look> lock_settled(const os::Location &at, const os::LockWait &wait, const LockSteps &steps,
                          std::unique_ptr<os::LockedFile> *locked) {
  os::Env &env = at.env();
  const uint64_t deadline = env.monotonic_ms() + static_cast<uint64_t>(std::max(wait.timeout_ms, 0));
  os::LockWait left = wait;
  for (int i = 0; i < os::most_lock_attempts; ++i) {
    if (wait.timeout_ms > 0) {
      const uint64_t now = env.monotonic_ms();
      left.timeout_ms = static_cast<int32_t>(deadline - std::min(now, deadline));
    }
    auto look = attempt(at, left, steps, locked);
    if (!look && look.error().os_errno == ESTALE) continue;  // replaced on the server meanwhile
    if (!look || *look == Look::settled) return look;
    if (*look == Look::again) continue;
    if (!steps.recover) return look;
    ST_TRY(steps.recover(left));
  }
  return fail(Status::busy, in_quotes(at.path()), " is being replaced or recovered all the time; try again");
}

}  // namespace st::write
