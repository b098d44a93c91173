// The lock under which a transaction on one file commits: the header shared and its tensors exclusive, or for a publish
// the whole file. What is locked is the file that the path names, in the state that everything was staged for, and no
// hot journal lies beside it.
#pragma once

#include <memory>

#include "file/staged.h"
#include "journal/lock_settled.h"

namespace st::store {

struct CommitLock {
  std::unique_ptr<os::LockedFile> held;
  write::Identity identity;
  uint64_t deferred_before = 0;  // DeferredCommits::added() when it was not locked yet
  const os::File &file() const { return held->file; }
  explicit operator bool() const { return held != nullptr; }
};

// With `tell`, nothing is recovered, and the answer may be Look::hot.
enum class HotJournals { recover, tell };
// Follows a file that was replaced: then `staged` is for that one. Status busy: nothing changed; file_changed; those of
// the locks.
Result<write::Look> lock_for_commit(Staged &staged, int32_t timeout_ms, HotJournals hot, CommitLock *lock);
// Does the path still lead to the locked file? Else status file_changed.
Result<void> check_in_place(const Staged &staged, const CommitLock &lock);

}  // namespace st::store
