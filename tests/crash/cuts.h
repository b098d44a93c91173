// The disks that a power cut may leave: with every subset of what is not yet synced
// where that is little, else with subsets and torn writes drawn at random.
#pragma once

#include <random>
#include <unordered_set>
#include <vector>

#include "sim_env.h"

namespace st::testing {

// The disk before each change that `work` makes to it.
template <class Work>
std::vector<SimDisk> moments_of(SimEnv &env, Work work) {
  std::vector<SimDisk> moments;
  env.before_change = [&] { moments.push_back(env.disk()); };
  work();
  env.before_change = nullptr;
  return moments;
}

class Cuts {
 public:
  // Every subset of at most `all_of` changes; of more, so many `samples`.
  Cuts(size_t all_of, uint32_t samples) : all_of_(all_of), samples_(samples) {}

  // The disks after a cut at this moment. Disks that were answered before under the
  // same `expectation` of the caller's are left out.
  std::vector<SimDisk> of(const SimDisk &disk, uint64_t expectation);

 private:
  const size_t all_of_;
  const uint32_t samples_;
  std::unordered_set<uint64_t> known_;
  std::mt19937 random_{11};
};

}  // namespace st::testing
