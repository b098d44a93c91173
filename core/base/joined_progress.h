// The progress of a call that has several parts, each of which counts by itself: one count to one total. It never goes
// back, whatever the parts say. One thread.
#pragma once

#include <algorithm>
#include <utility>

#include "base/control.h"

namespace st {

class JoinedProgress {
 public:
  JoinedProgress() = default;
  JoinedProgress(Progress whole, uint64_t total) : whole_(std::move(whole)), total_(total) {}

  // Another total, since there is something else to do. So much of it is done.
  void go_on_to(uint64_t total, uint64_t done) {
    total_ = std::max(total, done_);
    begin_ = done;
    bytes_ = before_ = 0;
    step_ = {};
  }
  // The part that begins now is so many bytes of the total. Those before it are done.
  void begin_part(uint64_t bytes) {
    begin_ += std::exchange(bytes_, bytes);
    before_ = 0;
    step_ = {};
  }
  // What tells of the part that is under way; none if nobody listens. A part may do its work in steps that count from 0
  // each. A call without a total only asks whether to go on.
  Progress of_part() {
    if (!whole_) return {};
    return [this](uint64_t done, uint64_t total) { return tell({done, total}); };
  }
  // All parts are done, and nothing is left to be cancelled.
  void end() {
    if (whole_) whole_(total_, total_);
  }

 private:
  struct Step {
    uint64_t done = 0, total = 0;
  };

  bool tell(const Step &now) {
    if (now.total != 0) {
      if (now.total != step_.total || now.done < step_.done) before_ += step_.total;  // that one is done
      step_ = now;
      done_ = std::max(done_, begin_ + std::min(before_ + step_.done, bytes_));
    }
    return whole_(done_, total_);
  }

  Progress whole_;
  uint64_t total_ = 0;
  uint64_t begin_ = 0, bytes_ = 0;  // of the part
  uint64_t before_ = 0;             // of its steps before this one
  Step step_;
  uint64_t done_ = 0;  // as told
};

}  // namespace st
