// The way to a lock under which a file may be changed, or replaced. The caller then knows three things: the file is
// what its name leads to; the file is in the state that the caller takes it for; and no hot journal lies beside it,
// whose recovery would later undo the change.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "os/named_lock.h"

namespace st::write {

enum class Look {
  settled,  // the locked file may be changed
  again,    // it is in another state, which the caller has taken in
  hot,      // a hot journal lies beside it
};

struct LockSteps {
  // Asked anew for each attempt: in another state the bytes may lie elsewhere.
  std::function<std::vector<os::LockRange>()> ranges;
  os::TellBlocked tell;
  // Under the lock, which the caller may take away if it does not answer `settled`.
  std::function<Result<Look>(os::LockedFile &locked)> look;
  // Under no lock. None: the caller itself sees to a hot journal.
  std::function<Result<void>()> recover;
};

// `wait` is for all of it. Answers `settled` with the lock in `locked`; or without any lock `hot`, if there is no step
// to recover. Status busy; those of the steps.
Result<Look> lock_settled(const os::Location &at, const os::LockWait &wait, const LockSteps &steps,
                          std::unique_ptr<os::LockedFile> *locked);

}  // namespace st::write
