// What a handle learns of its store: how much at once, how long, when it is late, how often again.
#include "remote/pace.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "remote/one_asks.h"

namespace st::remote {
namespace {

constexpr uint64_t MiB = 1u << 20;

// Connections that bring 1 MiB a millisecond each, up to what the line takes. Answers of 8 MiB, in a virtual time.
uint32_t learned_on_a_line_for(uint32_t connections_worth, Limits limits = {}) {
  Pace pace(limits);
  uint64_t now = 1000;
  for (int round = 0; round < 20; ++round) {
    const uint32_t n = pace.connections();
    for (uint32_t i = 0; i < n; ++i) EXPECT_TRUE(pace.take_place());
    EXPECT_FALSE(pace.take_place());
    const uint64_t took = 8 * std::max(n, connections_worth) / connections_worth;
    now += took;
    for (uint32_t i = 0; i < n; ++i) {
      pace.give_back();
      pace.came(8 * MiB, 1, took, now);
    }
  }
  EXPECT_EQ(pace.busy(), 0u);
  return pace.connections();
}

TEST(PaceTest, TakesMoreConnectionsAsLongAsTheyBringMore) {
  EXPECT_EQ(learned_on_a_line_for(4), 16u);
  EXPECT_EQ(learned_on_a_line_for(16), 16u);
  EXPECT_EQ(learned_on_a_line_for(32), 32u);
  EXPECT_EQ(learned_on_a_line_for(500), 64u);
  Limits few;
  few.connections = 20;
  EXPECT_EQ(learned_on_a_line_for(500, few), 20u);
  EXPECT_EQ(learned_on_a_line_for(4, few), 16u);
  few.connections = 2;
  EXPECT_EQ(learned_on_a_line_for(500, few), 2u);
}

TEST(PaceTest, FewerAreAllowedThanAreBusyAndLearnedAnew) {
  Pace pace({});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(pace.take_place());
  pace.fewer();
  EXPECT_EQ(pace.connections(), 4u);
  EXPECT_FALSE(pace.take_place());
  pace.give_back();
  pace.fewer();
  EXPECT_EQ(pace.connections(), 3u);
  for (int i = 0; i < 4; ++i) pace.give_back();
  pace.fewer();
  EXPECT_EQ(pace.connections(), 1u);
  // They grow as from the first answers on.
  ASSERT_TRUE(pace.take_place());
  EXPECT_FALSE(pace.take_place());
  pace.came(8 * MiB, 1, 1, 10);
  EXPECT_EQ(pace.connections(), 2u);
}

// Short answers teach nothing. Yet that there was no descriptor for a while does not count for good.
TEST(PaceTest, ShortAnswersBringBackTheConnectionsOfTheBegin) {
  Pace pace({});
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(pace.take_place());
  for (int i = 0; i < 15; ++i) {
    pace.fewer();
    pace.give_back();
  }
  EXPECT_EQ(pace.connections(), 1u);
  for (uint64_t now = 0; now < 1000; ++now) pace.came(1000, 1, 1, now);
  EXPECT_EQ(pace.connections(), 1u) << "nobody waits";
  for (uint64_t now = 1000; now < 2000; ++now) {
    while (pace.take_place()) {
    }
    pace.came(1000, 1, 1, now);
    pace.give_back();
  }
  EXPECT_EQ(pace.connections(), 16u);
  EXPECT_EQ(learned_on_a_line_for(500, {.first_connections = 2}), 64u);
}

TEST(PaceTest, NothingIsLearnedWhereNobodyWaits) {
  Pace pace({});
  for (uint64_t now = 0; now < 1000; ++now) pace.came(8 * MiB, 1, 1, now);
  EXPECT_EQ(pace.connections(), 16u);
}

TEST(PaceTest, PiecesAreLongerWhereAnswersAreSlowToBegin) {
  Pace near({}), far({});
  for (int i = 0; i < 20; ++i) {
    near.came(8 * MiB, 1, 81, 0);
    far.came(8 * MiB, 30, 110, 0);
  }
  EXPECT_EQ(near.piece(), 8 * MiB);
  EXPECT_EQ(far.piece(), 16 * MiB);
  EXPECT_THAT(far.told(), ::testing::HasSubstr("after 30 ms; 16 requests at once, at most 64, of 16 MiB"));
}

TEST(PaceTest, LateIsLaterThanTheSlowestOfAHundred) {
  Pace pace({});
  for (uint64_t i = 1; i < 100; ++i) pace.came(8 * MiB, 1, i, 0);
  EXPECT_FALSE(pace.late_after(8 * MiB));
  pace.came(8 * MiB, 1, 100, 0);
  EXPECT_EQ(pace.late_after(8 * MiB), 99 + 99 / 8 + 5u);
  EXPECT_FALSE(pace.late_after(64)) << "short requests take another time";
}

TEST(PaceTest, TokensComeBackWithBytesAnswersAndTime) {
  Limits limits;
  limits.tokens = 3;
  Pace pace(limits);
  const auto left = [&](uint64_t now) {
    int n = 0;
    while (pace.may_repeat(now)) ++n;
    return n;
  };
  EXPECT_EQ(left(5000), 3);
  EXPECT_EQ(left(5999), 0);
  EXPECT_EQ(left(7000), 2);
  pace.came(2 * MiB, 1, 1, 7000);
  EXPECT_EQ(left(7000), 2);
  pace.came_in_part(MiB);
  EXPECT_EQ(left(7000), 1);
  pace.repeated();
  EXPECT_EQ(left(7000), 1);
  EXPECT_EQ(left(99000), 3) << "never more than at first";
}

TEST(PaceTest, AnEarlierClockOfAnotherThreadBringsNoTokens) {
  Limits limits;
  limits.tokens = 2;
  Pace pace(limits);
  EXPECT_TRUE(pace.may_repeat(5001));
  EXPECT_TRUE(pace.may_repeat(5000));
  EXPECT_FALSE(pace.may_repeat(5001));
  EXPECT_FALSE(pace.begin_hedge(5000));
}

TEST(PaceTest, CallsWaitForAPlace) {
  Limits limits;
  limits.connections = 2;
  Pace pace(limits);
  std::atomic<uint32_t> most = 0;
  std::vector<std::thread> calls;
  for (int i = 0; i < 8; ++i)
    calls.emplace_back([&] {
      for (int j = 0; j < 50; ++j) {
        pace.await_place();
        for (int others_turn = 0; others_turn < 20; ++others_turn) std::this_thread::yield();
        for (uint32_t now = pace.busy(), old = most; now > old && !most.compare_exchange_weak(old, now);) continue;
        pace.give_back();
      }
    });
  for (std::thread &call : calls) call.join();
  EXPECT_LE(most, 2u);
  EXPECT_EQ(pace.busy(), 0u);
}

TEST(PaceTest, ACallerThatWantsNoMoreWaitsForNoPlace) {
  Limits limits;
  limits.connections = 1;
  Pace pace(limits);
  uint32_t asked = 0;
  const auto at_the_second = [&] { return ++asked == 2; };
  EXPECT_TRUE(pace.await_place(at_the_second));
  EXPECT_FALSE(pace.await_place(at_the_second));
  EXPECT_EQ(asked, 2u);
  pace.give_back();
  EXPECT_TRUE(pace.await_place(at_the_second));
}

// A caller that is asked may fork, while another thread has the mutex. Its child ends the call, and takes no mutex.
class AChildAmidACall : public ::testing::Test {
 protected:
  static int end_of(pid_t child) {
    int status = -1;
    ::waitpid(child, &status, 0);
    return status;
  }
  // Forks while another thread has the mutex. The number is 0 in the child.
  pid_t fork_while_locked() {
    std::promise<void> locked;
    std::thread other([&] {
      const std::lock_guard lock(mutex);
      locked.set_value();
      over.get_future().wait();
    });
    locked.get_future().wait();
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);  // only ends a test that fails
      other.detach();
      return child;
    }
    over.set_value();
    other.join();
    return child;
  }
  std::mutex mutex;
  std::promise<void> over;
};

