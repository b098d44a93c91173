// The turnstile step by step: what each holds while it waits, and which goes first.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock_env.h"
#include "os/lock_holder.h"
#include "os/turnstile.h"
#include "test_files.h"

namespace st::os {
namespace {

using testing::Call;
using namespace testing;

constexpr int32_t patient = 60'000;  // of a clock that only sleeping moves

// What is asked and locked.
class Watch : public ClockEnv {
 public:
  using ClockEnv::ClockEnv;
  int lock(int fd, int command, struct flock *l) override {
    if (l->l_type != F_UNLCK) (command == F_OFD_GETLK ? asked : taken).push_back(l->l_start);
    if (turnstile_errno != 0 && l->l_start >= static_cast<off_t>(turnstile_begin)) return -turnstile_errno;
    if (is_silent && command == F_OFD_GETLK) return 0;
    return ClockEnv::lock(fd, command, l);
  }
  std::vector<off_t> asked, taken;
  int turnstile_errno = 0;
  bool is_silent = false;  // answers no question, as some daemons do
};

class TurnstileSteps : public ::testing::Test {
 protected:
  static std::string made(const std::string &path) {
    testing::put_bytes(path, std::string(1000, 'x'));
    return path;
  }
  File open() { return std::move(*File::open(env, AT_FDCWD, path, O_RDWR, 0, path)); }
  Turnstile turnstile() {
    return Turnstile([this](const File &file) { return was_replaced(file, path).value_or(false); });
  }
  // For one that comes for the first time. The file was not replaced.
  Result<RangeLock> pass(const File &file, std::vector<LockRange> ranges, int32_t timeout_ms = 0,
                         const Control *control = nullptr) {
    RangeLock lock;
    Turnstile here = turnstile();
    auto had = here.lock(file, std::move(ranges), {timeout_ms, control, nullptr}, &lock);
    if (!had) return Failure(std::move(had.error()));
    EXPECT_TRUE(*had);
    return lock;
  }
  Result<RangeLock> write(const File &file, int32_t timeout_ms = 0) {
    return pass(file, {whole_file(true)}, timeout_ms);
  }
  Result<RangeLock> patch(const File &file, uint64_t tensor, int32_t timeout_ms = 0) {
    return pass(file, {{0, 100, false}, {tensor, 50, true}}, timeout_ms);
  }
  // Somebody else's lock, by hand.
  RangeLock hold(const File &file, const LockRange &range) {
    auto lock = RangeLock::acquire(file, {range}, {});
    EXPECT_TRUE(is_ok(lock));
    return std::move(*lock);
  }
  bool is_held(const LockRange &range) { return is_locked(looker, {range.begin, range.length, true}).value(); }

