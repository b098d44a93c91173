// Commits of a handle that are durable in their journals, and not yet in the file (ST_TXN_JOURNAL_ONLY). The file has
// their bytes, for all to read. Their journals stay committed, and locked by this process. After a crash recovery
// finishes them as any others. Another writer of the same bytes does so, too. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "journal/journal_folder.h"
#include "os/exclusive.h"

namespace st::store {

struct DeferredCommit {
  std::unique_ptr<os::LockedFile> data;  // what was written to
  uint64_t inode, data_offset;           // of it: where its header ends
  write::JournalFolder::Taken journal;
};

class DeferredCommits {
 public:
  DeferredCommits(os::Env &env, write::JournalFolder &journals);
  // Those that are left at the end are for recovery.

  // May one more be deferred? Not without an end, as each has a journal, and descriptors.
  bool has_room() const;
  // Unlocks its file. False, and all is as it was, if there is no room. Takes no memory: it is called after the point
  // of no return.
  bool add(DeferredCommit *commit) noexcept;
  // All are durable in the file, and their journals empty. Whether there were any. Status busy: they stay as they are.
  // `open_outcome`: a sync failed. Then the journals are unlocked, for recovery.
  Result<bool> settle(const os::LockWait &wait, bool *open_outcome);
  // The journals are unlocked, for recovery.
  void leave() noexcept;

 private:
  Result<void> settle_each(const os::LockWait &wait, bool *open_outcome);
  // In a forked child they are; then its copy of the mutex may be locked for ever.
  bool are_parents() const { return env_.fork_generation() != process_; }

  os::Env &env_;
  write::JournalFolder &journals_;
  mutable std::mutex mutex_;
  std::atomic<uint64_t> process_;  // see os::Env::fork_generation
  std::vector<DeferredCommit> commits_;
};

}  // namespace st::store
