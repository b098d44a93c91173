#include "file/patch_commit.h"

#include <new>

#include "base/open_outcome.h"
#include "file/commit_plan.h"
#include "file/remakes.h"
#include "file/slices.h"
#include "file/staging.h"
#include "journal/space.h"
#include "journal/undo.h"

namespace st::store {

CommitPlan reckon_patch(const Staged &staged, const os::File &data, write::Record record, bool as_part) {
  const bool undo = record == write::Record::undo;
  CommitPlan plan;
  plan.file_size = staged.snapshot->file_size();
  plan.data_offset = staged.snapshot->header.data_offset();
  plan.how = "nothing is staged";
  if (!staged.patches()) return plan;
  plan.kind = CommitPlan::patch;
  plan.how = "the tensors are written in place, after their journal is durable";
  write::JournalPlan journal = staged.journal.journal->plan();
  std::vector<write::Piece> pieces = slice_pieces(staged, &journal);
  for (const write::Piece &p : remade_pieces(staged, &journal)) pieces.push_back(p);
  for (const write::Piece &p : pieces) plan.cost.written += p.payload.length;
  for (const StagedTensor &t : staged.tensors) {
    plan.cost.written += t.piece.payload.length;
    pieces.push_back(t.piece);
    if (t.piece.staged() || (undo && t.piece.fits())) continue;
    journal.append(t.piece.payload.length);
    pieces.back().payload.offset = write::header_bytes;  // staged by then, wherever
  }
  plan.in_all = plan.cost.written;
  sort_by_offset(&pieces);
  if (!undo)
    write::plan_redo(&journal, pieces);
  else if (!write::plan_undo(data, &journal, pieces, staged.file.undo_from()))
    return reckon_patch(staged, data, write::Record::redo, as_part);
  journal.write_record();
  if (as_part)
    journal.write_record();  // that it is done
  else
    journal.empty();
  plan.cost += journal.cost();
  plan.cost.room += write::room_to_overwrite(data, staged.snapshot->filesystem, pieces, journal.cost().shared);
  return plan;
}

namespace {

write::Flushes flushes_of(const Staged &staged) {
  return write::choose_flushes(staged.snapshot->filesystem, staged.journal.journal->is_beside_data());
}

bool syncs_later(const Staged &staged) {
  return staged.options.journal_only && staged.journal.journal && flushes_of(staged) == write::Flushes::two;
}

}  // namespace

write::Record record_for(const Staged &staged, const os::File &data) {
  if (!staged.remakes.empty()) return write::Record::redo;  // it is the shorter one
  if (syncs_later(staged)) return write::Record::redo;      // an undo record commits at its end alone
  uint64_t in_journal = 0, borrowed = 0;
  for (const auto &[index, s] : staged.slices) in_journal += s.map.bytes();
  for (const StagedTensor &t : staged.tensors) (t.piece.fits() ? borrowed : in_journal) += t.piece.payload.length;
  return write::choose_record(in_journal, borrowed, [&] {
    const uint64_t room = reckon_patch(staged, data, write::Record::undo, false).cost.room;
    return write::room_with_metadata(staged.snapshot->filesystem.type, room) <= write::room_of(data).free;
  });
}

namespace {

Result<write::Applied> apply(Staged &staged, const CommitLock &lock, write::FileSync sync,
                             const AnyTransaction::AtLast &at_last) {
  ST_TRY(restage_if_gone(staged));
  ST_TRY(assemble_slices(staged, lock.file()));
  ST_TRY(assemble_remakes(staged, lock.file()));
  ST_TRY(staged.journal.journal->write_out(staged.control));
  ST_TRY(staged.file.journals().make_name_durable(lock.identity.inode));
  const os::File &dir = staged.journal.folder->dir();
  const write::Record record = record_for(staged, lock.file());
  for (StagedTensor &t : staged.tensors)
    if (!t.piece.staged() && !t.piece.fits()) ST_TRY(stage_borrowed(staged, &t));
  const write::PatchQuestions ask{[&] { return staged.check_journal_is_there(); },
                                  [&] { return staged.with_room(at_last); }};
  if (record == write::Record::undo) {
    auto ranges =
        write::save_old(lock.file(), *staged.journal.journal, staged.pieces(), staged.file.undo_from(), staged.control);
    if (ranges) {
      auto applied = write::apply_undo(lock.file(), dir, *staged.journal.journal, staged.pieces(), *ranges,
                                       lock.identity, staged.control, ask);
      // A view of this file by some other mapping has changed with it, and is now what it was: so once more, and all
      // of it is read before the file is touched.
      if (applied || !applied.error().payload_changed) return applied;
    } else {
      const Error &e = ranges.error();
      if (was_stopped(e)) return Failure(std::move(ranges.error()));
      if (write::refuses_to_share(e)) staged.file.never_undo();
    }
    ST_TRY(check_room(staged, lock.file(), reckon_patch(staged, lock.file(), write::Record::redo, false)));
  }
  ST_TRY(stage_borrowed(staged));
  const std::vector<write::Piece> pieces = staged.pieces();
  ST_TRY(write::reserve_space(lock.file(), staged.snapshot->filesystem, pieces, staged.control));
  return write::apply_redo(lock.file(), dir, *staged.journal.journal, pieces, lock.identity, flushes_of(staged), sync,
                           staged.control, ask);
}

Result<void> finish(Staged &staged, CommitLock &lock, const AnyTransaction::AtLast &at_last) {
  const DeferredCommits::Place place(syncs_later(staged) ? &staged.file.deferred() : nullptr);
  auto applied = apply(staged, lock, place ? write::FileSync::later : write::FileSync::now, at_last);
  staged.file.counters().journal_bytes += staged.journal.journal->bytes_written() - staged.journal_start;
  if (!applied) return Failure(std::move(applied.error()));
  write::Applied &done = *applied;
  if (!done) {
    write::PatchFailure &failure = done.error();
    if (failure.sync_failed || failure.open_outcome) staged.file.poison();
    if (!failure.open_outcome) return Failure(std::move(failure.error));
    return open_outcome(std::move(failure.error), [](const std::string &why) {
      return text("the change was not finished (", why,
                  "); close the handle and open the file anew, which finishes or drops it");
    });
  }
  ++staged.file.counters().commits;
  count_and_show(staged);  // while the bytes are locked
  if (staged.journal.journal->committed())
    staged.file.deferred().add({std::move(lock.held), lock.identity.inode, lock.identity.data_offset,
                                std::move(staged.journal), lock.deferred_before});
  return {};
}

}  // namespace

Result<void> commit_patch(Staged &staged, CommitLock &lock, const AnyTransaction::AtLast &at_last) {
  try {
    auto done = finish(staged, lock, at_last);
    // Before the tensors are unlocked: the next to lock them must see a hot journal.
    if (!done && staged.journal.journal->committed()) staged.return_journal();
    return done;
  } catch (const std::bad_alloc &) {
    if (!staged.journal.journal->committed()) throw;
    staged.return_journal();
    return Failure(Error{Status::needs_recovery, {}});  // its sentence would take memory
  }
}

void count_and_show(Staged &staged) noexcept {
  try {
    for (const StagedTensor &t : staged.tensors) {
      staged.file.counters().bytes_written += t.piece.payload.length;
      staged.show(t.index, t.piece.offset, t.piece.payload.length);
    }
    show_slices(staged);
    show_remade(staged);
  } catch (const std::bad_alloc &) {
    warn_that_not_shown(staged.later.log());
  }
}

}  // namespace st::store
