// The process that holds a lock. For open-file-description locks the kernel does
// not tell it (their pid is -1). But /proc/PID/fdinfo lists them for processes
// that we may look at.
#pragma once

#include "os/file.h"
#include "os/range_lock.h"

namespace st::os {

// A process other than ourselves with a lock that covers a byte of `range` of this file; 0 if none can be seen. A
// user other than root sees its own processes alone.
pid_t find_lock_holder(const File &file, const LockRange &range);

// A wait for `wanted` ended busy, there or at the turnstile: which process was in the way?
// "process 4711", or of 0 "another worker".
std::string name_of_holder(pid_t pid);
Error tell_holder(Error busy, const File &file, const LockRange &wanted);

// Does a line of fdinfo ("lock: 1: OFDLCK ADVISORY WRITE -1 fe:00:1234 0 99") tell of a lock that covers a byte of
// `range` of this file? `maybe`: by its inode, and of a device that the file may be on: btrfs and overlays give a file
// another device than they lock it by, and each of theirs has the major number 0. Pure.
enum class Locks { no, maybe, yes };
Locks line_locks(std::string_view line, const struct stat &file, const LockRange &range);

}  // namespace st::os
