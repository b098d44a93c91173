// A file, locked by its name: what is locked is what the name leads to, also if the file is replaced while one waits.
// With all of its bytes locked no commit is under way, and every committed journal beside it is a hot journal.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "os/location.h"
#include "os/range_lock.h"
#include "os/turnstile.h"

namespace st::os {

struct LockedFile {
  os::File file;
  os::RangeLock lock;  // of file: dies first
};

// The most that a file is followed, or recovered, for one lock.
inline constexpr int most_lock_attempts = 1000;

// Puts more into an error of a lock: the process that holds it.
using TellBlocked = std::function<Error(Error blocked, const os::File &file)>;
// The one for a caller that waits for all of `wanted`.
TellBlocked holder_of(const LockRange &wanted);
// `flags`: how to open it. Statuses busy; not_regular; those of opening and locking.
Result<std::unique_ptr<LockedFile>> lock_named(const os::Location &at, const std::vector<LockRange> &ranges,
                                               const os::LockWait &wait, const TellBlocked &tell, int flags = O_RDWR,
                                               Turnstile::As as = Turnstile::As::its_ranges);
// Alone with it. Also of a link the status is not_regular.
Result<std::unique_ptr<LockedFile>> lock_whole_file(const os::Location &at, const os::LockWait &wait);

}  // namespace st::os
