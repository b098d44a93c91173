#include "read/thread_pool.h"

#include <chrono>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "os/process.h"

namespace st::read {
namespace {

// A read of another may never return. The caller's user is to know that it still waits.
constexpr auto between_looks = std::chrono::milliseconds(100);

// They end by hand: a child leaves its parent's alone.
union Threads {
  std::vector<std::thread> all;
  Threads() : all() {}
  ~Threads() {}
};

}  // namespace

// Where one of the parent's threads held the mutex amid a fork, nobody gives it back.
template <class Note>
void ThreadPool::note(Note note) noexcept {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (made_in_.this_process()) lock.lock();
  note();
}

// Notes what ended the call, if it did not end well.
template <class Call>
void ThreadPool::attempt(Call call) noexcept {
  try {
    auto done = call();
    if (done) return;
    note([&] {
      if (!failure_) failure_ = std::move(done.error());
    });
  } catch (...) {
    note([&] {
      if (!thrown_) thrown_ = std::current_exception();
    });
  }
  stop_ = true;
}

Result<void> ThreadPool::run(size_t n, const Body &body, const std::function<Result<void>()> &look) {
  ST_ASSERT(n > 0);
  Threads threads;
  std::vector<std::thread> &others = threads.all;
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

  if (made_in_.this_process()) wait_for_others(n - 1 - others.size(), look);
  if (made_in_.this_process()) {
    for (std::thread &other : others) other.join();
    others.~vector();
  }
  if (thrown_) std::rethrow_exception(thrown_);
  if (failure_) return Failure(std::move(*failure_));
  return {};
}

// But for `lacking` of them, which could not be had.
void ThreadPool::wait_for_others(size_t lacking, const std::function<Result<void>()> &look) {
  std::unique_lock lock(mutex_);
  working_ -= lacking;
  for (uint64_t seen = told_; working_ > 0; seen = told_) {
    news_.wait_for(lock, between_looks, [&] { return working_ == 0 || told_ != seen; });
    if (working_ == 0 || stopped()) continue;
    lock.unlock();
    attempt([&] { return look(); });  // not a copy of it, which may take memory
    if (!made_in_.this_process()) return;
    lock.lock();
  }
}

void ThreadPool::tell() {
  std::lock_guard lock(mutex_);
  ++told_;
  news_.notify_one();
}

}  // namespace st::read
