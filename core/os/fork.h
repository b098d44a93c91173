// What a fork means here: it is counted, so that objects know a child, and it takes no locks along.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace st::os {

// A lock lives as long as any descriptor of its open file, a forked child's included. If the parent were killed, its
// locks would stay, and nobody would recover what it left. So a child points its copies elsewhere at once: to /dev/null
// and not nowhere, because the numbers still belong to objects that will close them. One in a process; any thread.
class Forks {
 public:
  Forks();
  // F_OFD_SETLK, which does not wait. No fork comes between a lock and its note. An errno below 0.
  int set_lock(int fd, struct flock *range);
  // The descriptor is about to be closed. It gives back its locks already here, where no fork comes between: a child
  // has a copy of it until then. The close itself is not waited for here, as storage that is far may take long for it.
  void forget(int fd);
  // Differs in a forked child.
  uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }

 private:
  void in_child();
  bool is_locked(int fd) const {
    const auto number = static_cast<size_t>(fd);
    return number < locked_.size() && locked_[number];
  }

  static Forks *current;
  std::atomic<uint64_t> generation_ = 0;
  std::mutex mutex_;
  std::vector<bool> locked_;  // by number
};

}  // namespace st::os
