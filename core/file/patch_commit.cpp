// The commit of a patch: new bytes in place, by a redo record or an undo record (journal/patch.h).
#include "file/transaction.h"
#include "journal/space.h"
#include "journal/undo.h"

namespace st::store {

CommitPlan Transaction::reckon_patch(const os::File &data, bool undo, bool as_part) const {
  CommitPlan plan;
  plan.file_size = snapshot_->file_size();
  plan.data_offset = snapshot_->header.data_offset();
  plan.how = "nothing is staged";
  if (!patches()) return plan;
  plan.kind = CommitPlan::patch;
  plan.how = "the tensors are written in place, after their journal is durable";
  write::JournalPlan journal = journal_.journal->plan();
  std::vector<write::Piece> pieces = slice_pieces(&journal);
  for (const write::Piece &p : pieces) plan.cost.written += p.payload.length;
  for (const Staged &s : staged_) {
    plan.cost.written += s.piece.payload.length;
    pieces.push_back(s.piece);
    if (s.piece.staged() || (undo && s.fits())) continue;
    journal.append(s.piece.payload.length);
    pieces.back().payload.offset = write::header_bytes;  // staged by then, wherever
  }
  sort_by_offset(&pieces);
  if (!undo)
    write::plan_redo(&journal, pieces);
  else if (!write::plan_undo(data, &journal, pieces, data_file_.undo_from_))
    return reckon_patch(data, false, as_part);
  journal.write_record();
  if (as_part)
    journal.write_record();  // that it is done
  else
    journal.empty();
  plan.cost += journal.cost();
  plan.cost.room += write::room_to_overwrite(data, snapshot_->filesystem, pieces, journal.cost().shared);
  return plan;
}

// By an undo record, if most bytes are borrowed, there is room for what then is written to new places, and the
// filesystem plays along; else by a redo record.
bool Transaction::undoes(const os::File &data) const {
  uint64_t staged = 0, borrowed = 0;
  for (const auto &[index, s] : slices_) staged += s.map.bytes();
  for (const Staged &s : staged_) (s.fits() ? borrowed : staged) += s.piece.payload.length;
  if (borrowed <= staged) return false;
  const uint64_t room = reckon_patch(data, true, false).cost.room;
  return write::room_with_metadata(snapshot_->filesystem.type, room) <= write::room_of(data).free;
}

Result<Transaction::Applied> Transaction::apply(const Locked &locked) {
  ST_TRY(restage_if_gone());
  ST_TRY(assemble_slices(locked.file()));
  ST_TRY(journal_.journal->write_out(control_));
  ST_TRY(data_file_.journals_->make_name_durable(locked.identity.inode));
  const os::File &dir = journal_.folder->dir();
  const bool undo = undoes(locked.file());
  for (Staged &s : staged_)
    if (!s.piece.staged() && !s.fits()) ST_TRY(stage_borrowed(&s));
  const write::StillThere there = [this] { return check_journal_is_there(); };
  if (undo) {
    auto ranges = write::save_old(locked.file(), *journal_.journal, pieces(), data_file_.undo_from_, control_);
    if (ranges) {
      auto applied = write::apply_undoably(locked.file(), dir, *journal_.journal, pieces(), std::move(*ranges),
                                           locked.identity, control_, there);
      // A view of this file by some other mapping has changed with it, and is now what it was: so once more, and all
      // of it is read before the file is touched.
      if (applied || !applied.error().payload_changed) return applied;
    } else {
      const Error &e = ranges.error();
      if (was_stopped(e)) return Failure(std::move(ranges.error()));
      if (write::refuses_to_share(e)) data_file_.undo_from_ = write::never;
    }
    ST_TRY(check_room(locked.file(), reckon_patch(locked.file(), false, false)));
  }
  ST_TRY(stage_borrowed());
  ST_TRY(write::reserve_space(locked.file(), snapshot_->filesystem, pieces(), control_));
  return write::apply_patch(locked.file(), dir, *journal_.journal, pieces(), locked.identity, control_, there);
}

Result<void> Transaction::finish(const Locked &locked) {
  auto applied = apply(locked);
  data_file_.counters_.journal_bytes += journal_.journal->bytes_written() - journal_start_;
  if (!applied) return Failure(std::move(applied.error()));
  Applied &done = *applied;
  if (!done) {
    write::PatchFailure &failure = done.error();
    if (failure.sync_failed || failure.open_outcome) data_file_.poisoned_ = true;
    if (!failure.open_outcome) return Failure(std::move(failure.error));
    Error e = std::move(failure.error);
    e.message = text("the change was not finished (", e.message,
                     "); close the handle and open the file anew, which finishes or drops it");
    e.status = Status::needs_recovery;
    return Failure(std::move(e));
  }
  count_and_show();
  return {};
}

// The change stands, so a view that cannot be brought up to date keeps its old bytes.
void Transaction::count_and_show() {
  Counters &counters = data_file_.counters_;
  ++counters.commits;
  for (const Staged &s : staged_) {
    counters.bytes_written += s.piece.payload.length;
    show(s.index, s.piece.offset, s.piece.payload.length);
  }
  show_slices();
}

void Transaction::show(size_t index, uint64_t offset, uint64_t n) {
  auto shown = snapshot_->refresh(index, offset, n);
  if (!shown && data_file_.options_.log) data_file_.options_.log(LogLevel::warning, shown.error().message);
}

}  // namespace st::store
