#include "journal/undo.h"

#include <algorithm>
#include <cerrno>

namespace st::write {
namespace {

// Smaller ones are saved by value.
constexpr uint64_t worth_sharing = uint64_t{64} << 10;

// Blocks can be shared in multiples of this; 0: not by us.
uint64_t shared_block(const os::File &data) {
  constexpr uint64_t least = 4096, most = 65536;
  struct statfs fs;
  if (data.env().fstatfs(data.fd(), &fs) < 0) return 0;
  const uint64_t block = std::max(static_cast<uint64_t>(fs.f_bsize), least);
  return block <= most && (block & (block - 1)) == 0 ? block : 0;
}

bool worth_sharing_of(const Piece &p, uint64_t from) {
  return p.payload.length >= std::min(from, worth_sharing);
}

}  // namespace

Result<std::vector<RangeRecord>> save_old(const os::File &data, Journal &journal, std::span<const Piece> pieces,
                                          uint64_t from, const Control &control) {
  const uint64_t block = shared_block(data);
  if (block == 0) return Failure(data.error(EOPNOTSUPP, "share blocks of"));
  uint64_t done = 0, total = 0;
  for (const Piece &p : pieces) total += p.payload.length;
  std::vector<RangeRecord> ranges;
  ranges.reserve(pieces.size());
  for (const Piece &p : pieces) {
    const Journal::GoOn go_on = [&](uint64_t more) { return control.check(done + more, total); };
    SectorTable table = p.table;
    if (p.staged()) {
      ST_TRY(table, journal.note_staged(p.offset, p.payload, go_on));
    }
    const uint64_t shared = worth_sharing_of(p, from) ? block : 0;
    ST_TRY(auto range, journal.save_old(data, p.offset, p.payload.length, table, shared, go_on));
    ranges.push_back(range);
    done += p.payload.length;
  }
  ST_TRY(control.check(total, total));
  return ranges;
}

bool plan_undo(const os::File &data, JournalPlan *journal, std::span<const Piece> pieces, uint64_t from) {
  const uint64_t block = shared_block(data);
  if (block == 0) return false;
  for (const Piece &p : pieces) {
    if (p.staged()) journal->note_staged(p.offset, p.payload.length);
    journal->save_old(p.offset, p.payload.length, worth_sharing_of(p, from) ? block : 0);
  }
  journal->seal(pieces.size() * range_record_bytes);
  return true;
}

PatchFailure roll_back(const os::File &data, Journal &journal, std::span<const RangeRecord> ranges, std::byte *buffer,
                       Error cause) {
  for (const RangeRecord &range : ranges)
    if (!put_back(data, journal.file(), range, buffer)) return {std::move(cause), true, true};
  if (!data.sync_data() || !journal.invalidate()) return {std::move(cause), true, true};
  return {std::move(cause), false, false};
}

Result<void> put_back(const os::File &data, const os::File &journal, const RangeRecord &range, std::byte *buffer) {
  const uint64_t end = range.offset + range.length;
  const uint64_t block = shared_block(data);
  if (block == 0 || range.payload % block != range.offset % block)
    return copy_payload(data, journal, range, range.offset, end, buffer);
  const WholeBlocks whole(range.offset, range.length, block);
  if (!whole.any() ||
      !data.clone(journal, range.payload + (whole.begin - range.offset), whole.end - whole.begin, whole.begin))
    return copy_payload(data, journal, range, range.offset, end, buffer);
  ST_TRY(copy_payload(data, journal, range, range.offset, whole.begin, buffer));
  return copy_payload(data, journal, range, whole.end, end, buffer);
}

}  // namespace st::write
