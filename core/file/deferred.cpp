#include "file/deferred.h"

#include <new>

namespace st::store {

DeferredCommits::DeferredCommits(os::Env &env, const std::string &path, write::JournalFolder &journals)
    : named_(os::File::closed(env, path)), journals_(journals), made_in_(env) {
  settling_.reserve(most);
  waiting_.reserve(most);
}

bool DeferredCommits::take_place() {
  if (!made_in_.this_process()) return false;
  for (size_t taken = places_; taken < most;)
    if (places_.compare_exchange_weak(taken, taken + 1)) return true;
  return false;
}

// It keeps a place of its own: its caller gives one back.
void DeferredCommits::add(DeferredCommit commit) noexcept {
  commit.data->lock.release();
  ++places_;
  const std::lock_guard lock(waits_);
  commit.number = added_++;
  waiting_.push_back(std::move(commit));
}

void DeferredCommits::take_what_waits() {
  const std::lock_guard lock(waits_);
  for (DeferredCommit &commit : waiting_) settling_.push_back(std::move(commit));
  waiting_.clear();
}

// The thread that has it may wait for others, as long as its own caller allows. So this is one more lock to be waited
// for.
Result<std::unique_lock<std::mutex>> DeferredCommits::settle_alone(const os::LockWait &wait) {
  std::unique_lock lock(settles_, std::try_to_lock);
  if (lock) return lock;
  os::Patience patience(named_, wait);
  while (!lock.try_lock()) {
    ST_TRY(patience.check(no_offset));
    patience.sleep();
  }
  return lock;
}

Result<bool> DeferredCommits::settle(const os::LockWait &wait, bool *open_outcome) {
  if (!made_in_.this_process()) return false;
  ST_TRY(const auto lock, settle_alone(wait));
  take_what_waits();
  const size_t before = settling_.size();
  if (before == 0) return false;
  Error stopped;
  bool settled = false;
  try {
    auto done = settle_each(wait, open_outcome);
    settled = done.has_value();
    if (!done) stopped = std::move(done.error());
  } catch (const std::bad_alloc &) {
    *open_outcome = true;  // perhaps a sync had failed
    stopped = Error{Status::needs_recovery, {}};
  }
  if (*open_outcome) settling_.clear();
  places_ -= before - settling_.size();
  if (!settled) return Failure(std::move(stopped));
  return true;
}

// Under the lock of a commit, so that no recovery is under way that reads the journals. The kernel tells a descriptor
// of each write-back that fails after it was opened. So a sync by one is for all commits that were begun when it
// waited.
Result<void> DeferredCommits::settle_each(const os::LockWait &wait, bool *open_outcome) {
  std::unique_ptr<os::LockedFile> locked;
  os::RangeLock lock;
  uint64_t inode = 0, synced = 0;
  while (!settling_.empty()) {
    DeferredCommit &next = settling_.front();
    const bool is_first = !locked || next.inode != inode;
    if (is_first) {
      lock.release();
      ST_TRY(lock, os::RangeLock::acquire(next.data->file, {{0, next.data_offset, false}}, wait));
    }
    // Else another writer has finished it, as it came to the same bytes. Or something has removed the folder.
    ST_TRY(const auto stands, journals_.is_beside(next.journal));
    if (is_first || next.added_before <= synced) {
      if (auto done = next.data->file.sync_data(); !done) {
        *open_outcome = true;
        return done;
      }
    }
    if (is_first) {
      locked = std::move(next.data);
      inode = next.inode;
      synced = next.number;
    }
    if (stands) {
      if (auto emptied = next.journal.journal->retire(); !emptied) {
        *open_outcome = true;
        return emptied;
      }
      journals_.give_back(std::move(next.journal));
    }
    settling_.erase(settling_.begin());
  }
  return {};
}

Result<void> DeferredCommits::leave(const os::LockWait &wait) {
  if (!made_in_.this_process()) return {};
  ST_TRY(const auto lock, settle_alone(wait));
  take_what_waits();
  places_ -= settling_.size();
  settling_.clear();
  return {};
}

}  // namespace st::store
