// Descriptors of many files, of which only so many may be open at once. The least
// recently used one is closed. When it is wanted again, it is opened anew by its
// path, if that still leads to the same file. Any thread. A forked
// child has descriptors of its own, and takes no mutex of its parent's.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "os/file.h"

namespace st::os {

class Descriptors {
 public:
  Descriptors(Env &env, size_t most) : env_(env), first_(env.fork_generation()), most_(most) {}
  ~Descriptors();
  Descriptors(const Descriptors &) = delete;
  Descriptors &operator=(const Descriptors &) = delete;

  // Stays open while it is held, also if it is given up meanwhile.
  using Held = std::shared_ptr<const File>;
  // `owner` names it: one owner, one file.
  void put(const void *owner, File file);
  // For reading, as `closed` is read. Status file_changed if its path leads to another file than `identity`.
  Result<Held> get(const void *owner, const File &closed, const struct stat &identity);
  void forget(const void *owner);

 private:
  // The descriptors of one process.
  struct Open {
    explicit Open(uint64_t g, Open *b = nullptr) : generation(g), before(b) {}
    const uint64_t generation;
    Open *const before;                               // of its parent
    std::mutex mutex;                                 // of what follows
    std::list<std::pair<const void *, Held>> by_use;  // the last used first
    std::unordered_map<const void *, std::list<std::pair<const void *, Held>>::iterator> by_owner;
  };
  Open &mine();
  Held keep(Open &open, const void *owner, File file);

  Env &env_;
  Open first_;
  const size_t most_;
  std::atomic<Open *> of_child_ = nullptr;
};

}  // namespace st::os
