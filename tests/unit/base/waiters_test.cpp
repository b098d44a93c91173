// A forked child ends what threads of its parent wait for.
#include "base/waiters.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>

namespace st {
namespace {

class WaitersTest : public ::testing::Test {
 protected:
  // Ends them in a child, while `wait` waits. It calls its argument with the mutex held, right before.
  void end_in_child(const std::function<void(std::unique_lock<std::mutex> &, const std::function<bool()> &)> &wait) {
    std::promise<void> begins;
    bool told = false;
    std::thread waits([&] {
      std::unique_lock lock(mutex);
      wait(lock, [&] {
        if (!std::exchange(told, true)) begins.set_value();
        return over;
      });
    });
    begins.get_future().wait();
    std::unique_lock lock(mutex);  // free once it waits
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      all.reset();
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    over = true;
    all->notify_all();
    lock.unlock();
    waits.join();
  }
  std::mutex mutex;
  bool over = false;
  std::unique_ptr<Waiters> all = std::make_unique<Waiters>();
};

TEST_F(WaitersTest, EndInAChildWhoeverWaits) {
  end_in_child([&](auto &lock, const auto &done) { all->wait(lock, done); });
}

TEST_F(WaitersTest, EndInAChildWhoeverWaitsForATime) {
  end_in_child([&](auto &lock, const auto &done) { all->wait_for(lock, std::chrono::hours(1), done); });
}

TEST_F(WaitersTest, EndInAChildWhoeverLooksHimself) {
  end_in_child([&](auto &lock, const auto &done) {
    while (!done()) all->wait_for(lock, std::chrono::hours(1));
  });
}

TEST_F(WaitersTest, TellWhatIsDone) {
  std::unique_lock lock(mutex);
  EXPECT_FALSE(all->wait_for(lock, std::chrono::milliseconds(1), [] { return false; }));
  EXPECT_TRUE(all->wait_for(lock, std::chrono::milliseconds(1), [] { return true; }));
}

}  // namespace
}  // namespace st
