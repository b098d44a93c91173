#include "journal/patch.h"

namespace st::write {
namespace {

Result<std::vector<RangeRecord>> note(const os::File &data, Journal &journal, std::span<const Piece> pieces,
                                      const Control &control) {
  uint64_t done = 0, total = 0;
  for (const Piece &p : pieces) total += p.payload.length;
  std::vector<RangeRecord> ranges;
  ranges.reserve(pieces.size());
  const Journal::GoOn go_on = [&](uint64_t more) { return control.check(done + more, total); };
  for (const Piece &p : pieces) {
    ST_TRY(auto range, journal.record_old(data, p.offset, p.payload, go_on));
    ranges.push_back(range);
    done += p.payload.length;
  }
  return ranges;
}

Result<void> note_and_seal(const os::File &data, Journal &journal, std::span<const Piece> pieces,
                           const Identity &identity, const Control &control) {
  ST_TRY(auto ranges, note(data, journal, pieces, control));
  return journal.seal(identity, std::move(ranges));
}

}  // namespace

void plan_redo(JournalPlan *journal, std::span<const Piece> pieces) {
  for (const Piece &p : pieces) journal->note_old(p.offset, p.payload.length);
  journal->seal(pieces.size() * range_record_bytes);
}

tl::expected<void, PatchFailure> commit_there(Journal &journal, const StillThere &there, bool open) {
  using Failed = tl::unexpected<PatchFailure>;
  if (auto found = there(); !found) return Failed({std::move(found.error()), false, false});
  if (auto committed = journal.commit(); !committed) return Failed({std::move(committed.error()), open, true});
  if (auto found = there(); !found) {
    // Another host that acts on the record may be carrying it out.
    const bool stands = journal.file().reads_past_cache() || journal.give_up();
    return Failed({std::move(found.error()), stands && open, stands});
  }
  return {};
}

tl::expected<void, PatchFailure> apply_patch(const os::File &data, const os::File &dir, Journal &journal,
                                             std::span<const Piece> pieces, const Identity &identity,
                                             const Control &control, const StillThere &there) {
  using Failed = tl::unexpected<PatchFailure>;
  if (auto kept = keep_in_views(data, pieces); !kept) return Failed({std::move(kept.error()), false, false});
  if (auto sealed = note_and_seal(data, journal, pieces, identity, control); !sealed)
    return Failed({std::move(sealed.error()), false, false});
  if (auto synced = journal.sync_payload(dir, control); !synced) return not_begun(std::move(synced.error()));

  const auto buffer = chunk_for(pieces);

  // The point of no return.
  ST_TRY(commit_there(journal, there, true));
  if (auto written = write_pieces(data, journal, pieces, buffer); !written)
    return Failed({std::move(written.error()), true, true});
  if (auto synced = data.sync_data(); !synced) return Failed({std::move(synced.error()), true, true});
  if (auto invalidated = journal.invalidate(); !invalidated)
    return Failed({std::move(invalidated.error()), true, true});
  return {};
}

Result<void> prepare_patch(const os::File &data, const os::File &dir, Journal &journal, std::span<const Piece> pieces,
                           const Identity &identity, const Control &control, const Super &super) {
  ST_TRY(keep_in_views(data, pieces));
  ST_TRY(auto ranges, note(data, journal, pieces, control));
  ST_TRY(journal.seal_part(identity, std::move(ranges), super.transaction, super.index));
  ST_TRY(journal.sync_payload(dir, control));
  return journal.commit();
}

Result<void> apply_prepared(const os::File &data, const Journal &journal, std::span<const Piece> pieces,
                            const ChunkBuffer &buffer) {
  ST_TRY(write_pieces(data, journal, pieces, buffer));
  return data.sync_data();
}

}  // namespace st::write
