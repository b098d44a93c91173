// Which bytes a slice of a tensor is made of. Pure arithmetic: shape and ranges
// in, runs of bytes out, in the order of the file.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "format/dtype.h"

namespace st {

// Python's start:stop:step for one dimension; see st_range in st.h.
struct Range {
  int64_t start, stop, step;
};

// Run r, 0 <= r < run_count(), copies run_bytes from source(r) of the tensor to
// destination(r) of the packed result; sources ascend.
class SlicePlan {
 public:
  static Result<SlicePlan> make(Dtype dtype, std::span<const uint64_t> shape, std::span<const Range> ranges);

  std::span<const uint64_t> shape() const { return shape_; }
  uint64_t nbytes() const { return nbytes_; }
  uint64_t run_bytes() const { return run_bytes_; }
  uint64_t run_count() const { return nbytes_ == 0 ? 0 : nbytes_ / run_bytes_; }

  // Walks the runs in order: next() is false after the last.
  class Cursor {
   public:
    explicit Cursor(const SlicePlan &plan)
        : plan_(plan),
          at_(plan.loops_.size()),
          left_(plan.run_count()),
          source_(plan.source_),
          destination_(plan.destination_) {}
    bool done() const { return left_ == 0; }
    uint64_t source() const { return source_; }
    uint64_t destination() const { return destination_; }
    void next();

   private:
    const SlicePlan &plan_;
    std::vector<uint64_t> at_;
    uint64_t left_, source_, destination_;
  };

 private:
  struct Loop {
    uint64_t count;
    uint64_t source_stride;       // ascending
    uint64_t destination_stride;  // modulo 2^64: descends where the step is negative
  };

  std::vector<uint64_t> shape_;
  std::vector<Loop> loops_;  // outermost first
  uint64_t source_ = 0, destination_ = 0, run_bytes_ = 0, nbytes_ = 0;
};

}  // namespace st
