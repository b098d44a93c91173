#include "format/selection.h"

#include <algorithm>

namespace st {

Result<Selection> Selection::make(Dtype dtype, std::span<const uint64_t> shape, const TensorPart &part) {
  Selection selection;
  if (!part.rows) {
    ST_TRY(selection.row_, SlicePlan::make(dtype, shape, part.ranges));
    selection.shape_.assign(selection.row_.shape().begin(), selection.row_.shape().end());
    selection.nbytes_ = selection.row_.nbytes();
    return selection;
  }
  if (shape.empty()) return fail(Status::out_of_range, "indices were given for a tensor that has no dimension");
  ST_TRY(selection.row_, SlicePlan::make(dtype, shape.subspan(1), part.ranges));
  selection.shape_ = {part.rows->size()};
  selection.shape_.insert(selection.shape_.end(), selection.row_.shape().begin(), selection.row_.shape().end());

  uint64_t bits = dtype_bits(dtype);
  for (const uint64_t d : shape.subspan(1)) bits *= d;
  if (bits % 8 != 0)
    return fail(Status::subbyte, "a row of ", bits, " bits begins inside a byte; take rows of whole bytes");
  if (__builtin_mul_overflow(selection.row_.nbytes(), part.rows->size(), &selection.nbytes_))
    return fail(Status::out_of_range, part.rows->size(), " rows of ", selection.row_.nbytes(),
                " bytes are more than 2^64 bytes; take fewer");
  const auto count = static_cast<int64_t>(std::min<uint64_t>(shape[0], INT64_MAX));
  selection.rows_.clear();
  selection.rows_.reserve(part.rows->size());
  for (const int64_t given : *part.rows) {
    const int64_t i = given < 0 ? given + count : given;
    if (i < 0 || i >= count)
      return fail(Status::out_of_range, "index ", given, " lies outside the first dimension, which has ", shape[0],
                  " rows");
    selection.rows_.push_back(static_cast<uint64_t>(i) * (bits / 8));
  }
  return selection;
}

}  // namespace st
