#include "read/thread_pool.h"

#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "os/process.h"

namespace st::read {
// Notes what ended the call, if it did not end well.
template <class Call>
void ThreadPool::attempt(Call call) noexcept {
  try {
    auto done = call();
    if (done) return;
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(done.error());
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!thrown_) thrown_ = std::current_exception();
  }
  stop_ = true;
}

Result<void> ThreadPool::run(size_t n, const Body &body, const std::function<Result<void>()> &look) {
  ST_ASSERT(n > 0);
  std::vector<std::thread> others;
  others.reserve(n - 1);
  working_ = n - 1;
  if (n > 1) try {
      const os::SignalsHeldBack quiet;
      for (size_t number = 1; number < n; ++number)
        others.emplace_back([this, &body, number] {
          attempt([&] { return body(number, false); });
          std::lock_guard lock(mutex_);
          --working_;
          news_.notify_one();
        });
    } catch (const std::system_error &) {  // no more threads,
    } catch (const std::bad_alloc &) {     // or no memory for them
    }
  attempt([&] { return body(0, true); });
  for (size_t number = others.size() + 1; number < n; ++number) attempt([&] { return body(number, true); });

  std::unique_lock lock(mutex_);
  working_ -= n - 1 - others.size();
  for (uint64_t seen = told_; working_ > 0; seen = told_) {
    news_.wait(lock, [&] { return working_ == 0 || told_ != seen; });
    if (working_ == 0 || stopped()) continue;
    lock.unlock();
    attempt([&] { return look(); });  // not a copy of it, which may take memory
    lock.lock();
  }
  lock.unlock();
  for (std::thread &other : others) other.join();
  if (thrown_) std::rethrow_exception(thrown_);
  if (failure_) return Failure(std::move(*failure_));
  return {};
}

void ThreadPool::tell() {
  std::lock_guard lock(mutex_);
  ++told_;
  news_.notify_one();
}

}  // namespace st::read
