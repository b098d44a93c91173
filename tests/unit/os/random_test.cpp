// Random names and numbers, also where the kernel has no getrandom and the system no device.
#include "os/random.h"

#include <set>

#include "clock_env.h"
#include "test_files.h"

namespace st::os {
namespace {

using testing::Call;

struct RandomTest : public ::testing::Test {
  size_t distinct(size_t n) {
    std::set<std::string> names;
    for (size_t i = 0; i < n; ++i) names.insert(random_name(env));
    EXPECT_EQ(names.begin()->size(), 16u);
    return names.size();
  }
  testing::ClockEnv env{Env::posix()};
};

TEST_F(RandomTest, NamesDiffer) {
  EXPECT_EQ(distinct(100), 100u);
  EXPECT_EQ(std::count(env.calls.begin(), env.calls.end(), Call::random), 100);
  EXPECT_EQ(std::count(env.calls.begin(), env.calls.end(), Call::openat), 0);
}

TEST_F(RandomTest, WithoutGetrandomTheDeviceIsRead) {
  for (int error : {-ENOSYS, -EPERM}) {
    env.before = [&](Call call) { return call == Call::random ? error : 0; };
    EXPECT_EQ(distinct(100), 100u);
  }
  EXPECT_EQ(env.sleeps, 0u);
}

TEST_F(RandomTest, WithoutAnyOfThemNamesStillDiffer) {
  for (Call missing : {Call::openat, Call::pread}) {
    env.before = [&](Call call) { return call == Call::random || call == missing ? -ENOSYS : 0; };
    EXPECT_EQ(distinct(20), 20u);
  }
}

}  // namespace
}  // namespace st::os
