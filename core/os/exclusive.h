// Alone with the file that stands at a place now: all its bytes locked, so that no
// commit is under way and every committed journal beside it is a hot journal.
#pragma once

#include <memory>
#include <string>

#include "os/location.h"
#include "os/range_lock.h"

namespace st::os {

struct Exclusive {
  os::File file;       // open for reading and writing
  os::RangeLock lock;  // of file: dies first
};

// Follows a file that is replaced meanwhile. Status busy; not_regular if no plain file stands there.
Result<std::unique_ptr<Exclusive>> lock_whole_file(const os::Location &at, const os::LockWait &wait);

}  // namespace st::os
