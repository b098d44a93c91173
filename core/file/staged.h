// What a transaction on one file has staged, and for which state of the file: new bytes of tensors, for a patch; or the
// catalogue that a publish makes. staging.h fills it. commit_lock.h locks the file for it; patch_commit.h and
// rewrite_commit.h carry it out. A Transaction takes these steps alone, Participants together. One thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/later_log.h"
#include "file/any_transaction.h"
#include "file/data_file.h"
#include "file/pending_catalogue.h"
#include "file/slice_map.h"
#include "journal/journal_folder.h"
#include "journal/pieces.h"
#include "os/made_in.h"

namespace st::store {

// A tensor that a patch changes.
struct StagedTensor {
  std::string_view name;  // in the snapshot
  size_t index;           // in the snapshot
  write::Piece piece;     // offset as of the snapshot; what undo is for is not staged but borrowed
};

// New bytes of parts of a tensor; see slices.h.
struct StagedSlices {
  std::string name;
  SliceMap map;
};

// A tensor whose new bytes are made at commit; see remakes.h.
struct StagedRemake {
  std::string name;
  size_t index;  // in the snapshot
  Remake make;
  uint64_t in_journal;  // about so many bytes
};

// Bytes of a put: in the caller's memory, or in the journal.
struct StagedPayload {
  const void *bytes;
  write::Payload journal;
  uint64_t nbytes;
  write::SectorTable table = {};      // of bytes that were borrowed for a patch
  std::optional<uint64_t> hash = {};  // of bytes that were borrowed for a publish; see NewBytes
};

struct Staged {
  Staged(DataFile &file, TransactionOptions options);
  ~Staged();
  Staged(const Staged &) = delete;
  Staged &operator=(const Staged &) = delete;

  // Statuses forked, poisoned, txn_failed.
  Result<void> may_go_on() const;
  // A call that may take long: from now on `control` is that call's.
  void begin_call() { control = Control(options.progress, &file.account().interrupts); }
  // By another progress, for the rest of the call.
  void tell(Progress progress) { control = control.with(std::move(progress)); }

  bool publishes() const;
  bool patches() const { return !tensors.empty() || !slices.empty() || !remakes.empty(); }
  bool has_work() const { return patches() || publishes(); }
  std::vector<write::Piece> pieces() const;  // as they follow each other in the file
  // Where a tensor of the snapshot lies in the file.
  ByteRange place_of(size_t index) const {
    const TensorView t = snapshot->header.index.at(index);
    return {snapshot->file_offset(t), t.nbytes};
  }

  // These bytes of a tensor are in the file now.
  void show(size_t index, uint64_t offset, uint64_t n) { file.show_patch(*snapshot, index, offset, n, later.log()); }

  bool has_other_hosts() const { return snapshot->reads_past_cache(); }
  // `work` may have the descriptors of other files of the handle, if there are any. See Descriptors.
  template <class Work>
  auto with_room(Work work) const {
    return os::Descriptors::with_room(file.options().descriptors, os::Descriptors::GiveUp::all, std::move(work));
  }
  // Takes one, if there is none yet.
  Result<void> need_journal();
  Result<void> check_journal_is_there() const { return file.journals().check_beside(journal); }
  // A committed one, which was not finished, stays on the disk, unlocked, for recovery: the file is poisoned.
  void return_journal();
  // What the commit has to tell, now that nothing is locked: the log may use the file by another handle.
  void tell_log() noexcept {
    if (made_in.this_process()) later.tell(file.options().log);
  }

  DataFile &file;
  const TransactionOptions options;
  const os::MadeIn made_in;
  Control control;  // of the call under way
  LaterLog later;   // what is to be told at its end
  HeldSnapshot snapshot;
  std::vector<StagedTensor> tensors;             // of a patch
  std::unordered_map<size_t, size_t> by_index;   // index of a tensor to its place in `tensors`
  std::unique_ptr<PendingCatalogue> draft = {};  // of a publish, and how it came about
  std::vector<Change> changes;
  std::vector<StagedPayload> payloads;
  std::map<size_t, StagedSlices> slices = {};       // of a patch, by the index of their tensor in the snapshot
  std::vector<SliceMap> slice_maps = {};            // of a publish
  std::vector<write::Payload> slice_payloads = {};  // in the journal
  std::vector<write::Piece> slice_pieces = {};      // once the locks are held
  std::vector<StagedRemake> remakes = {};
  std::vector<write::Piece> remade = {};  // of these, once they are assembled
  write::JournalFolder::Taken journal = {};
  uint64_t journal_start = 0;  // bytes written to it before this transaction
  bool failed = false;         // there is no other commit
};

void sort_by_offset(std::vector<write::Piece> *pieces);

}  // namespace st::store
