// A transaction on a checkpoint: new bytes for any number of tensors, of the
// same dtype and shape, applied all or none. Stages without a lock; takes its
// locks, in ascending order, when it commits. One thread at a time.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "store/checkpoint.h"
#include "write/patch.h"

namespace st::store {

struct TransactionOptions {
  bool copy = false;  // payloads are not kept by the caller until commit
  int32_t lock_timeout_ms = 10000;
  Progress progress = {};
};

// What an update is to write.
struct NewBytes {
  uint32_t dtype;
  std::span<const uint64_t> shape;
  const void *bytes;
  uint64_t nbytes;
};

class Transaction {
 public:
  static Result<std::unique_ptr<Transaction>> begin(Checkpoint &checkpoint, TransactionOptions options);
  ~Transaction();

  Result<void> update(std::string_view name, const NewBytes &value);
  // After status busy it may be called again; after anything else it is over.
  Result<void> commit();

  Checkpoint &checkpoint() const { return checkpoint_; }

 private:
  struct Staged {
    std::string_view name;  // in a snapshot, which the checkpoint keeps
    size_t index;           // in *snapshot_
    write::Piece piece;     // offset as of *snapshot_; what undo is for is not staged but borrowed
  };
  // The file as it is now, locked for this transaction.
  struct Locked {
    os::File file;
    os::RangeLock lock;  // of file: dies first
    write::Identity identity;
  };

  Transaction(Checkpoint &checkpoint, TransactionOptions options);
  Result<void> may_go_on() const;
  Result<void> stage(size_t index, const TensorView &tensor, const NewBytes &value);
  Result<void> borrow(write::Piece *piece, const void *bytes);
  Result<std::unique_ptr<Locked>> lock();
  Result<std::unique_ptr<Locked>> try_lock(const os::LockWait &wait);  // null: the file changed, look again
  Result<void> follow_to(std::unique_ptr<Snapshot> snapshot);
  Result<void> test_locks(const Locked &locked);
  Error name_blocked(Error busy, const os::File &file) const;
  Result<void> finish(const Locked &locked);
  using Applied = tl::expected<void, write::PatchFailure>;
  Result<Applied> apply(const Locked &locked);
  Result<std::vector<write::RangeRecord>> save_old(const Locked &locked);
  Result<void> stage_borrowed();
  std::vector<write::Piece> pieces() const;  // as they follow each other in the file
  void let_go_of_journal();

  Checkpoint &checkpoint_;
  const TransactionOptions options_;
  Control control_;  // of the call under way
  const pid_t process_;
  const Snapshot *snapshot_;
  std::vector<Staged> staged_;
  std::unordered_map<size_t, size_t> by_index_;  // index of a tensor to its place in staged_
  write::JournalFolder::Taken journal_;
  uint64_t journal_start_ = 0;  // bytes written to it before this transaction
  bool failed_ = false;
};

}  // namespace st::store
