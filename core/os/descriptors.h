// Descriptors of many files, of which only so many may be open at once. The least
// recently used one is closed. When it is wanted again, it is opened anew by its
// path, if that still leads to the same file. Any thread. A forked
// child has descriptors of its own, and takes no mutex of its parent's.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "os/file.h"
#include "os/per_process.h"

namespace st::os {

// A handle has no more of its shards, so that a program may have a few handles.
inline constexpr size_t most_descriptors = 128;

class Descriptors {
 public:
  explicit Descriptors(Env &env, size_t most = most_descriptors) : env_(env), open_(env), most_(most) {}

  // Stays open while it is held, also if it is given up meanwhile.
  using Held = std::shared_ptr<const File>;
  // `owner` names it: one owner, one file.
  void put(const void *owner, File file);
  // For reading, as `closed` is read. Status file_changed if its path leads to another file than `identity`.
  Result<Held> get(const void *owner, const File &closed, const struct stat &identity);
  void forget(const void *owner);

 private:
  struct Open {
    std::mutex mutex;                                 // of what follows
    std::list<std::pair<const void *, Held>> by_use;  // the last used first
    std::unordered_map<const void *, std::list<std::pair<const void *, Held>>::iterator> by_owner;
  };
  Held keep(Open &open, const void *owner, File file);

  Env &env_;
  PerProcess<Open> open_;
  const size_t most_;
};

}  // namespace st::os
