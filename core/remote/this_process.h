// The number of this process. Another one in a child of a fork, also where no library was told of that.
#pragma once

#include <cstdint>
#include <mutex>

namespace st::remote {

int64_t this_process();

// As os::PerProcess wants it.
struct ThisProcess {
  uint64_t fork_generation() const { return static_cast<uint64_t>(this_process()); }
};

// A mutex that a child of a fork does not take: a thread of the parent may have it for ever.
class OwnMutex {
 public:
  // Held, or in a child free. Nothing else uses there what it guards.
  std::unique_lock<std::mutex> lock() {
    return this_process() == process_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
  }

 private:
  const int64_t process_ = this_process();
  std::mutex mutex_;
};

}  // namespace st::remote
