// How much the programs of many trials try. Slow builds (sanitizers, coverage) set ST_TEST_BOUND=small and take a share
// of what the plain build takes in the same CI run: the same code is run, on fewer disks, and on smaller files.
// ST_TEST_BOUND=full takes what no CI run has the time for.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace st::testing {

inline bool small_bound() {
  const char *bound = std::getenv("ST_TEST_BOUND");
  return bound && std::string_view(bound) == "small";
}

// All of what an issue promises, by hand: minutes.
inline bool full_bound() {
  const char *bound = std::getenv("ST_TEST_BOUND");
  return bound && std::string_view(bound) == "full";
}

// Other random names and torn syncs than those of every run, in programs on the simulated disk: ST_TEST_SEED=1, 2, ….
inline uint64_t chosen_seed() {
  const char *seed = std::getenv("ST_TEST_SEED");
  return seed ? std::strtoull(seed, nullptr, 10) : 0;
}

}  // namespace st::testing
