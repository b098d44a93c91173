#include "journal/lock_settled.h"

#include <cerrno>
#include <optional>

#include "os/range_lock.h"
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

// Nothing if it is to be tried again.
Result<std::optional<Look>> settle(const os::Location &at, const os::LockWait &wait, const LockSteps &steps,
                                   std::unique_ptr<os::LockedFile> *locked) {
  const auto look = attempt(at, wait, steps, locked);
  if (!look && look.error().os_errno == ESTALE) return std::nullopt;  // replaced on the server meanwhile
  if (!look) return Failure(look.error());
  if (*look == Look::again) return std::nullopt;
  if (*look == Look::settled || !steps.recover) return *look;
  ST_TRY(steps.recover());
  return std::nullopt;
}

}  // namespace

Result<Look> lock_settled(const os::Location &at, const os::LockWait &wait, const LockSteps &steps,
                          std::unique_ptr<os::LockedFile> *locked) {
  constexpr int at_once = 10;
  const os::WaitedByCall call(os::WaitedByCall::if_outside);
  for (int i = 0; i < at_once; ++i) {
    ST_TRY(const auto look, settle(at, wait, steps, locked));
    if (look) return *look;
  }
  // Somebody is at it again and again. So it is waited for, as for a lock.
  const os::File closed = os::File::closed(at.env(), at.path());
  os::Patience patience(closed, wait);
  Result<void> more;
  for (int i = at_once; i < os::most_lock_attempts && (more = patience.check(no_offset)); ++i) {
    patience.sleep();
    ST_TRY(const auto look, settle(at, wait, steps, locked));
    if (look) return *look;
  }
  if (!more && more.error().status != Status::busy) return Failure(std::move(more.error()));
  return fail(Status::busy, in_quotes(at.path()),
              " is being replaced or recovered all the time; try again, or allow more time");
}

}  // namespace st::write
