// The process that holds a lock. For open-file-description locks the kernel does
// not tell it (their pid is -1). But /proc/PID/fdinfo lists them for processes
// that we may look at.
#pragma once

#include "os/file.h"
#include "os/range_lock.h"

namespace st::os {

// A process other than ourselves with a lock that covers a byte of `range` of
// this file; 0 if none can be seen.
pid_t find_lock_holder(const File &file, const LockRange &range);

// A wait for `wanted` ended busy, there or at the turnstile: which process was in the way?
Error tell_holder(Error busy, const File &file, const LockRange &wanted);

// Does a line of fdinfo ("lock: 1: OFDLCK ADVISORY WRITE -1 fe:00:1234 0 99")
// tell of a lock that covers a byte of `range` of inode `inode`? Pure.
bool line_locks(std::string_view line, uint64_t inode, const LockRange &range);

}  // namespace st::os
