// The steps of a patch, in the order and with the numbers of core/README.md. Where the two kinds of record differ, they
// stand side by side.
#include "journal/patch.h"

#include <algorithm>

#include "journal/old_bytes.h"
#include "journal/undo.h"
#include "newfile/write_out.h"

namespace st::write {
namespace {

using Failed = tl::unexpected<PatchFailure>;

bool any_sparse(std::span<const Piece> pieces) {
  return std::any_of(pieces.begin(), pieces.end(), [](const Piece &p) { return p.is_sparse(); });
}

// 3. of a redo record: the file's old bytes, a hash for each sector. (Of an undo record: save_old.)
Result<std::vector<RangeRecord>> note_old(const os::File &data, Journal &journal, std::span<const Piece> pieces,
                                          const Control &control) {
  uint64_t done = 0, total = 0;
  for (const Piece &p : pieces) total += p.payload.length;
  std::vector<RangeRecord> ranges;
  ranges.reserve(pieces.size());
  const Journal::GoOn go_on = [&](uint64_t more) { return control.check(done + more, total); };
  OldBytes old(data);
  for (size_t i = 0; i < pieces.size();) {
    const size_t run = i + run_of(pieces.subspan(i));
    old.expect_until(pieces[run - 1].offset + pieces[run - 1].payload.length);
    for (; i < run; ++i) {
      const Piece &p = pieces[i];
      if (p.is_sparse()) {
        ranges.push_back(p.sparse);
      } else {
        ST_TRY(auto range, journal.record_old(old, p.offset, p.payload, go_on));
        ranges.push_back(range);
      }
      done += p.payload.length;
    }
  }
  ST_TRY(control.check(total, total));
  return ranges;
}

// A limit that stops writes at an offset must not stop them when the record stands.
Result<void> may_write(const os::File &data, std::span<const Piece> pieces) {
  if (pieces.empty()) return {};
  return data.may_reach(pieces.back().offset + pieces.back().payload.length);
}

// So that it can be stopped: the sync that follows finds little left to write.
Result<void> write_out_all(const os::File &data, std::span<const Piece> pieces, const Control &control) {
  const auto go_on = [&] { return control.check(0, 0); };  // which counts nothing
  for (const Piece &p : pieces) ST_TRY(WriteOut(data, p.offset).reached(p.offset + p.payload.length, go_on));
  return {};
}

// The journal was not made durable.
Failed not_begun(Error cause) {
  const bool failed = !was_stopped(cause);
  return Failed({std::move(cause), false, failed});
}

// The commit record, or a failure, after which the file is as it was. `open` if the record may stand after a failure.
Applied commit_there(Journal &journal, const PatchQuestions::Question &there, bool open) {
  if (auto found = there(); !found) return Failed({std::move(found.error()), false, false});
  if (auto committed = journal.commit(); !committed) {
    const bool begun = journal.committed();  // or it could not be locked
    return Failed({std::move(committed.error()), begun && open, begun});
  }
  if (auto found = there(); !found) {
    // Another host that acts on the record may be carrying it out.
    const bool stands = journal.file().reads_past_cache() || journal.give_up();
    return Failed({std::move(found.error()), stands && open, stands});
  }
  return {};
}

// From 3., the manifest, to the end.
Applied carry_out(Record record, Flushes flushes, FileSync sync, const os::File &data, const os::File &dir,
                  Journal &journal, std::span<const Piece> pieces, const std::vector<RangeRecord> &ranges,
                  const Identity &identity, const Control &control, const PatchQuestions &ask) {
  const bool undo = record == Record::undo;
  if (auto may = may_write(data, pieces); !may) return Failed({std::move(may.error()), false, false});
  os::BytesUnderChange changing(data);
  if (auto kept = keep_in_views(changing, pieces, control); !kept)
    return Failed({std::move(kept.error()), false, false});
  uint64_t flags = undo ? undo_record : flushes == Flushes::two ? one_flush_record : 0;
  if (any_sparse(pieces)) flags |= sparse_record;
  if (auto sealed = journal.seal(identity, ranges, flags); !sealed)
    return Failed({std::move(sealed.error()), false, false});
  // 4. The journal is durable, and means nothing yet. Two flushes: only its name is durable, as the record has the hash
  // of all the rest.
  if (auto synced = journal.sync_payload(dir, control); !synced) return not_begun(std::move(synced.error()));
  const auto buffer = chunk_for(pieces);
  const auto back = [&](Error cause) { return roll_back(data, journal, ranges, buffer.bytes.get(), std::move(cause)); };

  // 5. and 6. The commit record; two flushes: and the journal with it. Redo: the point of no return. Undo: from here on
  // recovery puts the old bytes back, which is no change yet.
  if (!undo)
    if (auto may = ask.at_last(); !may) return Failed({std::move(may.error()), false, false});
  StillOurs ours = undo ? StillOurs() : StillOurs(journal.file(), ask.is_there);
  ST_TRY(commit_there(journal, ask.is_there, !undo));

  // 7. The new bytes. Redo: a failure is left to recovery. Undo: it is rolled back at once.
  if (auto written = write_pieces(data, journal, pieces, buffer, ours); !written) {
    if (!undo) return Failed({std::move(written.error()), true, true});
    const bool changed = written.error().status == Status::invalid_argument;
    PatchFailure failure = back(std::move(written.error()));
    failure.payload_changed = changed && !failure.open_outcome;
    return Failed(std::move(failure));
  }
  if (undo) {
    auto out = write_out_all(data, pieces, control);
    if (!out && was_stopped(out.error())) return Failed(back(std::move(out.error())));
    if (!out) return Failed({std::move(out.error()), true, true});
  }
  if (sync == FileSync::later) return {};
  // 8. What a failed sync has left on the disk nobody knows: that is for recovery.
  if (auto synced = data.sync_data(); !synced) return Failed({std::move(synced.error()), true, true});
  // 9. Undo: this is the commit.
  if (undo)
    if (auto may = ask.at_last(); !may) return Failed(back(std::move(may.error())));
  if (auto retired = journal.retire(); !retired) return Failed({std::move(retired.error()), true, true});
  return {};
}

}  // namespace

void plan_redo(JournalPlan *journal, std::span<const Piece> pieces) {
  for (const Piece &p : pieces)
    if (!p.is_sparse()) journal->note_old(p.offset, p.payload.length);
  journal->seal(pieces.size() * (any_sparse(pieces) ? sparse_range_record_bytes : range_record_bytes));
}

Applied apply_redo(const os::File &data, const os::File &dir, Journal &journal, std::span<const Piece> pieces,
                   const Identity &identity, Flushes flushes, FileSync sync, const Control &control,
                   const PatchQuestions &ask) {
  auto ranges = note_old(data, journal, pieces, control);
  if (!ranges) return Failed({std::move(ranges.error()), false, false});
  return carry_out(Record::redo, flushes, sync, data, dir, journal, pieces, *ranges, identity, control, ask);
}

Applied apply_undo(const os::File &data, const os::File &dir, Journal &journal, std::span<const Piece> pieces,
                   const std::vector<RangeRecord> &ranges, const Identity &identity, const Control &control,
                   const PatchQuestions &ask) {
  return carry_out(Record::undo, Flushes::four, FileSync::now, data, dir, journal, pieces, ranges, identity, control,
                   ask);
}

Result<void> prepare_patch(const os::File &data, const os::File &dir, Journal &journal, std::span<const Piece> pieces,
                           const Identity &identity, const Control &control, const Super &super,
                           os::BytesUnderChange &changing) {
  ST_TRY(may_write(data, pieces));
  ST_TRY(keep_in_views(changing, pieces, control));
  ST_TRY(auto ranges, note_old(data, journal, pieces, control));
  const uint64_t flags = any_sparse(pieces) ? sparse_record : 0;
  ST_TRY(journal.seal_part(identity, ranges, super.transaction, super.index, flags));
  ST_TRY(journal.sync_payload(dir, control));
  return journal.commit();
}

Result<void> apply_prepared(const os::File &data, const Journal &journal, std::span<const Piece> pieces,
                            const ChunkBuffer &buffer, StillOurs &ours) {
  ST_TRY(write_pieces(data, journal, pieces, buffer, ours));
  return data.sync_data();
}

}  // namespace st::write
