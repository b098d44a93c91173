// A power cut of which the input says what it leaves.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <vector>

#include "sim_env.h"

namespace st::fuzz {

inline testing::SimDisk after_chosen_cut(const testing::SimDisk &disk, FuzzedDataProvider &in) {
  const auto pending = testing::pending_changes(disk);
  std::vector<uint32_t> keep(pending.size());
  for (uint32_t &k : keep) k = in.ConsumeIntegral<uint8_t>() % 8;
  return testing::after_cut(disk, pending, keep);
}

}  // namespace st::fuzz
