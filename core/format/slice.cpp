#include "format/slice.h"

#include <algorithm>

namespace st {
namespace {

struct Extent {
  uint64_t first, step, count;
  bool reversed;
};

// CPython's PySlice_AdjustIndices, then turned so that it ascends.
Extent adjust(const Range &range, uint64_t dim) {
  const auto length = static_cast<int64_t>(std::min<uint64_t>(dim, INT64_MAX));
  const bool down = range.step < 0;
  auto clip = [&](int64_t i) {
    if (i < 0) return i + length >= 0 ? i + length : (down ? int64_t{-1} : int64_t{0});
    return i < length ? i : (down ? length - 1 : length);
  };
  const int64_t start = clip(range.start), stop = clip(range.stop);
  const uint64_t step = down ? uint64_t{0} - static_cast<uint64_t>(range.step) : static_cast<uint64_t>(range.step);
  const int64_t span = down ? start - stop : stop - start;
  if (span <= 0) return {0, 1, 0, false};
  const uint64_t count = (static_cast<uint64_t>(span) - 1) / step + 1;
  const auto first = static_cast<uint64_t>(start);
  return {down ? first - (count - 1) * step : first, step, count, down && count > 1};
}

}  // namespace

Result<SlicePlan> SlicePlan::make(Dtype dtype, std::span<const uint64_t> shape, std::span<const Range> ranges) {
  if (ranges.size() > shape.size())
    return fail(Status::out_of_range, "a slice of ", ranges.size(), " ranges was asked of a tensor with ", shape.size(),
                " dimensions");
  // Twice computed, and not kept: an allocation would take longer, and a small slice has few.
  const auto extent = [&](size_t d) {
    return d < ranges.size() ? adjust(ranges[d], shape[d]) : Extent{0, 1, shape[d], false};
  };
  SlicePlan plan;
  plan.shape_.reserve(shape.size());
  bool empty = false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d < ranges.size() && ranges[d].step == 0)
      return fail(Status::invalid_argument, "the step of dimension ", d, " is 0; a slice's step is never 0");
    plan.shape_.push_back(extent(d).count);
    empty |= plan.shape_.back() == 0;
  }
  if (empty) return plan;

  // Innermost first, in bits, until a dimension is not taken whole: up to there
  // the bytes are one run.
  uint64_t source_stride = dtype_bits(dtype), destination_stride = source_stride, run = source_stride;
  uint64_t source = 0, destination = 0;
  bool contiguous = true, cut_inside_byte = false;
  for (size_t d = shape.size(); d-- > 0;) {
    const Extent e = extent(d);
    source += e.first * source_stride;
    if (contiguous && (e.step == 1 || e.count == 1) && !e.reversed) {
      run = e.count * source_stride;
      contiguous = e.count == shape[d];
    } else {
      contiguous = false;
      if (e.count > 1) {
        const uint64_t stride = e.step * source_stride;
        cut_inside_byte |= stride % 8 != 0 || destination_stride % 8 != 0;
        if (e.reversed) destination += (e.count - 1) * destination_stride;
        plan.loops_.push_back(
            {e.count, stride / 8, e.reversed ? uint64_t{0} - destination_stride / 8 : destination_stride / 8});
      }
    }
    source_stride *= shape[d];
    destination_stride *= e.count;
  }
  if (cut_inside_byte || source % 8 != 0 || run % 8 != 0 || destination % 8 != 0 || destination_stride % 8 != 0)
    return fail(Status::subbyte, "the slice cuts ", dtype_bits(dtype),
                "-bit elements inside a byte; take ranges that begin and end at whole bytes");
  std::reverse(plan.loops_.begin(), plan.loops_.end());
  plan.source_ = source / 8;
  plan.destination_ = destination / 8;
  plan.run_bytes_ = run / 8;
  plan.nbytes_ = destination_stride / 8;
  return plan;
}

void SlicePlan::Cursor::next() {
  --left_;
  for (size_t i = at_.size(); i-- > 0;) {
    const Loop &loop = plan_.loops_[i];
    if (++at_[i] < loop.count) {
      source_ += loop.source_stride;
      destination_ += loop.destination_stride;
      return;
    }
    at_[i] = 0;
    source_ -= (loop.count - 1) * loop.source_stride;
    destination_ -= (loop.count - 1) * loop.destination_stride;
  }
}

}  // namespace st
