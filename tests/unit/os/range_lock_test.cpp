// Byte-range locks: what excludes what, how long one waits, and what may end them.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <stdexcept>
#include <thread>

#include "clock_env.h"
#include "fault_env.h"
#include "os/lock_holder.h"
#include "os/range_lock.h"
#include "os/waited.h"
#include "test_files.h"

namespace st::os {
namespace {

using testing::Call;
using namespace testing;

constexpr bool shared = false, exclusive = true;

class RangeLockTest : public ::testing::Test {
 protected:
  static std::string made(const std::string &path) {
    testing::put_bytes(path, std::string(1000, 'x'));
    return path;
  }
  File open(Env &with) {
    auto file = File::open(with, AT_FDCWD, path, O_RDWR, 0, path);
    EXPECT_TRUE(is_ok(file));
    return std::move(*file);
  }
  static Result<RangeLock> take(const File &file, std::vector<LockRange> ranges, int32_t timeout_ms = 0) {
    return RangeLock::acquire(file, std::move(ranges), {timeout_ms, nullptr, nullptr});
  }

  TempDir dir;
  const std::string path = made(dir / "f");
  ClockEnv env{Env::posix()};
  File a = open(env), b = open(env), c = open(env);
};

TEST_F(RangeLockTest, ExclusiveRangesKeepOutWhatTouchesThem) {
  auto held = take(a, {{100, 50, exclusive}});
  ASSERT_TRUE(is_ok(held));
  for (const LockRange &touching :
       {LockRange{100, 50, exclusive}, {149, 1, exclusive}, {90, 11, shared}, {0, 0, shared}, {120, 0, exclusive}})
    EXPECT_TRUE(fails_with(Status::busy, take(b, {touching}))) << touching.begin;
  for (const LockRange &beside : {LockRange{0, 100, exclusive}, {150, 0, exclusive}, {150, 10, shared}})
    EXPECT_TRUE(is_ok(take(b, {beside}))) << beside.begin;
}

TEST_F(RangeLockTest, SharedRangesKeepOutOnlyExclusiveOnes) {
  auto one = take(a, {{0, 10, shared}}), two = take(b, {{0, 10, shared}});
  ASSERT_TRUE(is_ok(one));
  ASSERT_TRUE(is_ok(two));
  EXPECT_TRUE(fails_with(Status::busy, take(c, {{5, 1, exclusive}})));
  one->release();
  EXPECT_TRUE(fails_with(Status::busy, take(c, {{5, 1, exclusive}})));
  two->release();
  EXPECT_TRUE(is_ok(take(c, {{5, 1, exclusive}})));
}

TEST_F(RangeLockTest, ALengthOfZeroReachesBeyondAnyGrowth) {
  auto held = take(a, {{0, 0, exclusive}});
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(fails_with(Status::busy, take(b, {{uint64_t{1} << 60, 1, exclusive}})));
}

TEST_F(RangeLockTest, DiesWithItsHolderAndMovesWhole) {
  {
    auto held = take(a, {{0, 10, exclusive}, {20, 10, exclusive}});
    ASSERT_TRUE(is_ok(held));
    RangeLock moved = std::move(*held);
    EXPECT_TRUE(fails_with(Status::busy, take(b, {{25, 1, exclusive}})));
  }
  EXPECT_TRUE(is_ok(take(b, {{0, 30, exclusive}})));
}

TEST_F(RangeLockTest, WhatCouldNotBeTakenWholeIsNotHeldAtAll) {
  auto held = take(a, {{50, 1, exclusive}});
  ASSERT_TRUE(is_ok(held));
  auto half = take(b, {{0, 10, exclusive}, {50, 1, exclusive}});
  ASSERT_TRUE(fails_with(Status::busy, half));
  EXPECT_EQ(half.error().offset, 50u);  // which range it was
  EXPECT_TRUE(is_ok(take(c, {{0, 10, exclusive}})));
}

// No two can wait for each other.
TEST_F(RangeLockTest, RangesAreTakenInAscendingOrder) {
  class Watch : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int lock(int fd, int command, struct flock *l) override {
      if (l->l_type != F_UNLCK) starts.push_back(l->l_start);
      return FaultEnv::lock(fd, command, l);
    }
    std::vector<off_t> starts;
  } watch{Env::posix()};
  File file = open(watch);
  ASSERT_TRUE(is_ok(take(file, {{300, 5, exclusive}, {0, 8, shared}, {200, 5, exclusive}, {100, 5, exclusive}})));
  EXPECT_EQ(watch.starts, (std::vector<off_t>{0, 100, 200, 300}));
}

TEST_F(RangeLockTest, NoTimeMeansOneTry) {
  auto held = take(a, {{0, 10, exclusive}});
  std::atomic<uint64_t> waits = 0;
  EXPECT_TRUE(fails_with(Status::busy, RangeLock::acquire(b, {{0, 10, exclusive}}, {0, nullptr, &waits})));
  EXPECT_EQ(env.sleeps, 0u);
  EXPECT_EQ(waits, 1u);
}

TEST_F(RangeLockTest, WaitsAsLongAsItMayAndNoLonger) {
  auto held = take(a, {{0, 10, exclusive}});
  const uint64_t begin = env.now_us;
  EXPECT_TRUE(fails_with(Status::busy, take(b, {{0, 10, exclusive}}, 2500)));
  EXPECT_GE(env.now_us - begin, 2'500'000u);
  EXPECT_LT(env.now_us - begin, 2'600'000u);
  EXPECT_GT(env.sleeps, 100u);  // and looked again often
}

TEST_F(RangeLockTest, TheTimeIsForAllRangesTogether) {
  auto first = take(a, {{0, 1, exclusive}}), second = take(c, {{10, 1, exclusive}});
  env.on_sleep = [&] {
    if (env.now_us > 900'000) first->release();
  };
  const uint64_t begin = env.now_us;
  EXPECT_TRUE(fails_with(Status::busy, take(b, {{0, 1, exclusive}, {10, 1, exclusive}}, 1000)));
  EXPECT_LT(env.now_us - begin, 1'100'000u);
}

// What one wait has left is for the next: not outside of a call, and not in a call that a callback makes.
TEST_F(RangeLockTest, TheTimeIsForAllWaitsOfACall) {
  const auto waited_ms = [&](int32_t timeout_ms) {
    const uint64_t begin = env.now_us;
    EXPECT_TRUE(fails_with(Status::busy, take(b, {{0, 1, exclusive}}, timeout_ms)));
    return (env.now_us - begin) / 1000;
  };
  const auto held = take(a, {{0, 1, exclusive}});
  const WaitedByCall call(WaitedByCall::anew);
  EXPECT_LT(waited_ms(300), 330u);
  const WaitedByCall part(WaitedByCall::if_outside);
  EXPECT_GE(waited_ms(1000), 669u);
  EXPECT_LT(waited_ms(1100), 130u);
  env.now_us += 5'000'000;  // work
  EXPECT_GE(waited_ms(1300), 170u);
  EXPECT_EQ(waited_ms(1000), 0u);
  {
    const WaitedByCall of_a_callback(WaitedByCall::anew);
    EXPECT_GE(waited_ms(1000), 999u);
  }
  EXPECT_EQ(waited_ms(1000), 0u);
}

TEST_F(RangeLockTest, IsHadOnceItIsFree) {
  auto held = take(a, {{0, 10, exclusive}});
  env.on_sleep = [&] {
    if (env.sleeps == 20) held->release();
  };
  std::atomic<uint64_t> waits = 0;
  EXPECT_TRUE(is_ok(RangeLock::acquire(b, {{0, 10, exclusive}}, {-1, nullptr, &waits})));
  EXPECT_EQ(env.sleeps, 20u);
  EXPECT_EQ(waits, 1u);  // waited once, however often it looked
}

TEST_F(RangeLockTest, AWaitForEverCanBeInterrupted) {
  auto held = take(a, {{0, 10, exclusive}});
  std::atomic<uint64_t> interrupts = 0;
  env.on_sleep = [&] {
    if (env.sleeps == 30) ++interrupts;
  };
  const Control control({}, &interrupts);
  EXPECT_TRUE(fails_with(Status::interrupted, RangeLock::acquire(b, {{0, 10, exclusive}}, {-1, &control, nullptr})));
  EXPECT_EQ(env.sleeps, 30u);
}

TEST_F(RangeLockTest, SignalsDoNotCountAsSomebodyElsesLock) {
  int left = 5;
  env.before = [&](Call call) { return call == Call::lock && left-- > 0 ? -EINTR : 0; };
  std::atomic<uint64_t> waits = 0;
  EXPECT_TRUE(is_ok(RangeLock::acquire(a, {{0, 10, exclusive}}, {0, nullptr, &waits})));
  EXPECT_EQ(waits, 0u);
}

TEST_F(RangeLockTest, WhatGivesBackOrLooksIsRepeatedAfterASignal) {
  const auto interrupt = [&](size_t n) {
    env.before = nth_call_fails(n, -EINTR, false, [](Call call) { return call == Call::lock; });
  };
  RangeLock held(a);
  ASSERT_TRUE(held.try_take({0, 20, exclusive}).value());
  interrupt(0);
  held.drop({10, 10, exclusive});
  EXPECT_TRUE(is_ok(take(b, {{10, 10, exclusive}})));
  interrupt(0);
  EXPECT_TRUE(is_ok(is_locked(b, {0, 10, shared})));
  interrupt(0);
  EXPECT_TRUE(is_ok(how_locked(b)));
  interrupt(0);
  EXPECT_EQ(locks_exclude(a, b, {0, 10, exclusive}).value(), true);
  interrupt(1);  // as it gives back what it should not have got
  EXPECT_EQ(locks_exclude(a, b, {30, 10, exclusive}).value(), false);
  EXPECT_TRUE(is_ok(take(c, {{30, 10, exclusive}})));
  interrupt(0);
  held.release();
  EXPECT_TRUE(is_ok(take(c, {{0, 10, exclusive}})));
}

TEST_F(RangeLockTest, EndlessInterruptionsEndWithTheTime) {
  struct Hang : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  env.before = [](Call call) { return call == Call::lock ? -EINTR : 0; };
  env.on_sleep = [&] {
    if (env.sleeps > 100'000) throw Hang("it would wait for ever");
  };
  try {
    EXPECT_FALSE(take(a, {{0, 10, exclusive}}, 1000));
  } catch (const Hang &hang) {
    FAIL() << hang.what();
  }
}

TEST_F(RangeLockTest, AFilesystemWithoutLocksIsNamedSo) {
  for (int error : {EINVAL, ENOSYS, EOPNOTSUPP, ENOLCK, EPERM, EACCES}) {
    env.before = [&](Call call) { return call == Call::lock ? -error : 0; };
    EXPECT_TRUE(fails_with(Status::lock_unsupported, take(a, {{0, 10, exclusive}}))) << error;
    EXPECT_TRUE(fails_with(Status::lock_unsupported, is_locked(a, {0, 10, exclusive}))) << error;
  }
  env.before = [&](Call call) { return call == Call::lock ? -EIO : 0; };
  EXPECT_TRUE(fails_with(Status::io, take(a, {{0, 10, exclusive}})));
}

TEST_F(RangeLockTest, ALockThatIsForbiddenIsNotOneThatAnotherHolds) {
  // As AppArmor and SELinux answer.
  struct ForbiddingEnv : ClockEnv {
    using ClockEnv::ClockEnv;
    int lock(int fd, int command, struct flock *lock) override {
      const int r = ClockEnv::lock(fd, command, lock);
      const bool takes = command == F_OFD_SETLK && lock->l_type != F_UNLCK;
      return takes && (r == -EAGAIN || refusals-- > 0) ? -EACCES : r;
    }
    int refusals = 0;
  } forbidding{Env::posix()};
  File d = open(forbidding);
  forbidding.refusals = 100;
  auto forbidden = take(d, {{0, 10, exclusive}}, 1000);
  EXPECT_TRUE(fails_with(Status::lock_unsupported, forbidden));
  EXPECT_EQ(forbidding.sleeps, 0u);

  // A client of SMB says so of a lock that another holds. By the next question it may be free.
  forbidding.told_of_disk = [](struct statfs &s) { s.f_type = static_cast<decltype(s.f_type)>(0xFF534D42); };
  forbidding.refusals = 100;
  EXPECT_TRUE(fails_with(Status::busy, take(d, {{0, 10, exclusive}})));
  forbidding.refusals = 10;
  EXPECT_TRUE(is_ok(take(d, {{0, 10, exclusive}}, 1000)));
}

TEST_F(RangeLockTest, AForkedChildDoesNotEndItsParentsLock) {
  auto held = take(a, {{0, 10, exclusive}});
  ASSERT_TRUE(is_ok(held));
  const pid_t child = ::fork();
  if (child == 0) {
    held->release();  // as its destructor would
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_TRUE(fails_with(Status::busy, take(b, {{0, 10, exclusive}})));
}

// A child that lives on shares the description; the parent's release must end
// the lock all the same.
TEST_F(RangeLockTest, ALivingChildDoesNotKeepItsParentsLock) {
  auto held = take(a, {{0, 10, exclusive}});
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(pipe[1]);
    char byte;
    ::_exit(::read(pipe[0], &byte, 1) == 0 ? 0 : 1);
  }
  ::close(pipe[0]);
  held->release();
  EXPECT_TRUE(is_ok(take(b, {{0, 10, exclusive}})));
  ::close(pipe[1]);
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(RangeLockTest, LookingTellsOthersLocksAndTakesNone) {
  EXPECT_EQ(is_locked(b, {0, 10, exclusive}).value(), false);
  auto held = take(a, {{5, 1, shared}});
  EXPECT_EQ(is_locked(b, {0, 10, exclusive}).value(), true);
  EXPECT_EQ(is_locked(b, {0, 10, shared}).value(), false);
  EXPECT_EQ(is_locked(a, {0, 10, exclusive}).value(), false);  // one's own do not count
  EXPECT_TRUE(is_ok(take(c, {{6, 1, exclusive}})));
}

TEST_F(RangeLockTest, AFilesystemThatGrantsEveryLockIsFoundOut) {
  auto held = take(a, {{0, 10, exclusive}});
  EXPECT_EQ(locks_exclude(a, b, {0, 10, exclusive}).value(), true);
  class Generous : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int lock(int, int, struct flock *) override { return 0; }
  } generous{Env::posix()};
  File second = open(generous);
  EXPECT_EQ(locks_exclude(a, second, {0, 10, exclusive}).value(), false);
  // And the test leaves no lock behind where it was granted.
  held->release();
  EXPECT_EQ(locks_exclude(a, b, {0, 10, exclusive}).value(), false);
  EXPECT_TRUE(is_ok(take(c, {{0, 10, exclusive}})));
}

#ifndef _WIN32  // which has no signals to hold back
// GlusterFS's client hangs for ever where signals interrupt two requests for locks at once.
TEST_F(RangeLockTest, OnGlusterFsSignalsWaitForARequest) {
  FaultEnv faults(Env::posix());
  for (const PastCache how : {PastCache::by_one, PastCache::by_length}) {
    std::vector<bool> held_back;
    faults.before = [&](Call call) {
      sigset_t mask;
      if (call != Call::lock || ::pthread_sigmask(SIG_BLOCK, nullptr, &mask) != 0) return 0;
      held_back.push_back(sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGTERM) == 1);
      return 0;
    };
    File file = open(faults);
    file.read_past_cache(how);
    take(file, {{0, 10, exclusive}})->release();
    EXPECT_FALSE(is_locked(file, {0, 10, exclusive}).value());
    EXPECT_EQ(held_back, std::vector<bool>(3, how == PastCache::by_length));
    sigset_t mask;
    ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, nullptr, &mask), 0);
    EXPECT_EQ(sigismember(&mask, SIGTERM), 0);
  }
}
#endif

