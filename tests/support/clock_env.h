// Time that goes by sleeping alone.
#pragma once

#include "fault_env.h"

namespace st::testing {

class ClockEnv : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  uint64_t monotonic_ms() override { return now_us / 1000; }
  void sleep_us(uint32_t microseconds) override {
    now_us += microseconds;
    ++sleeps;
    if (const auto call = on_sleep) call();  // which may put another in its place
  }
  uint64_t now_us = 0;
  size_t sleeps = 0;
  std::function<void()> on_sleep;
};

}  // namespace st::testing
