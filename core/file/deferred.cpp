#include "file/deferred.h"

#include "journal/patch.h"

namespace st::store {
namespace {

constexpr size_t most_deferred = 16;

}  // namespace

DeferredCommits::DeferredCommits(os::Env &env, write::JournalFolder &journals)
    : env_(env), journals_(journals), process_(env.fork_generation()) {
  commits_.reserve(most_deferred);
}

bool DeferredCommits::has_room() const {
  if (are_parents()) return true;
  std::lock_guard lock(mutex_);
  return commits_.size() < most_deferred;
}

bool DeferredCommits::add(DeferredCommit *commit) noexcept {
  std::lock_guard lock(mutex_);
  if (are_parents()) commits_.clear();
  process_ = env_.fork_generation();
  if (commits_.size() == most_deferred) return false;
  commit->data->lock.release();
  commits_.push_back(std::move(*commit));
  return true;
}

Result<bool> DeferredCommits::settle(const os::LockWait &wait, bool *open_outcome) {
  if (are_parents()) return false;
  std::lock_guard lock(mutex_);
  if (commits_.empty()) return false;
  auto settled = settle_each(wait, open_outcome);
  if (*open_outcome) commits_.clear();
  if (!settled) return Failure(std::move(settled.error()));
  return true;
}

// Under the lock of a commit, so that no recovery is under way that reads the journals. One sync by the descriptor that
// is open for longest is for all: since the kernel tells it of each write-out that failed after the first change.
Result<void> DeferredCommits::settle_each(const os::LockWait &wait, bool *open_outcome) {
  std::unique_ptr<os::LockedFile> synced;
  os::RangeLock lock;
  uint64_t inode = 0;
  while (!commits_.empty()) {
    DeferredCommit &next = commits_.front();
    if (!synced || next.inode != inode) {
      lock.release();
      ST_TRY(lock, os::RangeLock::acquire(next.data->file, {{0, next.data_offset, false}}, wait));
      if (auto done = next.data->file.sync_data(); !done) {
        *open_outcome = true;
        return done;
      }
      synced = std::move(next.data);
      inode = next.inode;
    }
    // Else another writer has finished it, as it came to the same bytes. Or something has removed the folder.
    if (journals_.check_beside(next.journal)) {
      if (auto emptied = next.journal.journal->retire(); !emptied) {
        *open_outcome = true;
        return emptied;
      }
      journals_.give_back(std::move(next.journal));
    }
    commits_.erase(commits_.begin());
  }
  return {};
}

void DeferredCommits::leave() noexcept {
  if (are_parents()) return;
  std::lock_guard lock(mutex_);
  commits_.clear();
}

}  // namespace st::store