  TempDir dir;
  const std::string path = made(dir / "f");
  Watch env{Env::posix()};
  File a = open(), b = open(), c = open(), looker = open();
};

TEST_F(TurnstileSteps, TheWholeFileLeavesItAlone) {
  const auto whole = write(a);
  ASSERT_TRUE(is_ok(whole));
  EXPECT_FALSE(is_held(turnstile_bytes));
  EXPECT_TRUE(is_held({whole_file_bytes - 1, 1, true}));
}

TEST_F(TurnstileSteps, IfNobodyWaitsItCostsOneQuestion) {
  const auto patched = patch(a, 200);
  ASSERT_TRUE(is_ok(patched));
  EXPECT_EQ(env.asked, (std::vector<off_t>{gate_byte.begin}));
  EXPECT_EQ(env.taken, (std::vector<off_t>{0, 200}));
  env.asked.clear(), env.taken.clear();
  const File other = open();
  testing::put_bytes(dir / "g", "g");
  File alone = std::move(*File::open(env, AT_FDCWD, dir / "g", O_RDWR, 0, dir / "g"));
  ASSERT_TRUE(is_ok(write(alone)));
  EXPECT_EQ(env.asked, (std::vector<off_t>{turnstile_begin}));
  EXPECT_EQ(env.taken, (std::vector<off_t>{0}));
}

TEST_F(TurnstileSteps, RangesThatTouchAndAreFreeTakeOneCall) {
  const auto patched = pass(a, {{0, 100, false}, {100, 50, true}, {150, 50, true}, {200, 50, true}, {300, 50, true}});
  ASSERT_TRUE(is_ok(patched));
  EXPECT_EQ(env.taken, (std::vector<off_t>{0, 100, 300}));
  EXPECT_FALSE(is_held({250, 50, true}));
  EXPECT_TRUE(is_held({200, 50, true}));
  EXPECT_TRUE(is_ok(pass(b, {{0, 100, false}})));  // what is shared stays so
}

// Or others that come and go could keep it out by turns.
TEST_F(TurnstileSteps, OfRangesThatTouchThoseThatAreFreeAreHeldWhileAnotherIsNot) {
  RangeLock tensor = hold(a, {200, 50, true});
  env.on_sleep = [&] {
    EXPECT_TRUE(is_held({100, 50, true}));
    EXPECT_TRUE(is_held({150, 50, true}));
    EXPECT_FALSE(is_held({250, 50, true}));
    tensor.release();
  };
  env.taken.clear();
  const auto patched =
      pass(b, {{0, 100, false}, {100, 50, true}, {150, 50, true}, {200, 50, true}, {250, 50, true}}, patient);
  ASSERT_TRUE(is_ok(patched));
  EXPECT_EQ(env.taken, (std::vector<off_t>{0, 100, 100, 150, 200, 200, 250}));  // the run is tried once
}

TEST_F(TurnstileSteps, NoPatchBeginsWhileAWriterWaitsForThoseUnderWay) {
  auto under_way = patch(a, 200);
  ASSERT_TRUE(is_ok(under_way));
  bool tried = false;
  env.on_sleep = [&] {
    if (std::exchange(tried, true)) return;
    env.on_sleep = {};
    EXPECT_TRUE(is_held(gate_byte));
    EXPECT_TRUE(fails_with(Status::busy, patch(c, 300)));
    under_way->release();
  };
  ASSERT_TRUE(is_ok(write(b, patient)));
  EXPECT_TRUE(tried);
  EXPECT_TRUE(is_ok(patch(c, 300)));
}

// It takes all of the file, and not for itself alone.
TEST_F(TurnstileSteps, NoPatchBeginsWhileACopyWaitsForThoseUnderWay) {
  auto under_way = std::make_unique<RangeLock>(hold(c, {200, 50, true}));
  const File d = open();
  RangeLock lock;  // of d: dies first
  bool met = false;
  env.on_sleep = [&] {
    if (!is_held(gate_byte) || std::exchange(met, true)) return;
    EXPECT_TRUE(fails_with(Status::busy, patch(a, 400)));
    under_way.reset();
  };
  Turnstile here([this](const File &file) { return was_replaced(file, path).value_or(false); }, Turnstile::As::writer);
  const auto had = here.lock(d, {whole_file(false)}, {patient, nullptr, nullptr}, &lock);
  ASSERT_TRUE(is_ok(had));
  EXPECT_TRUE(*had && met);
  EXPECT_FALSE(is_held(turnstile_bytes));
}

TEST_F(TurnstileSteps, AWriterThatHasTheFileHoldsNothingHere) {
  auto under_way = patch(a, 200);
  env.on_sleep = [&] { under_way->release(); };
  const auto whole = write(b, patient);
  ASSERT_TRUE(is_ok(whole));
  EXPECT_FALSE(is_held(turnstile_bytes));
}

TEST_F(TurnstileSteps, AWriterWithoutTimeToWaitClosesNothing) {
  const auto under_way = patch(a, 200);
  env.taken.clear();
  EXPECT_TRUE(fails_with(Status::busy, write(b)));
  EXPECT_EQ(env.taken, (std::vector<off_t>{0}));
}

TEST_F(TurnstileSteps, AWriterLetsThosePatchesInThatWaited) {
  RangeLock waits = hold(a, waiting_patches);
  size_t looked = 0;
  env.on_sleep = [&] {
    EXPECT_FALSE(is_held(gate_byte));
    if (++looked == 5) waits.release();
  };
  ASSERT_TRUE(is_ok(write(b, patient)));
  EXPECT_EQ(looked, 5u);
}

TEST_F(TurnstileSteps, APatchHoldsNothingOfTheFileWhileItWaits) {
  RangeLock closed = hold(a, gate_byte);
  env.on_sleep = [&] {
    EXPECT_FALSE(is_held(whole_file(true)));
    EXPECT_TRUE(is_held(waiting_patches));
    closed.release();
  };
  const auto in = patch(b, 200, patient);
  ASSERT_TRUE(is_ok(in));
  EXPECT_FALSE(is_held(turnstile_bytes));
  EXPECT_TRUE(is_held({200, 50, true}));
}

TEST_F(TurnstileSteps, APatchThatWaitsForATensorStepsBackForAWriter) {
  RangeLock tensor = hold(a, {300, 50, true}), closed;
  size_t slept = 0;
  env.on_sleep = [&] {
    switch (++slept) {
      case 1:
        EXPECT_TRUE(is_held({0, 250, true}));  // the header and its first tensor
        closed = hold(c, gate_byte);
        break;
      case 2:
        tensor.release();
        EXPECT_FALSE(is_held(whole_file(true)));
        EXPECT_TRUE(is_held(waiting_patches));
        break;
      default: closed.release();
    }
  };
  const auto in = pass(b, {{0, 100, false}, {200, 50, true}, {300, 50, true}}, patient);
  ASSERT_TRUE(is_ok(in));
  EXPECT_GE(slept, 3u);
}

TEST_F(TurnstileSteps, WritersWaitOneAfterTheOther) {
  RangeLock first = hold(a, queue_byte);
  env.on_sleep = [&] {
    EXPECT_TRUE(is_held(waiting_writers));
    EXPECT_FALSE(is_held(gate_byte));
    first.release();
  };
  ASSERT_TRUE(is_ok(write(b, patient)));
  EXPECT_FALSE(is_held(turnstile_bytes));
}

TEST_F(TurnstileSteps, APlaceIsKeptUntilThereIsOneAtTheFileThatCameInstead) {
  for (const bool writes : {false, true}) {
    File old = open();
    RangeLock whole = hold(a, whole_file(true));
    env.on_sleep = [&] {
      testing::replace_by(path, std::string(1000, 'y'));
      env.on_sleep = {};
    };
    const std::vector<LockRange> ranges =
        writes ? std::vector{whole_file(true)} : std::vector<LockRange>{{0, 100, false}};
    const LockRange &flag = writes ? waiting_writers : waiting_patches;
    Turnstile mine = turnstile();
    RangeLock lock;
    EXPECT_FALSE(mine.lock(old, ranges, {patient, nullptr, nullptr}, &lock).value());
    mine.keep(std::move(old));
    EXPECT_TRUE(is_locked(a, {flag.begin, 1, true}).value());
    EXPECT_FALSE(is_locked(a, {queue_byte.begin, 1, true}).value());
    EXPECT_FALSE(is_locked(a, {gate_byte.begin, 1, true}).value());

    File fresh = open(), other = open();
    RangeLock publisher = hold(other, whole_file(true));
    env.on_sleep = [&] {
      EXPECT_FALSE(is_locked(a, turnstile_bytes).value());
      EXPECT_TRUE(is_locked(other, {flag.begin, 1, true}).value());
      publisher.release();
    };
    env.taken.clear();
    EXPECT_TRUE(mine.lock(fresh, ranges, {patient, nullptr, nullptr}, &lock).value());
    EXPECT_EQ(env.taken.front(), static_cast<off_t>(flag.begin));  // before all else
    lock.release();
    env.on_sleep = {};
    whole.release();
    a = open(), looker = open();
  }
}

TEST_F(TurnstileSteps, AReplacedFileIsHandedOverToThoseWhoWaitThere) {
  RangeLock whole = hold(a, whole_file(true)), patch_waits = hold(b, waiting_patches),
            writer_waits = hold(c, waiting_writers);
  size_t slept = 0;
  env.on_sleep = [&] {
    EXPECT_FALSE(is_held(whole_file(true)));
    if (++slept == 3) patch_waits.release();
    if (slept == 6) writer_waits.release();
  };
  hand_over(a, whole);
  EXPECT_EQ(slept, 6u);
}

TEST_F(TurnstileSteps, AStoppedWaiterDelaysAPublishByATenthOfASecondAtMost) {
  RangeLock whole = hold(a, whole_file(true));
  const RangeLock stopped = hold(b, waiting_patches);
  const uint64_t begin = env.now_us;
  hand_over(a, whole);
  EXPECT_LE(env.now_us - begin, 100'000u);
}

// The sentence and the number that a program is given.
TEST_F(TurnstileSteps, AStoppedWaiterCostsOthersTheirTimeAndIsNamed) {
  for (const LockRange &byte : {gate_byte, queue_byte, waiting_patches}) {
    int told[2];
    ASSERT_EQ(::pipe(told), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
      struct flock lock = {};
      lock.l_type = byte.exclusive ? F_WRLCK : F_RDLCK;
      lock.l_whence = SEEK_SET;
      lock.l_start = static_cast<off_t>(byte.begin);
      lock.l_len = 1;
      if (::fcntl(fd, F_OFD_SETLK, &lock) != 0) ::_exit(1);
      if (::write(told[1], "h", 1) == 1) ::pause();
      ::_exit(1);
    }
    ::close(told[1]);  // so that a child that fails ends the read
    char letter = 0;
    ASSERT_EQ(::read(told[0], &letter, 1), 1);
    const bool is_gate = byte.begin == gate_byte.begin;
    auto busy = is_gate ? patch(a, 200, 3000) : write(a, 3000);
    ASSERT_TRUE(fails_with(Status::busy, busy));
    EXPECT_EQ(busy.error().offset, byte.begin);
    const Error named = tell_holder(std::move(busy.error()), a, whole_file(true));
    EXPECT_EQ(named.holder_pid, child);
    EXPECT_NE(named.message.find(std::to_string(child)), std::string::npos) << named.message;
    EXPECT_EQ(named.offset, no_offset);
    EXPECT_FALSE(is_held(whole_file(true)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(told[0]);
    EXPECT_TRUE(is_ok(write(a)));
  }
}

TEST_F(TurnstileSteps, AWaitCanBeInterrupted) {
  const RangeLock closed = hold(a, gate_byte);
  std::atomic<uint64_t> interrupts = 0;
  env.on_sleep = [&] { ++interrupts; };
  for (const bool writes : {false, true}) {
    const Control control({}, &interrupts);
    const LockRange first = writes ? whole_file(true) : LockRange{0, 100, false};
    EXPECT_TRUE(fails_with(Status::interrupted, pass(b, {first}, -1, &control)));
    EXPECT_FALSE(is_held({queue_byte.begin, 3, true}));
  }
}

// An order is not worth a failure: the locks on the file's own bytes exclude.
TEST_F(TurnstileSteps, WhereItCannotBeLockedThereIsNoOrderAndNoFailure) {
  for (const int error : {EINVAL, ENOLCK, EOPNOTSUPP, EOVERFLOW}) {
    env.turnstile_errno = error;
    auto under_way = patch(a, 200);
    ASSERT_TRUE(is_ok(under_way)) << error;
    env.on_sleep = [&] { under_way->release(); };
    EXPECT_TRUE(is_ok(write(b, patient))) << error;
  }
  env.turnstile_errno = EIO;
  EXPECT_TRUE(fails_with(Status::io, patch(a, 200)));
}

TEST_F(TurnstileSteps, WhoseQuestionsAreNotAnsweredTries) {
  env.is_silent = true;
  EXPECT_TRUE(is_ok(patch(a, 200)));
  EXPECT_TRUE(is_ok(write(b, 1000)));
  const RangeLock closed = hold(c, gate_byte);
  EXPECT_TRUE(fails_with(Status::busy, patch(a, 200)));
}

}  // namespace
}  // namespace st::os
