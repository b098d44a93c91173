// For tests of work that may grow with what is given, and no faster.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "os/env.h"

namespace st::testing {

// Nanoseconds of this thread, as others may have the processor.
template <class Action>
uint64_t thread_ns_of(Action action) {
  const uint64_t before = os::Env::posix().thread_ns();
  action();
  return os::Env::posix().thread_ns() - before;
}

// Eight times as many may cost 24 times as much: what is quadratic costs 64 times. A clock may tick in 15 ms. The least
// of several, as a thread's time grows with what its neighbours do to the processor.
template <class CostOf>
void expect_in_proportion(CostOf cost_of) {
  uint64_t once = UINT64_MAX, eight_times = UINT64_MAX;
  for (int round = 0; round == 0 || (round < 5 && eight_times / 24 >= once); ++round) {
    once = std::min(once, std::max(cost_of(8000), uint64_t{20000000}));
    eight_times = std::min(eight_times, cost_of(64000));
  }
  EXPECT_LT(eight_times, once * 24);
}

}  // namespace st::testing
