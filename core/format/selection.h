// Which bytes of a tensor an update of a part of it names: by ranges, or by rows that an array of indices picks. Pure
// arithmetic, as slice.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "format/slice.h"

namespace st {

// `ranges` are for the leading dimensions. With `rows` they are for those from the second on, and `rows` pick along the
// first: in any order, more than once, negative ones from its end.
struct TensorPart {
  std::span<const Range> ranges;
  std::optional<std::span<const int64_t>> rows = {};
};

class Selection {
 public:
  // Statuses: invalid_argument, out_of_range, subbyte.
  static Result<Selection> make(Dtype dtype, std::span<const uint64_t> shape, const TensorPart &part);

  // The shape and size of the values that it takes, packed in C order.
  const std::vector<uint64_t> &shape() const { return shape_; }
  uint64_t nbytes() const { return nbytes_; }

  // Gives each run of bytes to `take`: where it begins in the tensor, and among the values, and its length. Row after
  // row, as the array has them.
  template <class Take>
  void each_run(Take take) const {
    uint64_t before = 0;
    for (const uint64_t row : rows_) {
      for (SlicePlan::Cursor run(row_); !run.done(); run.next())
        take(row + run.source(), before + run.destination(), row_.run_bytes());
      before += row_.nbytes();
    }
  }

 private:
  std::vector<uint64_t> shape_;
  std::vector<uint64_t> rows_ = {0};  // the first byte of each
  SlicePlan row_;                     // of a row; without an array, of the tensor
  uint64_t nbytes_ = 0;
};

}  // namespace st
