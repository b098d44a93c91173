// Each process has a state of its own, and finds its parent's no more.
#include "os/per_process.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "fault_env.h"

namespace st::os {
namespace {

using testing::FaultEnv;

struct State {
  std::mutex mutex;
  int number = 0;
};

TEST(PerProcessTest, AChildHasItsOwn) {
  FaultEnv env{Env::posix()};
  PerProcess<State> states(env);
  ASSERT_NE(states.find(), nullptr);
  states.mine().number = 1;
  for (const uint64_t child : {1, 2}) {  // of it, and of that one
    env.forks = child;
    EXPECT_EQ(states.find(), nullptr);
    EXPECT_EQ(std::exchange(states.mine().number, 2), 0);
    EXPECT_EQ(&states.mine(), states.find());
    EXPECT_EQ(states.mine().number, 2);
  }
}

TEST(PerProcessTest, WhichItsThreadsShare) {
  for (int i = 0; i < 2000; ++i) {
    FaultEnv env{Env::posix()};
    PerProcess<State> states(env);
    env.forks = 1;
    State *seen[2] = {};
    std::atomic<int> ready = 0;
    const auto ask = [&](State **mine) {
      ready.fetch_add(1);
      while (ready.load() < 2) std::this_thread::yield();  // so that both ask at once
      *mine = &states.mine();
    };
    std::thread other([&] { ask(&seen[1]); });
    ask(&seen[0]);
    other.join();
    ASSERT_EQ(seen[0], seen[1]);
    ASSERT_EQ(seen[0], states.find());
  }
}

TEST(PerProcessTest, AChildEndsItsParentsUnlessSomebodyWasAmidAChange) {
  struct Ends {
    std::mutex mutex;
    int *count = nullptr;
    ~Ends() {
      if (count) ++*count;
    }
  };
  for (const bool is_torn : {false, true})
    for (const bool uses : {true, false}) {
      int parents = 0, childs = 0;
      FaultEnv env{Env::posix()};
      auto states = std::make_unique<PerProcess<Ends>>(env);
      Ends &parent = states->mine();
      parent.count = &parents;
      if (is_torn) parent.mutex.lock();
      env.forks = 1;
      if (uses) states->mine().count = &childs;
      states.reset();
      EXPECT_EQ(parents, is_torn ? 0 : 1);
      EXPECT_EQ(childs, uses ? 1 : 0);
      if (is_torn) parent.mutex.unlock();  // which lies there for good
    }
}

}  // namespace
}  // namespace st::os
