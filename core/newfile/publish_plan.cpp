#include "newfile/publish_plan.h"

#include <algorithm>
#include <map>

#include "base/round.h"
#include "newfile/transfer.h"

namespace st::write {
namespace {

// The least number from `least` on that leaves `rest` when divided by `block`.
uint64_t next_congruent(uint64_t least, uint64_t rest, uint64_t block) {
  return least + (rest + block - least % block) % block;
}

// Pieces of the new file's data, with what follows one another in both merged;
// `to` counts from the start of the data.
std::vector<PlannedSegment> merge(const std::vector<PlannedTensor> &tensors) {
  std::vector<PlannedSegment> segments;
  uint64_t to = 0;
  for (const PlannedTensor &t : tensors) {
    if (t.nbytes == 0) continue;
    PlannedSegment *last = segments.empty() ? nullptr : &segments.back();
    if (last && last->kept && t.kept && last->from + last->length == t.from)
      last->length += t.nbytes;
    else
      segments.push_back({to, t.nbytes, t.kept, t.from});
    to += t.nbytes;
  }
  return segments;
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

uint64_t choose_data_offset(uint64_t least, uint64_t old, std::span<const PlannedSegment> segments,
                            const PlanOptions &options) {
  const bool may_stay = options.layout == Layout::keep && old >= least;  // and keeps what reserve it has
  const uint64_t alignment = options.alignment ? options.alignment : default_alignment;
  if (options.block > 0 && alignment <= options.block) {
    const Remainder best = best_remainder(segments, options.block, options.alignment ? alignment : 1);
    if (best.bytes >= options.block)
      return may_stay && old % options.block == best.rest ? old : next_congruent(least, best.rest, options.block);
  }
  return may_stay && old % alignment == 0 ? old : round_up(least, alignment);
}

std::string explain(const PublishPlan &plan, const PlanOptions &options, uint64_t kept) {
  if (kept == 0) return "a new file is written beside the old one; nothing of the old one is kept";
  if (options.block == 0)
    return text("a new file is written beside the old one; ", plan.copied,
                " bytes are copied, as this filesystem cannot share blocks between files");
  if (plan.copied < options.block * (2 + 2 * plan.segments.size()))
    return text("a new file is made beside the old one, which shares ", plan.shared, " bytes with it");
  return text("a new file is made beside the old one; ", plan.shared, " bytes are shared, and ", plan.copied,
              " copied, which move by a distance that is no multiple of a block (", options.block, " bytes)");
}

}  // namespace

Result<PublishPlan> plan_publish(uint64_t old_data_offset, std::vector<PlannedTensor> tensors, MetadataPairs metadata,
                                 const PlanOptions &options) {
  ST_TRY(check_data_begin(options.alignment, options.reserve));
  if (options.layout != Layout::keep)
    std::sort(tensors.begin(), tensors.end(), [](const PlannedTensor &a, const PlannedTensor &b) {
      return canonical_before(a.dtype, a.name, b.dtype, b.name);
    });
  else if (options.align)
    align(&tensors);

  PublishPlan plan;
  std::vector<HeaderTensor> entries;
  entries.reserve(tensors.size());
  uint64_t at = 0;
  for (const PlannedTensor &t : tensors) {
    entries.push_back({t.name, t.dtype, t.shape, at, t.nbytes});
    if (__builtin_add_overflow(at, t.nbytes, &at))
      return fail(Status::offsets, "the tensors need more than 2^64 bytes");
  }
  ST_TRY(plan.header, serialize_header(entries, metadata));
  plan.segments = merge(tensors);
  const uint64_t data_offset =
      choose_data_offset(plan.header.size() + options.reserve, old_data_offset, plan.segments, options);
  ST_TRY(pad_header(&plan.header, data_offset));

  plan.size = data_offset + at;
  plan.written = data_offset;
  uint64_t kept = 0;
  for (PlannedSegment &s : plan.segments) {
    s.to += data_offset;
    if (!s.kept) {
      plan.written += s.length;
      continue;
    }
    const Transferred moved = expect_transfer({s.from, s.to, s.length}, options.block);
    plan.shared += moved.shared;
    plan.copied += moved.copied;
    kept += s.length;
  }
  plan.how = explain(plan, options, kept);
  return plan;
}

}  // namespace st::write
