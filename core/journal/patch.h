// The patch protocol: replace bytes of a file in place, all pieces or none,
// whatever happens. The caller holds the locks and has staged the payloads.
//
//   redo: note old bytes' hashes -> journal durable -> commit record durable
//     -> write the file, durable -> journal empty, durable
//   undo: old bytes into the journal, durable -> undo record durable
//     -> write the file, durable -> journal empty, durable: this is the commit
//   redo, with two flushes: note old bytes' hashes -> journal's name durable -> journal and commit record durable
//     -> write the file, durable -> journal empty, and the device has that
//
//   redo, and the file is synced later: the same up to the write of the file. Here the change is durable, by the
//   journal.
//     Later: the file durable -> journal empty
//
// Two flushes are for storage where the next sync of anybody makes that emptiness durable. No byte that the old record
// could harm is written before that sync. README.md has the proof.
//
// After a crash recovery finishes a redo record, and rolls an undo record back. An error rolls an undo record back at
// once. redo_or_undo.h chooses.
#pragma once

#include <functional>
#include <span>

#include "journal/journal_folder.h"
#include "journal/pieces.h"
#include "journal/redo_or_undo.h"

namespace st::write {

struct PatchFailure {
  Error error;
  bool open_outcome;             // recovery decides; else nothing has changed
  bool sync_failed;              // what was written through this handle can no longer be trusted
  bool payload_changed = false;  // a borrowed piece is not what was noted; it was rolled back
};

using Applied = tl::expected<void, PatchFailure>;

// What a patch asks on its way. After a refusal nothing has changed.
struct PatchQuestions {
  using Question = std::function<Result<void>()>;
  // Is the journal where recovery looks for it? Asked before the commit record. Asked once more when the record is
  // durable and nothing is written to the file yet: if the journal is gone, the record is taken back. Where other hosts
  // write it is asked on the way, too (still_ours.h).
  Question is_there;
  // Asked once, right before the commit: before the commit record, or before an undo record is emptied.
  Question at_last;
};

// What apply_redo() puts into the journal behind the payloads, up to the commit record.
void plan_redo(JournalPlan *journal, std::span<const Piece> pieces);
// When a redo record's bytes become durable in the file.
enum class FileSync {
  now,    // before the answer
  later,  // with two flushes alone, by the caller. Till then the journal stays committed, and the file has the bytes
};
// `pieces` ascend and do not overlap.
Applied apply_redo(const os::File &data, const os::File &dir, Journal &journal, std::span<const Piece> pieces,
                   const Identity &identity, Flushes flushes, FileSync sync, const Control &control,
                   const PatchQuestions &ask);
// `ranges` as save_old() answered (undo.h).
Applied apply_undo(const os::File &data, const os::File &dir, Journal &journal, std::span<const Piece> pieces,
                   const std::vector<RangeRecord> &ranges, const Identity &identity, const Control &control,
                   const PatchQuestions &ask);
// The same as a part of a transaction on several files, in steps. First the journal
// is made durable. It says what will be written if `super` decides so; `changing` ends when that is done, or given up.
struct Super {
  uint64_t transaction = 0;
  std::string index;  // the name of the file beside which its journal lies
};
Result<void> prepare_patch(const os::File &data, const os::File &dir, Journal &journal, std::span<const Piece> pieces,
                           const Identity &identity, const Control &control, const Super &super,
                           os::BytesUnderChange &changing);
// Then, decided, the file; `buffer` and `ours` as of write_pieces. Durable.
Result<void> apply_prepared(const os::File &data, const Journal &journal, std::span<const Piece> pieces,
                            const ChunkBuffer &buffer, StillOurs &ours);

}  // namespace st::write
