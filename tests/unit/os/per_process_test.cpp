// Each process has a state of its own, and finds its parent's no more.
#include "os/per_process.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "fault_env.h"
#include "os/descriptors.h"
#include "test_files.h"

namespace st::os {
namespace {

class Forked : public testing::FaultEnv {
 public:
  Forked() : FaultEnv(Env::posix()) {}
  uint64_t fork_generation() override { return generation; }
  uint64_t generation = 7;
};

struct State {
  std::mutex mutex;
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
  for (int i = 0; i < 2000; ++i) {
    Forked env;
    PerProcess<State> states(env);
    env.generation = 8;
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
      Forked env;
      auto states = std::make_unique<PerProcess<Ends>>(env);
      Ends &parent = states->mine();
      parent.count = &parents;
      if (is_torn) parent.mutex.lock();
      env.generation = 8;
      if (uses) states->mine().count = &childs;
      states.reset();
      EXPECT_EQ(parents, is_torn ? 0 : 1);
      EXPECT_EQ(childs, uses ? 1 : 0);
      if (is_torn) parent.mutex.unlock();  // which lies there for good
    }
}

// Another file has taken the name since. A child can still read the old one, if its parent had it open.
TEST(DescriptorsTest, AChildReadsAFileThatWasReplacedByWhatItInherited) {
  const testing::TempDir dir;
  const std::string path = dir / "shard", other = dir / "other";
  testing::put_bytes(path, "bytes");
  testing::put_bytes(other, "other");
  Forked env;
  Descriptors descriptors(env);
  auto file = File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
  ASSERT_TRUE(testing::is_ok(file));
  const struct stat identity = *file->stat();
  const File closed = file->closed_like();
  descriptors.put(&identity, std::move(*file));
  std::filesystem::rename(other, path);
  env.generation = 8;
  auto held = descriptors.get(&identity, closed, identity);
  ASSERT_TRUE(testing::is_ok(held));
  char read[5] = {};
  EXPECT_TRUE(testing::is_ok((*held)->read(read, sizeof read, 0)));
  EXPECT_EQ(std::string_view(read, sizeof read), "bytes");
  descriptors.give_up(Descriptors::GiveUp::all);
  held->reset();
  env.generation = 7;
  descriptors.give_up(Descriptors::GiveUp::all);
  EXPECT_TRUE(testing::fails_with(Status::file_changed, descriptors.get(&identity, closed, identity)));
}

// A child that may open nothing any more reads by what its parent had open, as with a handle of one file.
TEST(DescriptorsTest, AChildWithoutRightsReadsByWhatItInherited) {
  const testing::TempDir dir;
  const std::string path = dir / "shard", given_up = dir / "other";
  testing::put_bytes(path, "bytes");
  testing::put_bytes(given_up, "bytes");
  Forked env;
  Descriptors descriptors(env);
  const auto open = [&](const std::string &at) {
    auto file = File::open(env, AT_FDCWD, at, O_RDONLY, 0, at);
    EXPECT_TRUE(testing::is_ok(file));
    return std::move(*file);
  };
  File file = open(path), other = open(given_up);
  const struct stat identity = *file.stat(), others = *other.stat();
  const File closed = file.closed_like(), other_closed = other.closed_like();
  descriptors.put(&other, std::move(other));
  descriptors.give_up(Descriptors::GiveUp::all);
  descriptors.put(&file, std::move(file));
  env.before = [&](testing::Call call) { return call == testing::Call::openat && env.generation > 7 ? -EACCES : 0; };
  for (const uint64_t child : {8, 9}) {  // of it, and of that one
    env.generation = child;
    // Its owner's address is that of another file's owner by now.
    EXPECT_TRUE(testing::fails_with(Status::permission, descriptors.get(&file, closed, others)));
    auto held = descriptors.get(&file, closed, identity);
    ASSERT_TRUE(testing::is_ok(held));
    char read[5] = {};
    EXPECT_TRUE(testing::is_ok((*held)->read(read, sizeof read, 0)));
    EXPECT_EQ(std::string_view(read, sizeof read), "bytes");
    EXPECT_TRUE(testing::fails_with(Status::permission, descriptors.get(&other, other_closed, others)));
  }
}

}  // namespace
}  // namespace st::os
