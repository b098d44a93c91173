#include "timed_env.h"

#include <algorithm>
#include <thread>

namespace st::testing {
namespace {

thread_local size_t self = 0;

}  // namespace

// Any of those whose time comes first.
void TimedEnv::choose_next() {
  uint64_t first = stopped;
  for (const uint64_t wakes : wakes_) first = std::min(first, wakes);
  std::vector<size_t> candidates;
  for (size_t w = 0; w < wakes_.size(); ++w)
    if (wakes_[w] == first) candidates.push_back(w);
  if (candidates.empty()) return;
  if (first != stopped) now_us_ = std::max(now_us_, first);
  running_ = candidates[pick_() % candidates.size()];
  turn_.notify_all();
}

void TimedEnv::give_way(std::unique_lock<std::mutex> &lock, size_t me, uint64_t until) {
  wakes_[me] = until;
  choose_next();
  turn_.wait(lock, [&] { return running_ == me; });
}

void TimedEnv::run(const std::vector<std::function<void()>> &workers) {
  wakes_.assign(workers.size(), now_us_);
  running_ = workers.size();
  std::vector<std::thread> threads;
  for (size_t w = 0; w < workers.size(); ++w)
    threads.emplace_back([&, w] {
      self = w;
      {
        std::unique_lock lock(mutex_);
        turn_.wait(lock, [&] { return running_ == w; });
      }
      workers[w]();
      std::unique_lock lock(mutex_);
      wakes_[w] = ended;
      choose_next();
    });
  {
    std::unique_lock lock(mutex_);
    choose_next();
  }
  for (std::thread &thread : threads) thread.join();
  wakes_.clear();
}

void TimedEnv::sleep_us(uint32_t microseconds) {
  std::unique_lock lock(mutex_);
  if (wakes_.empty())
    now_us_ += microseconds;
  else
    give_way(lock, self, now_us_ + microseconds);
}

void TimedEnv::stop() {
  std::unique_lock lock(mutex_);
  give_way(lock, self, stopped);
}

int TimedEnv::fsync(int fd) {
  sleep_us(sync_us);
  return SimEnv::fsync(fd);
}

int TimedEnv::wait_range(int fd, uint64_t offset, uint64_t n) {
  sleep_us(sync_us);
  return SimEnv::wait_range(fd, offset, n);
}

int TimedEnv::lock(int fd, int command, struct flock *lock) {
  sleep_us(lock_us);
  return SimEnv::lock(fd, command, lock);
}

}  // namespace st::testing
