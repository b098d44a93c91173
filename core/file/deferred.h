// Commits of a handle that are durable in their journals, and not yet in the file (ST_TXN_JOURNAL_ONLY). The file has
// their bytes, for all to read. Their journals stay committed, and locked by this process. After a crash recovery
// finishes them as any others. Another writer of the same bytes does so, too. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "journal/journal_folder.h"
#include "os/made_in.h"
#include "os/named_lock.h"

namespace st::store {

struct DeferredCommit {
  std::unique_ptr<os::LockedFile> data;  // what was written to
  uint64_t inode, data_offset;           // of it: where its header ends
  write::JournalFolder::Taken journal;
  uint64_t added_before;  // added(), before `data` was opened
  uint64_t number = 0;    // which one it is of all that were added
};

class DeferredCommits {
 public:
  DeferredCommits(os::Env &env, const std::string &path, write::JournalFolder &journals);  // of the file at `path`
  // Those that are left at the end are for recovery.

  // A place for one more, if there is one: each takes a journal, and descriptors. A commit takes it before it begins.
  class Place {
   public:
    explicit Place(DeferredCommits *of) : of_(of && of->take_place() ? of : nullptr) {}
    ~Place() {
      if (of_) of_->give_place_back();
    }
    Place(const Place &) = delete;
    Place &operator=(const Place &) = delete;
    explicit operator bool() const { return of_ != nullptr; }

   private:
    DeferredCommits *const of_;
  };
  bool has_room() const { return places_ < most; }
  uint64_t added() const { return added_; }
  // Unlocks its file. The caller has a Place. Takes no memory and waits for no disk, as it is called after the point of
  // no return.
  void add(DeferredCommit commit) noexcept;
  // All are durable in the file, and their journals empty. Whether there were any. Status busy: they stay as they are,
  // or another thread is at it for longer than `wait`.
  // `open_outcome`: a sync failed. Then the journals are unlocked, for recovery.
  Result<bool> settle(const os::LockWait &wait, bool *open_outcome);
  // The journals are unlocked, for recovery. Status busy, too.
  Result<void> leave(const os::LockWait &wait);

 private:
  static constexpr size_t most = 16;

  bool take_place();
  void give_place_back() { --places_; }
  Result<std::unique_lock<std::mutex>> settle_alone(const os::LockWait &wait);
  void take_what_waits();
  Result<void> settle_each(const os::LockWait &wait, bool *open_outcome);

  const os::File named_;  // not open: for messages
  write::JournalFolder &journals_;
  const os::MadeIn made_in_;        // in a child of it the mutexes may be locked for ever
  std::atomic<size_t> places_ = 0;  // taken
  std::atomic<uint64_t> added_ = 0;
  std::mutex settles_;  // of settling_, while a lock or a disk is waited for
  std::vector<DeferredCommit> settling_;
  std::mutex waits_;  // of waiting_
  std::vector<DeferredCommit> waiting_;
};

}  // namespace st::store
