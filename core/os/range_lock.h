// Byte-range locks between workers: open-file-description locks (F_OFD_SETLK),
// which exclude processes and threads alike, die with their holder, and survive
// an unrelated close of the same file. Ranges are taken in ascending order, so
// no two workers can wait for each other.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/control.h"
#include "base/error.h"
#include "os/file.h"
#include "os/made_in.h"

namespace st::os {

struct LockRange {
  uint64_t begin;
  uint64_t length;  // 0: to the end of any file, the bytes of the turnstile with it
  bool exclusive;
};

// What stands for a whole file: more bytes than any file has. Behind them lies the
// turnstile (turnstile.h), which a lock on the whole file must leave alone.
inline constexpr uint64_t whole_file_bytes = uint64_t{1} << 62;
constexpr LockRange whole_file(bool exclusive) {
  return {0, whole_file_bytes, exclusive};
}

// How long to wait for a lock, and what may end the wait early. The time is for all waits
// of one call: see waited.h.
struct LockWait {
  int32_t timeout_ms = 0;  // negative: for ever
  const Control *control = nullptr;
  std::atomic<uint64_t> *waits = nullptr;  // counts locks that were not free at once
};

// One wait, for however many locks: sleeps between looks, a sixteenth of what it has
// slept already, until time is up or somebody ends it.
class Patience {
 public:
  Patience(const File &file, const LockWait &wait);
  ~Patience();
  Patience(const Patience &) = delete;
  Patience &operator=(const Patience &) = delete;
  void next_lock();    // another one is waited for, and counts by itself
  void look_often() {  // what is waited for has changed
    slept_us_ = 0;
  }
  // May it be waited for any longer? Status busy at `blocked_at` if time is up.
  Result<void> check(uint64_t blocked_at);
  void sleep();

 private:
  const File &file_;
  const LockWait &wait_;
  const uint64_t begun_, deadline_;
  bool counted_ = false, slept_ = false;
  uint64_t slept_us_ = 0, unchecked_us_ = 0;
};

class RangeLock {
 public:
  RangeLock() = default;
  // Holds nothing yet; ranges are taken one by one. `file` must outlive it.
  explicit RangeLock(const File &file) : file_(&file), made_in_(file.env()) {}
  // `file` must outlive the lock, and be open for writing where a range is
  // exclusive. Status busy if the time ran out; the error's offset is the first
  // byte of the range that was not free.
  static Result<RangeLock> acquire(const File &file, std::vector<LockRange> ranges, const LockWait &wait);
  ~RangeLock() { release(); }
  RangeLock(RangeLock &&other) noexcept { swap(other); }
  RangeLock &operator=(RangeLock &&other) noexcept {
    RangeLock(std::move(other)).swap(*this);
    return *this;
  }

  Result<bool> try_take(const LockRange &range);
  void drop(const LockRange &range);  // this much of what it holds
  // Holds nothing any more, and leaves to the descriptor's end what is locked.
  void disown() { file_ = nullptr; }

  // Explicit, because a forked child may still hold the description open; and
  // only by the process that took it, because the child may not end its
  // parent's lock.
  void release();

 private:
  void swap(RangeLock &other) noexcept {
    std::swap(file_, other.file_);
    std::swap(made_in_, other.made_in_);
    std::swap(was_refused_, other.was_refused_);
  }

  const File *file_ = nullptr;
  MadeIn made_in_;
  bool was_refused_ = false;  // what it last asked for
};

// Caches work in pages: two hosts that change neighbours in one page may each write back the other's old bytes. So
// where several hosts may change `file`, exclusive ranges grow to pages. They do not grow into a shared range before
// them, and ranges that meet become one. Elsewhere all stay as they are. They are ascending, and do not overlap.
Result<std::vector<LockRange>> to_pages(const File &file, std::vector<LockRange> ranges);

// Would another description's lock conflict with this range? (Holds nothing.)
Result<bool> is_locked(const File &file, const LockRange &range);
// Which bytes of the range does another description's lock keep from us? If there are several such locks, one is told.
Result<std::optional<LockRange>> locked_part(const File &file, const LockRange &range);
// The same of all of the file, and how it is locked. One question: two could have a change of the lock between them.
enum class Locked { no, shared, exclusive };
Result<Locked> how_locked(const File &file);

// Does the filesystem really exclude? Some FUSE daemons grant every lock. Tries
// the range with a second description of the same file.
Result<bool> locks_exclude(const File &locked, const File &second, const LockRange &range);

}  // namespace st::os
