// Descriptors of many files, of which only so many may be open at once. The least
// recently used one is closed. When it is wanted again, it is opened anew by its
// path, if that still leads to the same file. One that its path is about to lead to no more
// may be kept: while there is room it is closed after all others. Where the process may open
// no more files, half of them are closed. Any thread. A forked child has descriptors of its
// own, and waits for no mutex of its parent's.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/waiters.h"
#include "os/location.h"
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
  // For reading, as `closed` is read. Status file_changed if its path leads to another file than `identity`, or to
  // none. While it was closed a new file may have got its inode: `is_still` is asked of a file that was changed since.
  // It is opened at `at`, if that is given, as no path may lead there. A child that cannot open it may still read by
  // what it inherited, if that was open.
  using IsStill = std::function<Result<bool>(const File &)>;
  Result<Held> get(const void *owner, const File &closed, const struct stat &identity, const IsStill &is_still,
                   const Location *at = nullptr);
  // Its path will lead to it no more. So `held`, which is of that file, or what the owner has of it, is kept. While
  // there is room it goes after all others; what is kept leaves the others half of the room. The one that was kept
  // first goes first. Owners that keep one file take the room of one.
  void keep(const void *owner, const Held &held);
  // Null: nothing is kept.
  Held kept(const void *owner);
  // Its path leads to it after all. So what is kept is one of the others. Takes no memory.
  void end_keeping(const void *owner) noexcept;
  void forget(const void *owner) noexcept;
  // Closes half of them, those that were used least recently, and at least one; or all. What is kept stays, unless
  // there is nothing else: then half of it goes, and at least one. False: there was none.
  enum class GiveUp { half, all };
  bool give_up(GiveUp);

  // Answers `work`, which opens files and may be done again, with the room of what is open here if it needs that.
  template <class Work>
  static auto with_room(const std::shared_ptr<Descriptors> &open, GiveUp what, Work work) {
    return open ? open->make_room_for(what, std::move(work)) : work();
  }

 private:
  struct Entry {
    const void *owner;
    Held held;
    bool is_kept = false;
  };
  using Entries = std::list<Entry>;
  struct Open {
    std::atomic<uint64_t> closed = 0;  // files, so far
    std::mutex mutex;                  // of what follows
    Waiters some_closed;
    size_t closing = 0;    // threads that have taken files from here, and not closed them yet
    Entries by_use, kept;  // the last used first; the last that was kept first
    size_t kept_files = 0;
    std::unordered_map<const void *, Entries::iterator> by_owner;

    // Call before an entry of that file comes to `kept`, and after one has gone.
    size_t is_first_kept(const Held &held) const {
      return std::none_of(kept.begin(), kept.end(), [&](const Entry &e) { return e.held == held; });
    }
    Entries &list_of(const Entry &e) { return e.is_kept ? kept : by_use; }
  };
  // What was taken from the lists, under the mutex, and is closed when that is free.
  class Closing {
   public:
    explicit Closing(Open &open) : open_(open) {}
    ~Closing();
    Closing(const Closing &) = delete;
    Closing &operator=(const Closing &) = delete;
    void take(Entries &from, Entries::iterator which);
    void take_last(Entries &from, size_t stay);
    bool empty() const { return taken_.empty(); }

   private:
    Open &open_;
    Entries taken_;
  };

  template <class Work>
  auto make_room_for(GiveUp what, Work work) {
    constexpr int most_attempts = 1000;  // beside threads that open again what is closed here
    Open &open = open_.mine();
    for (int attempt = 1;; ++attempt) {
      const uint64_t closed = open.closed;
      auto done = work();
      if (done || !is_scarcity(done.error()) || attempt == most_attempts) return done;
      if (!give_up(what) && !await_room(open, closed)) return done;
    }
  }
  // Others may have emptied the lists. Have files been closed since there were so many; or are some about to be?
  static bool await_room(Open &open, uint64_t closed);
  Held found(Open &open, const void *owner);
  Held add(Open &open, const void *owner, Held held);
  void keep_within_most(Open &open, Closing &closing) const;
  Held inherited(Open &mine, const void *owner);
  Result<Held> open_anew(Open &open, const File &closed, const struct stat &identity, const IsStill &is_still,
                         const Location *at);
  static Held counted(Open &open, File file);

  Env &env_;
  PerProcess<Open> open_;
  const size_t most_;
};

}  // namespace st::os
