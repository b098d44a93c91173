// A checkpoint: what a handle of the C ABI stands for. Names to tensors, views
// and copies of their bytes, and the home of transactions. Readers may be many
// threads; each transaction belongs to one.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "control.h"
#include "format/slice.h"
#include "read/copy.h"
#include "store/snapshot.h"
#include "write/journal_folder.h"

namespace st::store {

struct OpenOptions {
  bool writable = false;
  read::MapMode map = read::MapMode::automatic;
  int32_t lock_timeout_ms = 10000;
  Progress progress = {};
  Log log = {};
};

struct Counters {
  std::atomic<uint64_t> bytes_read = 0, bytes_written = 0, journal_bytes = 0, commits = 0, recoveries = 0,
                        lock_waits = 0;
};

class Checkpoint {
 public:
  static Result<std::unique_ptr<Checkpoint>> open(os::Env &env, const std::string &path, OpenOptions options);
  static Result<std::unique_ptr<Checkpoint>> open_memory(os::Env &env, const std::byte *bytes, size_t size);
  Result<std::unique_ptr<Checkpoint>> reopen() const;

  const Snapshot &snapshot() const { return *current_.load(std::memory_order_acquire); }
  const OpenOptions &options() const { return options_; }
  Counters &counters() const { return counters_; }
  void interrupt() { interrupts_.fetch_add(1, std::memory_order_relaxed); }
  Control control() const { return Control(options_.progress, &interrupts_); }

  // Tensor i of a snapshot's index. The bytes of a view live as long as the
  // checkpoint; null for no bytes.
  Result<const std::byte *> view(const Snapshot &s, size_t i) const;
  Result<void> read(const Snapshot &s, size_t i, void *to) const;
  Result<void> read_slice(const Snapshot &s, size_t i, const SlicePlan &plan, void *to) const;

 private:
  friend class Transaction;
  Checkpoint(os::Env &env, OpenOptions options) : env_(env), options_(std::move(options)) {}

  read::Source source(const Snapshot &) const;
  void adopt(std::unique_ptr<Snapshot> snapshot);
  Result<void> recover_if_needed(const os::File &file);
  Result<void> recover(const os::LockWait &wait);

  os::Env &env_;
  OpenOptions options_;
  std::string path_;  // absolute, without symbolic links; empty for memory
  std::atomic<Snapshot *> current_ = nullptr;
  std::vector<std::unique_ptr<Snapshot>> snapshots_;  // the current one last
  std::mutex mutex_;                                  // of snapshots_
  std::unique_ptr<write::JournalFolder> journals_;    // of a writable checkpoint
  std::atomic<bool> poisoned_ = false;
  std::atomic<bool> locks_tested_ = false;
  std::atomic<uint64_t> undo_from_ = UINT64_MAX;  // see write/undo.h
  std::atomic<uint64_t> interrupts_ = 0;
  mutable Counters counters_;
};

}  // namespace st::store
