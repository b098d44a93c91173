#include "newfile/publish_plan.h"

#include <algorithm>

#include "newfile/data_offset.h"
#include "newfile/transfer.h"

namespace st::write {
namespace {

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
