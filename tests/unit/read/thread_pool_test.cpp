// The threads of a bulk read: which work, what ends the work, what crosses over.
#include "read/thread_pool.h"

#include <chrono>
#include <new>
#include <signal.h>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "test_files.h"

namespace st::read {
namespace {

Result<void> fine() {
  return {};
}

using namespace testing;

TEST(ThreadPoolTest, EachShareIsDoneOnceAndTheFirstByTheCaller) {
  for (size_t n : {1, 2, 7}) {
    std::vector<std::atomic<int>> done(n);
    ThreadPool pool(os::Env::posix());
    ASSERT_TRUE(is_ok(pool.run(
        n,
        [&](size_t number, bool calling) -> Result<void> {
          ++done[number];
          if (number == 0) {
            EXPECT_TRUE(calling);
          }
          return {};
        },
        fine)));
    for (const auto &times : done) EXPECT_EQ(times, 1);
    EXPECT_FALSE(pool.stopped());
  }
}

TEST(ThreadPoolTest, OnlyTheCallersThreadIsToldThatItIs) {
  const auto caller = std::this_thread::get_id();
  ThreadPool pool(os::Env::posix());
  ASSERT_TRUE(is_ok(pool.run(
      8,
      [&](size_t, bool calling) -> Result<void> {
        EXPECT_EQ(calling, std::this_thread::get_id() == caller);
        return {};
      },
      fine)));
}

TEST(ThreadPoolTest, AFailureAnywhereStopsTheOthers) {
  for (size_t culprit : {0, 1, 3}) {
    ThreadPool pool(os::Env::posix());
    auto done = pool.run(
        4,
        [&](size_t number, bool) -> Result<void> {
          if (number == culprit) return fail(Status::io, "it broke");
          while (!pool.stopped()) std::this_thread::yield();
          return {};
        },
        fine);
    EXPECT_TRUE(fails_with(Status::io, done)) << culprit;
  }
}

TEST(ThreadPoolTest, AnExceptionAnywhereGoesOnInTheCaller) {
  for (size_t culprit : {0, 1, 3}) {
    ThreadPool pool(os::Env::posix());
    auto run = [&] {
      static_cast<void>(pool.run(
          4,
          [&](size_t number, bool) -> Result<void> {
            if (number == culprit) throw std::runtime_error("out of the callback");
            while (!pool.stopped()) std::this_thread::yield();
            return {};
          },
          fine));
    };
    EXPECT_THROW(run(), std::runtime_error) << culprit;
  }
}

// Done with its own share the caller is not blind: it is asked as others get on.
TEST(ThreadPoolTest, TheCallerLooksWhenOthersTell) {
  for (bool good : {true, false}) {
    const auto caller = std::this_thread::get_id();
    std::atomic<int> looks = 0;
    ThreadPool pool(os::Env::posix());
    auto work = [&](size_t, bool calling) -> Result<void> {
      while (!calling && looks < 3 && !pool.stopped()) {
        pool.tell();
        std::this_thread::yield();
      }
      return {};
    };
    auto done = pool.run(3, work, [&]() -> Result<void> {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      ++looks;
      if (!good) return fail(Status::cancelled, "enough");
      return {};
    });
    if (good) {
      EXPECT_TRUE(is_ok(done));
      EXPECT_GE(looks, 3);
    } else {
      EXPECT_TRUE(fails_with(Status::cancelled, done));
      EXPECT_EQ(looks, 1);
    }
  }
}

// A read may hang, as on a server that is gone: the one that waits for it can be asked.
TEST(ThreadPoolTest, TheCallerLooksWhileOthersAreSilent) {
  std::atomic<int> looks = 0;
  ThreadPool pool(os::Env::posix());
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  auto work = [&](size_t, bool calling) -> Result<void> {
    while (!calling && looks < 2 && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
    return {};
  };
  ASSERT_TRUE(is_ok(pool.run(2, work, [&]() -> Result<void> {
    ++looks;
    return {};
  })));
  EXPECT_GE(looks, 2);
}

TEST(ThreadPoolTest, AChildOfAForkWaitsForNone) {
  std::atomic<bool> goes_on = false;
  pid_t child = -1;
  int status = -1;
  ThreadPool pool(os::Env::posix());
  auto done = pool.run(
      3,
      [&](size_t number, bool) -> Result<void> {
        if (number > 0) {
          while (!goes_on) std::this_thread::yield();
          return {};
        }
        child = ::fork();
        if (child == 0) {
          ::alarm(20);  // ends it where it hangs
          return fail(Status::cancelled, "in the child");
        }
        ::waitpid(child, &status, 0);
        goes_on = true;
        return {};
      },
      fine);
  if (child == 0) ::_exit(!done && done.error().status == Status::cancelled ? 0 : 1);
  EXPECT_TRUE(is_ok(done));
  EXPECT_EQ(status, 0);
}

TEST(ThreadPoolTest, ItsThreadsTakeNoSignalsOfTheProgram) {
  ThreadPool pool(os::Env::posix());
  ASSERT_TRUE(is_ok(pool.run(
      3,
      [&](size_t, bool calling) -> Result<void> {
        sigset_t blocked;
        ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        EXPECT_EQ(sigismember(&blocked, SIGINT), calling ? 0 : 1);
        EXPECT_EQ(sigismember(&blocked, SIGSEGV), 0);
        return {};
      },
      fine)));
}

}  // namespace
}  // namespace st::read
