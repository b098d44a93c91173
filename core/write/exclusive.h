// Alone with the file that a path names now: all its bytes locked, so that no
// commit is under way and every committed journal beside it is an orphan.
#pragma once

#include <memory>
#include <string>

#include "os/range_lock.h"

namespace st::write {

struct Exclusive {
  os::File file;       // open for reading and writing
  os::RangeLock lock;  // of file: dies first
};

// Follows a file that is replaced meanwhile. Status busy. Where links are refused:
// status not_regular if the path, in its last component, names no plain file itself.
Result<std::unique_ptr<Exclusive>> lock_whole_file(os::Env &env, const std::string &path, const os::LockWait &wait,
                                                   os::Links links = os::Links::follow);

}  // namespace st::write
