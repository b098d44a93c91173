// Locks of byte ranges as Env has them (F_OFD_SETLK), by LockFileEx. Windows lets nobody read or write locked bytes: so
// all ranges lie where no file has bytes, from 2^62 on.
#pragma once

#include <mutex>
#include <unordered_map>
#include <vector>

#include "os/vocabulary.h"
#include "os/win32/nt.h"

namespace st::os {

class RangeLocks {
 public:
  // 0 or -errno; -EAGAIN: somebody else has some of it.
  int set(int fd, const struct flock &wanted);
  // l_type is F_UNLCK where nobody else's lock conflicts.
  int ask(int fd, struct flock *asked);
  // Before the handle is closed.
  void forget(int fd);

 private:
  struct Range {
    uint64_t begin, end;
    bool exclusive;
  };
  using Ranges = std::vector<Range>;

  static int take(HANDLE handle, const Range &range);
  static void drop(HANDLE handle, const Range &range);
  static int change(HANDLE handle, Ranges *held, const Range &wanted, bool unlock);
  static Range range_of(const struct flock &lock);

  std::mutex mutex_;
  std::unordered_map<int, Ranges> held_;
};

}  // namespace st::os