// SIGKILL cannot wait.
TEST_F(RangeLockTest, OnGlusterFsWhoWaitsLooksBeforeEachFurtherRequest) {
  class Commands : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int lock(int fd, int command, struct flock *l) override {
      asked.push_back(command);
      return FaultEnv::lock(fd, command, l);
    }
    std::vector<int> asked;
  } commands(Env::posix());
  File file = open(commands);
  auto held = take(a, {{0, 10, exclusive}});
  ASSERT_TRUE(is_ok(held));
  for (const PastCache how : {PastCache::by_one, PastCache::by_length}) {
    file.read_past_cache(how);
    commands.asked.clear();
    RangeLock lock(file);
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(lock.try_take({0, 10, exclusive}).value());
    held->drop({5, 5, exclusive});
    EXPECT_TRUE(lock.try_take({5, 5, exclusive}).value());
    constexpr int take = F_OFD_SETLK, look = F_OFD_GETLK;
    EXPECT_EQ(commands.asked, how == PastCache::by_length ? (std::vector<int>{take, look, look, look, take})
                                                          : std::vector<int>(4, take));
    lock.release();
    ASSERT_TRUE(held->try_take({5, 5, exclusive}).value());
  }
}

TEST_F(RangeLockTest, ThreadsWithTheirOwnDescriptionsExcludeEachOther) {
  uint64_t counter = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      auto file = File::open(Env::posix(), AT_FDCWD, path, O_RDWR, 0, path);
      for (int i = 0; i < 100; ++i) {
        auto lock = RangeLock::acquire(*file, {{0, 1, exclusive}}, {-1, nullptr, nullptr});
        if (!lock) return;
        const uint64_t seen = counter;
        std::this_thread::yield();
        counter = seen + 1;
      }
    });
  for (std::thread &t : threads) t.join();
  EXPECT_EQ(counter, 400u);
}

