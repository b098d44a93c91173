// What a call tells of its progress, and whether it is one count to one total.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/control.h"

namespace st::testing {

class ToldProgress {
 public:
  Progress progress() {
    return [this](uint64_t done, uint64_t total) {
      told_.emplace_back(done, total);
      return true;
    };
  }
  // What earlier calls told.
  void forget() { told_.clear(); }
  // From 0, never back, to a total of at least so many bytes, which is the same from the first call to the last.
  void expect_one_count(uint64_t least) const {
    ASSERT_FALSE(told_.empty());
    const uint64_t total = told_.front().second;
    EXPECT_GE(total, least);
    uint64_t before = 0;
    for (const auto &[done, of] : told_) {
      ASSERT_EQ(of, total);
      ASSERT_GE(done, before);
      before = done;
    }
    EXPECT_EQ(before, total);
    EXPECT_LT(told_.front().first, total);
  }

 private:
  std::vector<std::pair<uint64_t, uint64_t>> told_;
};

}  // namespace st::testing
