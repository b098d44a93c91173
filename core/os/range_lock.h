// Byte-range locks between workers: open-file-description locks (F_OFD_SETLK),
// which exclude processes and threads alike, die with their holder, and survive
// an unrelated close of the same file. Ranges are taken in ascending order, so
// no two workers can wait for each other.
#pragma once

#include <cstdint>
#include <vector>

#include "control.h"
#include "error.h"
#include "os/file.h"

namespace st::os {

struct LockRange {
  uint64_t begin;
  uint64_t length;  // 0: to the end of any file, however it grows
  bool exclusive;
};

// How long a lock may be waited for, and who may cut the wait short.
struct LockWait {
  int32_t timeout_ms = 0;  // negative: for ever
  const Control *control = nullptr;
  std::atomic<uint64_t> *waits = nullptr;  // counts locks that were not free at once
};

class RangeLock {
 public:
  RangeLock() = default;
  // `file` must outlive the lock, and be open for writing where a range is
  // exclusive. Status busy if the time ran out, with blocked_at() the first
  // byte of the range that could not be had.
  static Result<RangeLock> acquire(const File &file, std::vector<LockRange> ranges, const LockWait &wait);
  ~RangeLock() { release(); }
  RangeLock(RangeLock &&other) noexcept { swap(other); }
  RangeLock &operator=(RangeLock &&other) noexcept {
    RangeLock(std::move(other)).swap(*this);
    return *this;
  }

  // Explicit, because a forked child may still hold the description open; and
  // only by the process that took it, because the child may not end its
  // parent's lock.
  void release();

 private:
  void swap(RangeLock &other) noexcept {
    std::swap(file_, other.file_);
    std::swap(process_, other.process_);
  }

  const File *file_ = nullptr;
  pid_t process_ = 0;
};

// Would another description's lock conflict with this range? (Holds nothing.)
Result<bool> is_locked(const File &file, const LockRange &range);

// Does the filesystem really exclude? Some FUSE daemons grant every lock. Tries
// the range with a second description of the same file.
Result<bool> locks_exclude(const File &locked, const File &second, const LockRange &range);

}  // namespace st::os