// An inode's number is another file's on another device.
TEST(LineLocks, AreOfTheFileWithTheSameDevice) {
  const LockRange range{100, 10, exclusive};
  const struct {
    const char *line;
    uint32_t major, minor;
    Locks locks;
  } rows[] = {
      {"lock:\t1: OFDLCK  ADVISORY  WRITE -1 fe:00:1234 0 EOF", 0xfe, 0, Locks::yes},
      {"lock:\t1: OFDLCK  ADVISORY  READ  -1 08:11:1234 109 200", 8, 17, Locks::yes},
      {"lock:\t1: OFDLCK  ADVISORY  WRITE -1 fe:00:1234 110 EOF", 0xfe, 0, Locks::no},
      {"lock:\t1: OFDLCK  ADVISORY  WRITE -1 fe:00:1234 0 99", 0xfe, 0, Locks::no},
      {"lock:\t1: OFDLCK  ADVISORY  WRITE -1 fe:00:1235 0 EOF", 0xfe, 0, Locks::no},
      {"lock:\t1: OFDLCK  ADVISORY  WRITE -1 fe:01:1234 0 EOF", 0xfe, 0, Locks::no},
      {"lock:\t1: OFDLCK  ADVISORY  WRITE -1 00:2a:1234 0 EOF", 0xfe, 0, Locks::no},
      {"lock:\t1: OFDLCK  ADVISORY  WRITE -1 fe:00:1234 0 EOF", 0, 42, Locks::no},
      {"lock:\t1: OFDLCK  ADVISORY  WRITE -1 00:2a:1234 0 EOF", 0, 42, Locks::yes},
      {"lock:\t1: OFDLCK  ADVISORY  WRITE -1 00:1f:1234 0 EOF", 0, 42, Locks::maybe},  // as on btrfs
      {"lock:\t1: OFDLCK  ADVISORY  WRITE -1 1234 0 EOF", 0xfe, 0, Locks::no},
      {"lock:\t1: OFDLCK  ADVISORY  WRITE -1 fe:1234 0 EOF", 0xfe, 0, Locks::no},
      {"lock:\t1: OFDLCK  ADVISORY  WRITE -1 fe:zz:1234 0 EOF", 0xfe, 0, Locks::no},
      {"mnt_id:\t1: OFDLCK  ADVISORY  WRITE -1 fe:00:1234 0 EOF", 0xfe, 0, Locks::no},
      {"lock:", 0xfe, 0, Locks::no},
  };
  for (const auto &row : rows) {
    struct stat file = {};
    file.st_ino = 1234;
    file.st_dev = makedev(row.major, row.minor);
    EXPECT_EQ(line_locks(row.line, file, range), row.locks) << row.line << " of " << row.major << ":" << row.minor;
  }
}

}  // namespace
}  // namespace st::os
