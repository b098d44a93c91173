// Descriptors that are given up and opened again: what stays open, what goes first, and when there is no room.
#include "os/descriptors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "few_descriptors.h"
#include "fault_env.h"
#include "test_files.h"

namespace st::os {
namespace {

using testing::FaultEnv;

Result<bool> is_still(const File &) {
  return true;
}

// Files of one byte each, whose names go when a test says so.
class Files {
 public:
  Files(Env &env, size_t n) : all_(n) {
    for (size_t i = 0; i < n; ++i) {
      One &one = all_[i];
      const std::string path = path_of(i);
      testing::put_bytes(path, std::string(1, static_cast<char>('a' + i)));
      auto file = File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
      EXPECT_TRUE(testing::is_ok(file));
      one.identity = *file->stat();
      one.closed = file->closed_like();
    }
  }
  std::string path_of(size_t i) const { return dir_ / std::to_string(i); }
  Result<Descriptors::Held> get(Descriptors &from, size_t i) const {
    return from.get(&all_[i], all_[i].closed, all_[i].identity, is_still);
  }
  // Its name goes, for which it is kept.
  void keep(Descriptors &by, size_t i) const {
    auto held = get(by, i);
    ASSERT_TRUE(testing::is_ok(held));
    by.keep(owner(i), *held);
    std::filesystem::remove(path_of(i));
  }
  const void *owner(size_t i) const { return &all_[i]; }
  bool reads(Descriptors &from, size_t i) const {
    const auto held = get(from, i);
    char byte = 0;
    return held && (*held)->read(&byte, 1, 0) && byte == static_cast<char>('a' + i);
  }

