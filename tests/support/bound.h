// How much the programs of many trials try. Slow builds (sanitizers, coverage) set ST_TEST_BOUND=small and take a share
// of what the plain build takes in the same CI run: the same code is run, on fewer disks, and on smaller files.
// ST_TEST_BOUND=full takes what no CI run has the time for: each cut, and each failing call. Between them is "usual".
#pragma once

#include <cstddef>
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

inline size_t bounded(size_t small, size_t usual, size_t full) {
  return small_bound() ? small : full_bound() ? full : usual;
}

// Loops over the calls of something take every n-th of them. Each loop begins at another call, so that many loops miss
// none. Full are all.
class EveryNth {
 public:
  EveryNth(size_t small, size_t usual) : step(bounded(small, usual, 1)) {}
  size_t first() { return loops_++ % step; }
  const size_t step;

 private:
  size_t loops_ = 0;
};

// Other random names and torn syncs than those of every run, in programs on the simulated disk: ST_TEST_SEED=1, 2, ….
inline uint64_t chosen_seed() {
  const char *seed = std::getenv("ST_TEST_SEED");
  return seed ? std::strtoull(seed, nullptr, 10) : 0;
}

}  // namespace st::testing
