#include "newfile/data_offset.h"

#include <algorithm>
#include <map>

#include "base/round.h"
#include "format/header.h"

namespace st::write {
namespace {

// The least number from `least` on that leaves `rest` when divided by `block`.
uint64_t next_congruent(uint64_t least, uint64_t rest, uint64_t block) {
  return least + (rest + block - least % block) % block;
}

// Where data is to begin, modulo the block, for each segment to lie as it does
// in the old file: the remainder that most bytes ask for. None: nothing is kept
// that fills a block.
struct Remainder {
  uint64_t rest, bytes;
};
Remainder best_remainder(std::span<const PlannedSegment> segments, uint64_t block, uint64_t alignment) {
  std::map<uint64_t, uint64_t> bytes;
  for (const PlannedSegment &s : segments) {
    const uint64_t rest = (s.from % block + block - s.to % block) % block;
    if (s.kept && rest % std::min(alignment, block) == 0) bytes[rest] += s.length;
  }
  Remainder best{0, 0};
  for (const auto &[rest, n] : bytes)
    if (n > best.bytes) best = {rest, n};
  return best;
}

constexpr uint64_t most = length_bytes + max_header_bytes;

}  // namespace

uint64_t data_offset_behind(uint64_t header_end, uint64_t alignment) {
  const uint64_t wished = round_up(header_end, alignment ? alignment : default_alignment);
  return alignment == 0 && wished > most ? round_up(header_end, 8) : wished;
}

uint64_t choose_data_offset(uint64_t least, uint64_t old, std::span<const PlannedSegment> segments,
                            const PlanOptions &options) {
  const bool may_stay = options.layout == Layout::keep && old >= least;  // and keeps what reserve it has
  const uint64_t alignment = options.alignment ? options.alignment : default_alignment;
  if (options.block > 0 && alignment <= options.block) {
    const bool begins_there = options.alignment > 0 || options.compact;
    const Remainder best = best_remainder(segments, options.block, begins_there ? alignment : 1);
    if (best.bytes >= options.block) {
      if (may_stay && old % options.block == best.rest) return old;
      const uint64_t shares = next_congruent(least, best.rest, options.block);
      if (shares <= most) return shares;
    }
  }
  return may_stay && old % alignment == 0 ? old : data_offset_behind(least, options.alignment);
}

Result<void> check_data_begin(uint64_t alignment, uint64_t reserve) {
  constexpr uint64_t largest = uint64_t{1} << 20;
  if (alignment % 8 != 0 || alignment > largest)
    return fail(Status::invalid_argument, "an alignment of ", alignment, " is not a multiple of 8 of at most ",
                largest);
  if (reserve > max_header_bytes)
    return fail(Status::header_too_large, "a header reserve of ", reserve, " bytes is more than the format's ",
                max_header_bytes);
  return {};
}

}  // namespace st::write