 private:
  struct One {
    File closed;
    struct stat identity;
  };
  const testing::TempDir dir_;
  std::vector<One> all_;
};

// A process that may open eight times as many as the handle.
class Few : public testing::FewDescriptors {
 public:
  explicit Few(size_t most_of_handle) : FewDescriptors(Env::posix()) { most = 8 * most_of_handle; }
};

TEST(DescriptorsTest, AFileThatIsGoneIsAnotherThanWasOpened) {
  Few env(4);
  const Files files(env, 1);
  Descriptors descriptors(env);
  EXPECT_TRUE(files.reads(descriptors, 0));
  descriptors.give_up(Descriptors::GiveUp::all);
  std::filesystem::remove(files.path_of(0));
  const auto gone = files.get(descriptors, 0);
  ASSERT_TRUE(testing::fails_with(Status::file_changed, gone));
  EXPECT_NE(gone.error().message.find("is no longer there; refresh the handle"), std::string::npos);
}

TEST(DescriptorsTest, WhatIsKeptGoesAfterAllOthersTheFirstOneFirst) {
  constexpr auto all = Descriptors::GiveUp::all, half = Descriptors::GiveUp::half;
  Few env(8);
  const Files files(env, 4);
  Descriptors descriptors(env);
  files.keep(descriptors, 0);
  files.keep(descriptors, 1);
  EXPECT_TRUE(files.reads(descriptors, 2));
  EXPECT_TRUE(files.reads(descriptors, 3));
  EXPECT_TRUE(descriptors.give_up(all));
  EXPECT_TRUE(files.reads(descriptors, 0));
  EXPECT_TRUE(files.reads(descriptors, 1));
  EXPECT_EQ(env.open_now(), 2u);
  EXPECT_TRUE(descriptors.give_up(half));
  EXPECT_TRUE(testing::fails_with(Status::file_changed, files.get(descriptors, 0)));
  EXPECT_TRUE(files.reads(descriptors, 1));
  EXPECT_TRUE(descriptors.give_up(all));
  EXPECT_FALSE(descriptors.give_up(all));
  EXPECT_EQ(env.open_now(), 0u);
}

TEST(DescriptorsTest, KeptOnesAreAmongTheMostThatMayBeOpen) {
  constexpr size_t most = 4, n = 3 * most;
  Few env(most);
  const Files files(env, n + 1);
  Descriptors descriptors(env);
  for (size_t i = 0; i < n; ++i) {
    files.keep(descriptors, i);
    EXPECT_LE(env.open_now(), most);
    EXPECT_EQ(files.reads(descriptors, n), true);  // another can be opened beside them
    EXPECT_LE(env.open_now(), most);
  }
  for (size_t i = 0; i < n; ++i) EXPECT_EQ(files.reads(descriptors, i), i > n - most) << i;
  for (size_t i = 0; i < n; ++i) descriptors.forget(files.owner(i));
  EXPECT_EQ(env.open_now(), 1u);
}

// They may be of states that nobody reads any more.
TEST(DescriptorsTest, KeptOnesLeaveHalfOfTheRoomToFilesThatAreRead) {
  constexpr size_t most = 128, read = 20, kept = most - 1;
  Few env(most);
  const Files files(env, read + kept);
  Descriptors descriptors(env);
  for (size_t i = read; i < read + kept; ++i) files.keep(descriptors, i);
  env.calls.clear();
  for (int round = 0; round < 10; ++round)
    for (size_t i = 0; i < read; ++i) EXPECT_TRUE(files.reads(descriptors, i));
  EXPECT_LE(std::count(env.calls.begin(), env.calls.end(), testing::Call::openat), static_cast<ptrdiff_t>(read));
  EXPECT_LE(env.open_now(), most);
  for (size_t i = read + kept - most / 2; i < read + kept; ++i) EXPECT_TRUE(files.reads(descriptors, i)) << i;
}

TEST(DescriptorsTest, OneThatHasItsNameAfterAllIsKeptNoMore) {
  Few env(4);
  const Files files(env, 2);
  Descriptors descriptors(env);
  descriptors.end_keeping(files.owner(0));
  EXPECT_TRUE(files.reads(descriptors, 0));
  descriptors.end_keeping(files.owner(0));
  descriptors.keep(files.owner(0), *files.get(descriptors, 0));
  EXPECT_TRUE(files.reads(descriptors, 1));
  descriptors.end_keeping(files.owner(0));
  EXPECT_EQ(descriptors.kept(files.owner(0)), nullptr);
  descriptors.give_up(Descriptors::GiveUp::half);
  EXPECT_EQ(env.open_now(), 1u);
  EXPECT_TRUE(files.reads(descriptors, 0));
}

TEST(DescriptorsTest, OneThatIsKeptTwiceIsOneFile) {
  Few env(4);
  const Files files(env, 2);
  Descriptors descriptors(env);
  const int other_owner = 0;
  files.keep(descriptors, 0);
  EXPECT_EQ(descriptors.kept(files.owner(1)), nullptr);
  for (int i = 0; i < 2; ++i) descriptors.keep(&other_owner, descriptors.kept(files.owner(0)));
  EXPECT_EQ(env.open_now(), 1u);
  descriptors.forget(files.owner(0));
  EXPECT_NE(descriptors.kept(&other_owner), nullptr);
  descriptors.forget(&other_owner);
  EXPECT_EQ(env.open_now(), 0u);
}

// As states of one shard do.
TEST(DescriptorsTest, KeptOnesOfOneFileTakeTheRoomOfOne) {
  constexpr size_t most = 4;
  Few env(most);
  const Files files(env, most + 1);
  Descriptors descriptors(env);
  files.keep(descriptors, 0);
  const std::vector<int> others(3 * most);
  for (const int &other : others) descriptors.keep(&other, descriptors.kept(files.owner(0)));
  for (size_t i = 1; i < most; ++i) EXPECT_TRUE(files.reads(descriptors, i));
  EXPECT_EQ(env.open_now(), most);
  EXPECT_NE(descriptors.kept(files.owner(0)), nullptr);
  for (const int &other : others) EXPECT_NE(descriptors.kept(&other), nullptr);
  descriptors.forget(files.owner(0));
  for (const int &other : others) descriptors.forget(&other);
  EXPECT_EQ(env.open_now(), most - 1);
  for (size_t i = 1; i <= most; ++i) EXPECT_TRUE(files.reads(descriptors, i));
  EXPECT_EQ(env.open_now(), most) << "its room is free";
}

Error no_room() {
  Error e = error(Status::io, "no room");
  e.os_errno = EMFILE;
  return e;
}

// A commit of many shards begins anew for each step.
TEST(DescriptorsTest, RoomIsMadeOfKeptOnesInFewSteps) {
  constexpr size_t n = 100;
  for (const auto what : {Descriptors::GiveUp::half, Descriptors::GiveUp::all}) {
    Few env(128);
    const Files files(env, n);
    const auto descriptors = std::make_shared<Descriptors>(env);
    for (size_t i = 0; i < n; ++i) files.keep(*descriptors, i);
    int tries = 0;
    const auto work = [&]() -> Result<int> {
      ++tries;
      if (env.open_now() > n / 2) return Failure(no_room());
      return tries;
    };
    EXPECT_TRUE(testing::is_ok(Descriptors::with_room(descriptors, what, work)));
    EXPECT_LE(tries, 7);
  }
}

// Another thread may have given up all, after there was no room and before this one asks for it.
TEST(DescriptorsTest, RoomThatAnotherThreadMadeIsRoom) {
  Few env(4);
  const Files files(env, 1);
  const auto descriptors = std::make_shared<Descriptors>(env);
  EXPECT_TRUE(files.reads(*descriptors, 0));
  int tries = 0;
  const auto work = [&]() -> Result<int> {
    if (++tries > 1) return tries;
    descriptors->give_up(Descriptors::GiveUp::all);
    return Failure(no_room());
  };
  EXPECT_TRUE(testing::is_ok(Descriptors::with_room(descriptors, Descriptors::GiveUp::half, work)));
  EXPECT_EQ(tries, 2);
  tries = 1;
  const auto in_vain = [&]() -> Result<int> { return ++tries, Failure(no_room()); };
  EXPECT_FALSE(Descriptors::with_room(descriptors, Descriptors::GiveUp::half, in_vain).has_value());
  EXPECT_EQ(tries, 2);
}

// It may also be about to close them.
TEST(DescriptorsTest, RoomThatAnotherThreadIsMakingIsAwaited) {
  Few env(4);
  const Files files(env, 1);
  const auto descriptors = std::make_shared<Descriptors>(env);
  EXPECT_TRUE(files.reads(*descriptors, 0));
  std::atomic<bool> is_closing = false, was_tried = false;
  env.before = [&](testing::Call call) {
    if (call != testing::Call::close) return 0;
    is_closing = true;
    while (!was_tried) std::this_thread::yield();
    return 0;
  };
  std::thread other([&] { descriptors->give_up(Descriptors::GiveUp::all); });
  int tries = 0;
  const auto work = [&]() -> Result<int> {
    if (++tries > 1) return tries;
    while (!is_closing) std::this_thread::yield();
    was_tried = true;
    return Failure(no_room());
  };
  EXPECT_TRUE(testing::is_ok(Descriptors::with_room(descriptors, Descriptors::GiveUp::half, work)));
  EXPECT_EQ(tries, 2);
  other.join();
}

std::string five_bytes_of(const File &file) {
  std::string read(5, '?');
  EXPECT_TRUE(testing::is_ok(file.read(read.data(), read.size(), 0)));
  return read;
}

// Another file has taken the name since. A child can still read the old one, if its parent had it open.
TEST(DescriptorsTest, AChildReadsAFileThatWasReplacedByWhatItInherited) {
  const testing::TempDir dir;
  const std::string path = dir / "shard", other = dir / "other";
  testing::put_bytes(path, "bytes");
  testing::put_bytes(other, "other");
  FaultEnv env{Env::posix()};
  Descriptors descriptors(env);
  auto file = File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
  ASSERT_TRUE(testing::is_ok(file));
  const struct stat identity = *file->stat();
  const File closed = file->closed_like();
  descriptors.put(&identity, std::move(*file));
  std::filesystem::rename(other, path);
  env.forks = 1;
  auto held = descriptors.get(&identity, closed, identity, is_still);
  ASSERT_TRUE(testing::is_ok(held));
  EXPECT_EQ(five_bytes_of(**held), "bytes");
  descriptors.give_up(Descriptors::GiveUp::all);
  held->reset();
  env.forks = 0;
  descriptors.give_up(Descriptors::GiveUp::all);
  EXPECT_TRUE(testing::fails_with(Status::file_changed, descriptors.get(&identity, closed, identity, is_still)));
}

// A child that may open nothing any more reads by what its parent had open, as with a handle of one file.
TEST(DescriptorsTest, AChildWithoutRightsReadsByWhatItInherited) {
  const testing::TempDir dir;
  const std::string path = dir / "shard", given_up = dir / "other";
  testing::put_bytes(path, "bytes");
  testing::put_bytes(given_up, "bytes");
  FaultEnv env{Env::posix()};
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
  env.before = [&](testing::Call call) { return call == testing::Call::openat && env.forks > 0 ? -EACCES : 0; };
  for (const uint64_t child : {1, 2}) {  // of it, and of that one
    env.forks = child;
    // Its owner's address is that of another file's owner by now.
    EXPECT_TRUE(testing::fails_with(Status::permission, descriptors.get(&file, closed, others, is_still)));
    auto held = descriptors.get(&file, closed, identity, is_still);
    ASSERT_TRUE(testing::is_ok(held));
    EXPECT_EQ(five_bytes_of(**held), "bytes");
    EXPECT_TRUE(testing::fails_with(Status::permission, descriptors.get(&other, other_closed, others, is_still)));
  }
}

}  // namespace
}  // namespace st::os
