// Files that are being copied, held as they are. A patch writes in place: a copy made meanwhile would be a mix of two
// states, or of shards old and new. So a durable copy holds a shared lock on the whole of each file that it reads.
// Changes wait for it, as they wait for a publish; other readers do not.
//
// Why it does not notice a change instead, and refuse: the times of a file do not tell two writes apart that lie close
// together. A second reading misses a patch that stands still. And of a file that is patched all the time nobody would
// ever get a copy.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "model/model_view.h"
#include "os/named_lock.h"

namespace st::store {

class HeldStill {
 public:
  // All of what these show, and their indexes; views may share files. What lies in no folder does not change, and where
  // nothing can be locked nobody changes anything. False: it is no longer what it was when it was opened, or a dead
  // writer's change was finished, or is to be. Statuses: busy; those of recovery.
  Result<bool> hold(std::span<const ModelView *const> views, const os::LockWait &wait);
  Result<bool> hold(const ModelView &view, const os::LockWait &wait) {
    const ModelView *const one = &view;
    return hold({&one, 1}, wait);
  }
  void let_go() noexcept {
    held_.clear();
    by_inode_.clear();
  }

  // Opens and holds, and does so again while the answer is false or the status is file_changed, so many times. Before
  // each time it lets go.
  Result<void> repeat(const std::string &path, const std::function<Result<bool>()> &open_and_hold);

 private:
  struct Held {
    std::unique_ptr<os::LockedFile> locked;
    struct stat identity;
    bool may_write;  // as far as its rights allow
  };
  Result<bool> hold(const os::Location &at, const Snapshot *known, const os::LockWait &wait);
  Result<bool> lock(const os::Location &at, const Snapshot *known, const os::LockWait &wait);
  const Held *find(const struct stat &file) const;

  std::vector<Held> held_;
  std::map<std::pair<dev_t, ino_t>, size_t> by_inode_;  // which of them
};

}  // namespace st::store
