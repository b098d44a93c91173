// The order in which changes go at a file. Writers change all of it (a publish, a
// save, a recovery); patches change a part. Patches go side by side, so without an
// order a writer would find no moment without one; and writers one after the other
// would leave no moment to a patch. The turnstile gives an order and no more: the
// locks on the file's bytes exclude.
//
// Four bytes behind those that stand for the whole file:
//
//   queue    exclusive   the writer whose turn is next, until it has the whole file;
//   writers  shared      each writer that waits;
//   patches  shared      each patch that waits;
//   gate     exclusive   closed, by the writer in `queue`: no patch begins
//
// A writer takes `queue`, lets in the patches that wait, and closes the gate. It takes
// the whole file once the patches under way have ended, and gives all four bytes back.
// A patch that finds the gate closed, or the whole file locked, waits, and holds no
// other lock on this file meanwhile. If nobody waits, either of them asks once
// (F_OFD_GETLK) and takes no byte here.
//
// A publish puts another file in the place of this one. Waiters here follow, and keep
// their place here until they have one there: hand_over() waits for that.
#pragma once

#include <functional>
#include <vector>

#include "os/range_lock.h"

namespace st::os {

inline constexpr uint64_t turnstile_begin = whole_file_bytes;
inline constexpr LockRange queue_byte{turnstile_begin, 1, true};
inline constexpr LockRange waiting_writers{turnstile_begin + 1, 1, false};
inline constexpr LockRange waiting_patches{turnstile_begin + 2, 1, false};
inline constexpr LockRange gate_byte{turnstile_begin + 3, 1, true};
inline constexpr LockRange turnstile_bytes{turnstile_begin, 4, true};

// The place of one change, from file to file until it has its locks.
class Turnstile {
 public:
  // Does the name of this file lead to another by now?
  using Moved = std::function<bool(const File &)>;
  // A shared lock on all of the file would find no moment without a patch. It may go as a writer, if the files are open
  // for writing.
  enum class As { its_ranges, writer };
  explicit Turnstile(Moved moved, As as = As::its_ranges) : moved_(std::move(moved)), as_(as) {}

  // The ranges of a writer (the whole file, exclusive) or of a patch (the first of them shared). True: `lock` holds
  // them. False: the file was replaced while this waited. Then keep() it, open the one that has its name, and call
  // again. Status busy: at_offset() tells what was waited for, a byte of the turnstile or the begin of a range.
  Result<bool> lock(const File &file, std::vector<LockRange> ranges, const LockWait &wait, RangeLock *lock);
  void keep(File &&file) { kept_ = std::move(file); }

 private:
  const Moved moved_;
  const As as_;
  File kept_;  // where the place is, until there is one at the next file
};

// After `replaced` has been replaced, and while the new file is still locked. Lets go
// of the old file, and lets its waiters come over, so that the next to change the new
// file finds them before it. Waits for them a tenth of a second at most: a stopped
// waiter must not stop others.
void hand_over(const File &replaced, RangeLock &lock) noexcept;

}  // namespace st::os