TEST_F(AChildAmidACall, GivesNoPlaceBack) {
  Pace pace({});
  ASSERT_TRUE(pace.take_place());
  const pid_t child = ::fork();
  if (child == 0) {
    pace.give_back();
    pace.end_hedge();
    ::_exit(pace.busy() == 1 && !pace.await_place() && !pace.take_place() ? 0 : 1);
  }
  EXPECT_EQ(end_of(child), 0);
  pace.give_back();
  EXPECT_EQ(pace.busy(), 0u);
}

TEST_F(AChildAmidACall, EndsItsWaitForAPlace) {
  Limits limits;
  limits.connections = 1;
  Pace pace(limits);
  ASSERT_TRUE(pace.take_place());
  pid_t child = -1;
  uint32_t asked = 0;  // the parent wants no more; the child does
  const auto forks = [&] {
    if (++asked == 1) child = ::fork();
    if (child == 0 && asked > 1) ::_exit(1);
    return child != 0;
  };
  const bool has_place = pace.await_place(forks);
  if (child == 0) ::_exit(has_place ? 2 : 0);
  EXPECT_FALSE(has_place);
  EXPECT_EQ(end_of(child), 0);
}

TEST_F(AChildAmidACall, EndsAQuestionWithoutTheLock) {
  OneAsks asks;
  std::unique_lock lock(mutex);
  const pid_t child = asks.ask(lock, [this] { return fork_while_locked(); });
  if (child == 0) ::_exit(lock.owns_lock() ? 1 : 0);
  EXPECT_TRUE(lock.owns_lock());
  EXPECT_EQ(end_of(child), 0);
}

TEST_F(AChildAmidACall, EndsAWaitForAnothersQuestionWithoutTheLock) {
  OneAsks asks;
  std::promise<void> asked, answered;
  std::thread another([&] {
    std::unique_lock lock(mutex);
    asks.ask(lock, [&] {
      asked.set_value();
      answered.get_future().wait();
      return 0;
    });
  });
  asked.get_future().wait();
  pid_t child = -1;
  const Stops stops = [&] {
    child = fork_while_locked();
    return true;
  };
  std::unique_lock lock(mutex);
  {
    const Stopping stopping(stops);
    EXPECT_FALSE(asks.wait_for_others(lock));
  }
  if (child == 0) ::_exit(lock.owns_lock() ? 1 : 0);
  EXPECT_EQ(end_of(child), 0);
  lock.unlock();
  answered.set_value();
  another.join();
}

}  // namespace
}  // namespace st::remote
