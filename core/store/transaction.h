// A transaction on a checkpoint, applied all or none. New bytes for tensors of
// the same dtype and shape are a patch, in place; anything else (tensors added,
// replaced, removed, renamed, metadata) is a publish: a new file that takes the
// old one's place. Stages without a lock; takes its locks, in ascending order,
// when it commits. One thread at a time.
#pragma once

#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "store/checkpoint.h"
#include "store/draft.h"
#include "write/build.h"
#include "write/patch.h"
#include "write/publish_plan.h"
#include "write/replacement.h"

namespace st::store {

struct TransactionOptions {
  bool copy = false;  // payloads are not kept by the caller until commit
  int32_t lock_timeout_ms = 10000;
  Progress progress = {};
  bool publish = false;      // also what could be patched: no reader sees a mix
  bool break_links = false;  // publish a file that has other names
  bool fillers = false;      // removed tensors leave their bytes for later ones
  bool compact = false;      // fillers go, and the layout is renewed though nothing else changes
  write::Layout layout = write::Layout::keep;
  uint64_t alignment = 0;
  uint64_t reserve = 0;
  // Asked at commit when all locks are held, with the file as it now is: what it
  // refuses is not done.
  std::function<Result<void>(const os::File &locked, const Snapshot &now)> before_change = {};
};

// What a commit would do.
struct CommitPlan {
  enum Kind { nothing, patch, publish } kind = nothing;
  uint64_t file_size = 0, data_offset = 0;             // afterwards
  uint64_t written = 0, shared = 0, copied = 0;        // bytes
  uint64_t space_needed = 0, space_free = UINT64_MAX;  // bytes
  std::string how;
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
  // These make a publish of it. What they refuse leaves the transaction as it was.
  Result<void> put(std::string_view name, const NewBytes &value);
  Result<void> remove(std::string_view name);
  Result<void> rename(std::string_view from, std::string_view to);
  Result<void> set_metadata(std::string_view key, std::optional<std::string_view> value);
  // All tensors that there are by then, in the order that the file is to have them.
  Result<void> arrange(std::vector<std::string> names);
  // As the handle sees the file now. Changes nothing.
  Result<CommitPlan> plan();
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

  // Bytes of a put: in the caller's memory, or in the journal.
  struct Payload {
    const void *bytes;
    write::Payload journal;
    uint64_t nbytes;
  };
  struct NewFile;  // planned, and being made

  Transaction(Checkpoint &checkpoint, TransactionOptions options);
  Result<void> may_go_on() const;
  Result<void> need_journal();
  bool publishes() const;
  std::unique_ptr<Draft> draft_of(const Index &index) const;
  Result<void> draft();
  Result<void> apply(Change change);
  Result<void> put_bytes(Change change, const NewBytes &value);
  Result<write::PublishPlan> plan_publish(uint64_t block) const;
  Result<void> publish(const Locked &locked);
  Result<void> finish_publish(const write::Built &built, tl::expected<void, write::SwapFailure> placed);
  Result<void> make(const Locked &locked, NewFile *made);
  Result<void> find_committed_orphans(bool *found) const;
  Result<void> stage(size_t index, const TensorView &tensor, const NewBytes &value);
  Result<void> borrow(write::Piece *piece, const void *bytes);
  Result<std::unique_ptr<Locked>> lock();
  Result<std::unique_ptr<Locked>> try_lock(const os::LockWait &wait);  // null: the file changed, look again
  Result<void> follow_to(std::unique_ptr<Snapshot> snapshot);
  Result<void> test_locks(const Locked &locked, const os::LockRange &range);
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
  std::vector<Staged> staged_;    // of a patch
  std::unique_ptr<Draft> draft_;  // of a publish, and how it came about
  std::vector<Change> changes_;
  std::vector<Payload> payloads_;
  std::unordered_map<size_t, size_t> by_index_;  // index of a tensor to its place in staged_
  write::JournalFolder::Taken journal_;
  uint64_t journal_start_ = 0;  // bytes written to it before this transaction
  bool failed_ = false;
};

}  // namespace st::store
