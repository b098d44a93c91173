// The simulated disk with a clock of its own and several workers. One worker runs
// at a time, until it sleeps, locks or syncs; then the one whose time comes first
// goes on. So all waits are the same in every run of a seed, and cost no
// time.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "sim_env.h"

namespace st::testing {

class TimedEnv : public SimEnv {
 public:
  explicit TimedEnv(uint64_t seed) : pick_(seed) {}

  uint32_t sync_us = 1000;  // what a sync takes
  uint32_t lock_us = 1;     // what a call on a lock takes

  // Each worker on a thread of its own, until all have returned.
  void run(const std::vector<std::function<void()>> &workers);
  uint64_t now_us() const { return now_us_; }
  // Stops the calling worker: it gets no more time before all others have returned, as one under SIGSTOP.
  void stop();

  int fsync(int fd) override;
  int wait_range(int fd, uint64_t offset, uint64_t n) override;
  int lock(int fd, int command, struct flock *lock) override;
  uint64_t monotonic_ms() override { return now_us_ / 1000; }
  void sleep_us(uint32_t microseconds) override;

 private:
  static constexpr uint64_t ended = UINT64_MAX, stopped = UINT64_MAX - 1;
  void give_way(std::unique_lock<std::mutex> &lock, size_t me, uint64_t until);
  void choose_next();

  std::mutex mutex_;
  std::condition_variable turn_;
  std::vector<uint64_t> wakes_;  // of each worker; empty outside of run()
  size_t running_ = 0;
  uint64_t now_us_ = 1'000'000;
  std::mt19937_64 pick_;
};

}  // namespace st::testing
