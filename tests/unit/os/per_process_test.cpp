// Each process has a state of its own, and finds its parent's no more.
#include "os/per_process.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "fault_env.h"

namespace st::os {
namespace {

class Forked : public testing::FaultEnv {
 public:
  Forked() : FaultEnv(Env::posix()) {}
  uint64_t fork_generation() override { return generation; }
  uint64_t generation = 7;
};

struct State {
  int number = 0;
};

TEST(PerProcessTest, AChildHasItsOwn) {
  Forked env;
  PerProcess<State> states(env);
  ASSERT_NE(states.find(), nullptr);
  states.mine().number = 1;
  for (const uint64_t child : {8, 9}) {  // of it, and of that one
    env.generation = child;
    EXPECT_EQ(states.find(), nullptr);
    EXPECT_EQ(std::exchange(states.mine().number, 2), 0);
    EXPECT_EQ(&states.mine(), states.find());
    EXPECT_EQ(states.mine().number, 2);
  }
}

TEST(PerProcessTest, WhichItsThreadsShare) {
  for (int i = 0; i < 100; ++i) {
    Forked env;
    PerProcess<State> states(env);
    env.generation = 8;
    std::vector<State *> seen(4);
    std::vector<std::thread> threads;
    for (State *&mine : seen) threads.emplace_back([&] { mine = &states.mine(); });
    for (std::thread &t : threads) t.join();
    for (const State *mine : seen) ASSERT_EQ(mine, states.find());
  }
}

}  // namespace
}  // namespace st::os
