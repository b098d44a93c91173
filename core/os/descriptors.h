// Descriptors of many files, of which only so many may be open at once. The least
// recently used one is closed. When it is wanted again, it is opened anew by its
// path, if that still leads to the same file. Where the process may open no more
// files, half of them are closed. Any thread. A forked child has descriptors of its
// own, and waits for no mutex of its parent's.
#pragma once

#include <algorithm>
#include <cerrno>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "os/file.h"
#include "os/per_process.h"

namespace st::os {

// A handle has no more of its shards, so that a program may have a few handles.
inline size_t most_descriptors(Env &env) {
  constexpr uint64_t most = 128, handles = 8;
  return static_cast<size_t>(std::clamp<uint64_t>(env.most_files() / handles, 1, most));
}

// The process, or the system, may open no more files.
inline bool is_scarcity(const Error &e) {
  return e.os_errno == EMFILE || e.os_errno == ENFILE;
}

class Descriptors {
 public:
  explicit Descriptors(Env &env) : env_(env), open_(env), most_(most_descriptors(env)) {}

  // Stays open while it is held, also if it is given up meanwhile.
  using Held = std::shared_ptr<const File>;
  // `owner` names it: one owner, one file.
  void put(const void *owner, File file);
  // For reading, as `closed` is read. Status file_changed if its path leads to another file than `identity`. A child
  // that cannot open it by its path may still read by what it inherited, if that was open.
  Result<Held> get(const void *owner, const File &closed, const struct stat &identity);
  void forget(const void *owner);
  // Closes half of them, those that were used least recently, and at least one; or all. False: there was none.
  enum class GiveUp { half, all };
  bool give_up(GiveUp);

  // Answers `work`, which opens files and may be done again, with the room of what is open here if it needs that.
  template <class Work>
  static auto with_room(const std::shared_ptr<Descriptors> &open, GiveUp what, Work work) {
    for (;;) {
      auto done = work();
      if (done || !open || !is_scarcity(done.error()) || !open->give_up(what)) return done;
    }
  }

 private:
  struct Open {
    std::mutex mutex;                                 // of what follows
    std::list<std::pair<const void *, Held>> by_use;  // the last used first
    std::unordered_map<const void *, std::list<std::pair<const void *, Held>>::iterator> by_owner;
  };
  using ByUse = decltype(Open::by_use);
  Held keep(Open &open, const void *owner, Held held);
  Held inherited(Open &mine, const void *owner);
  Result<Held> open_anew(const File &closed, const struct stat &identity);
  // All but so many. Call with the mutex, and let them be closed when it is free.
  static ByUse take_from(Open &open, size_t stay);

  Env &env_;
  PerProcess<Open> open_;
  const size_t most_;
};

}  // namespace st::os
