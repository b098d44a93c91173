#include "journal/lock_settled.h"

#include <cerrno>

#include "os/waited.h"

namespace st::write {
namespace {

// Locks what the name leads to, and looks at it. Keeps the lock if that is settled.
Result<Look> attempt(const os::Location &at, const os::LockWait &wait, const LockSteps &steps,
                     std::unique_ptr<os::LockedFile> *locked) {
  ST_TRY(auto found, os::lock_named(at, steps.ranges(), wait, steps.tell));
  auto look = steps.look(*found);
  if (look && *look == Look::settled) *locked = std::move(found);
  return look;
}

}  // namespace

Result<Look> lock_settled(const os::Location &at, const os::LockWait &wait, const LockSteps &steps,
                          std::unique_ptr<os::LockedFile> *locked) {
  const os::WaitedByCall call(os::WaitedByCall::if_outside);
  for (int i = 0; i < os::most_lock_attempts; ++i) {
    auto look = attempt(at, wait, steps, locked);
    if (!look && look.error().os_errno == ESTALE) continue;  // replaced on the server meanwhile
    if (!look || *look == Look::settled) return look;
    if (*look == Look::again) continue;
    if (!steps.recover) return look;
    ST_TRY(steps.recover());
  }
  return fail(Status::busy, in_quotes(at.path()), " is being replaced or recovered all the time; try again");
}

}  // namespace st::write
