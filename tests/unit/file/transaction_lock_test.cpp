// Transactions and locks: what excludes what, and what is said about it.
#include <sys/file.h>

#include <algorithm>

#include "clock_env.h"
#include "commit_of_nothing.h"
#include "os/turnstile.h"
#include "store_scene.h"

namespace st::store {
namespace {

using namespace testing;

class TransactionLock : public testing::StoreScene {
 protected:
  // Another process, that holds part of the file.
  os::RangeLock hold(uint64_t begin, uint64_t length, bool exclusive = true) {
    auto lock = os::RangeLock::acquire(other, {{begin, length, exclusive}}, {});
    EXPECT_TRUE(is_ok(lock));
    return std::move(*lock);
  }
  os::File open_other() { return std::move(*os::File::open(env, AT_FDCWD, path, O_RDWR, 0, path)); }
  static TransactionOptions within(int32_t ms) {
    TransactionOptions options;
    options.lock_timeout_ms = ms;
    return options;
  }
  os::File other = open_other();
};

TEST_F(TransactionLock, BusyNamesTheTensorAndCommitMayBeTriedAgain) {
  auto c = open();
  auto t = begin(*c, within(0));
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
  ASSERT_TRUE(is_ok(t->update("b", value(*c, "b", new_b))));
  {
    const os::RangeLock held = hold(b_at + 5000, 1);
    for (int i = 0; i < 3; ++i) {
      auto busy = t->commit();
      ASSERT_TRUE(fails_with(Status::busy, busy));
      EXPECT_TRUE(busy.error().has_tensor);
      EXPECT_EQ(busy.error().tensor, "b");
      EXPECT_NE(busy.error().message.find("'b'"), std::string::npos);
    }
    EXPECT_TRUE(same_bytes(bytes_of(path), old));
    ASSERT_TRUE(is_ok(t->update("c", value(*c, "c", new_c))));  // still alive
  }
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}, {b_at, new_b}, {c_at, new_c}})));
  EXPECT_EQ(c->counters().lock_waits, 3u);
}

TEST_F(TransactionLock, BusyNamesTheTensorThatIsLockedInWhateverOrderTheyCame) {
  auto c = open();
  auto t = begin(*c, within(0));
  for (const auto &[name, bytes] : {std::pair("c", &new_c), std::pair("a", &new_a), std::pair("b", &new_b)})
    ASSERT_TRUE(is_ok(t->update(name, value(*c, name, *bytes))));
  for (const auto &[name, at] : {std::pair("a", data_offset), std::pair("b", b_at), std::pair("c", b_at + 10007)}) {
    const os::RangeLock held = hold(at, 1);
    auto busy = t->commit();
    ASSERT_TRUE(fails_with(Status::busy, busy));
    EXPECT_EQ(busy.error().tensor, name);
  }
  ASSERT_TRUE(is_ok(t->commit()));
}

// Then what lies between the nearest is locked with them. The error still names the process that is in the way.
TEST_F(TransactionLock, OfVeryManyTensorsTakeNoLockForEach) {
  constexpr size_t n = 16000, nbytes = 8;
  std::vector<testing::TestTensor> many;
  for (size_t i = 0; i < n; ++i) many.push_back(u8_tensor(text("t", i), i % 8 == 1 ? 3 * nbytes : nbytes, 1));
  testing::put_bytes(path, file_of(many));
  other = open_other();
  testing::FaultEnv counted(env);
  auto c = open(counted);
  const Snapshot &s = c->snapshot();
  const auto at = [&](size_t i) { return s.file_offset(s.header.index.at(i)); };
  auto t = begin(*c, within(0));
  const std::string fresh = pattern(nbytes, 9);
  for (size_t i = 0; i < n; i += 2)
    ASSERT_TRUE(is_ok(t->update(s.header.index.at(i).name, value(*c, s.header.index.at(i).name, fresh))));
  for (const size_t i : {size_t{4}, size_t{5}, size_t{7000}, n - 2}) {  // one of them lies between
    const os::RangeLock held = hold(at(i) + 3, 1);
    auto busy = t->commit();
    ASSERT_TRUE(fails_with(Status::busy, busy)) << i;
    EXPECT_EQ(busy.error().tensor, s.header.index.at(i).name);
  }
  const os::RangeLock held = hold(at(1) + 3, 1);  // where a gap is wide
  counted.calls.clear();
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_LT(std::count(counted.calls.begin(), counted.calls.end(), testing::Call::lock), 4200);
  EXPECT_EQ(seen(*c, many[n - 2].name), fresh);
  EXPECT_EQ(seen(*c, many[n - 1].name), many[n - 1].bytes);
}

TEST_F(TransactionLock, APublishIsToldThatAPartIsLocked) {
  auto c = open();
  TransactionOptions publish = within(0);
  publish.publish = true;
  const os::RangeLock held = hold(b_at, 1);
  auto busy = update(*c, "a", new_a, std::move(publish));
  ASSERT_TRUE(fails_with(Status::busy, busy));
  EXPECT_FALSE(busy.error().has_tensor);
  EXPECT_NE(busy.error().message.find("is changing a part"), std::string::npos) << busy.error().message;
}

TEST_F(TransactionLock, APublishIsToldThatAnotherWorksOnAll) {
  auto c = open();
  TransactionOptions publish = within(0);
  publish.publish = true;
  const os::RangeLock held = hold(0, os::whole_file_bytes);
  auto busy = update(*c, "a", new_a, std::move(publish));
  ASSERT_TRUE(fails_with(Status::busy, busy));
  EXPECT_NE(busy.error().message.find("is working on all of"), std::string::npos) << busy.error().message;
}

TEST_F(TransactionLock, APublishIsToldThatAnotherReadsAll) {
  auto c = open();
  TransactionOptions publish = within(0);
  publish.publish = true;
  const os::RangeLock held = hold(0, os::whole_file_bytes, false);
  auto busy = update(*c, "a", new_a, std::move(publish));
  ASSERT_TRUE(fails_with(Status::busy, busy));
  EXPECT_NE(busy.error().message.find("is reading all of"), std::string::npos) << busy.error().message;
}

TEST_F(TransactionLock, OthersTensorsDoNotMatter) {
  const os::RangeLock held = hold(b_at, 10007);
  EXPECT_TRUE(is_ok(update(*open(), "a", new_a, within(0))));
  EXPECT_TRUE(is_ok(update(*open(), "c", new_c, within(0))));
}

TEST_F(TransactionLock, AReaderOfTheHeaderDoesNotMatterButAPublisherDoes) {
  {
    const os::RangeLock reader = hold(0, data_offset, false);
    EXPECT_TRUE(is_ok(update(*open(), "a", new_a, within(0))));
  }
  const os::RangeLock publisher = hold(0, 1);
  auto busy = update(*open(), "a", new_a, within(0));
  ASSERT_TRUE(fails_with(Status::busy, busy));
  EXPECT_FALSE(busy.error().has_tensor);
}

TEST_F(TransactionLock, HoldsNothingUntilCommitAndNothingAfterIt) {
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
  hold(0, 0);
  ASSERT_TRUE(is_ok(t->commit()));
  hold(0, 0);
  t.reset();
}

TEST_F(TransactionLock, HoldsNothingAfterAFailure) {
  testing::FaultEnv faulty(env);
  auto c = open(faulty);
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
  faulty.before = [](testing::Call call) { return call == testing::Call::fdatasync ? -EIO : 0; };
  ASSERT_FALSE(t->commit());
  hold(0, 0);
}

TEST_F(TransactionLock, AFilesystemWithoutLocksCannotBeChanged) {
  class Lockless : public testing::FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int lock(int fd, int command, struct flock *l) override {
      return data_only && !is_data(fd) ? FaultEnv::lock(fd, command, l) : answer;
    }
    static bool is_data(int fd) {
      struct stat s;
      return ::fstat(fd, &s) == 0 && s.st_size > 17000 && s.st_size < 20000;
    }
    bool data_only = true;
    int answer = -ENOLCK;
  } lockless(env);
  auto c = open(lockless);
  EXPECT_TRUE(fails_with(Status::lock_unsupported, update(*c, "a", new_a)));
  lockless.answer = 0;  // every lock is granted to everybody
  auto second = open(lockless);
  EXPECT_TRUE(fails_with(Status::lock_unsupported, update(*second, "a", new_a)));
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

TEST_F(TransactionLock, FlockOfOthersDoesNotMatter) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  EXPECT_TRUE(is_ok(update(*open(), "a", new_a, within(0))));
  ::close(fd);
}

TEST_F(TransactionLock, AWaitForALockCanBeInterrupted) {
  testing::ClockEnv clock(env);
  auto c = open(clock);
  clock.on_sleep = [&] {
    if (clock.sleeps == 10) c->interrupt();
  };
  const os::RangeLock held = hold(a_at, 1);
  EXPECT_TRUE(fails_with(Status::interrupted, update(*c, "a", new_a, within(-1))));
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

// So that the next publish finds them at the new file.
TEST_F(TransactionLock, APublishEndsWhenThoseWhoWaitedAtTheOldFileHaveLeftIt) {
  testing::ClockEnv clock(env);
  os::RangeLock waits;
  clock.on_sleep = [&] {
    if (clock.sleeps == 3) waits.release();
  };
  auto c = open(clock);
  TransactionOptions options;
  options.publish = true;
  auto t = begin(*c, std::move(options));
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
  t->before_change([&](auto) {
    waits = hold(os::waiting_patches.begin, 1, false);
    return Result<void>();
  });
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(clock.sleeps, 3u);
}

TEST_F(TransactionLock, ACommitOfNothingAsksAllTheSame) {
  auto c = open();
  testing::expect_that_a_commit_of_nothing_asks([&] { return begin(*c); });
}

TEST_F(TransactionLock, AJournalThatWaitsIsFinishedBeforeTheCommit) {
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
  ASSERT_NE(leave({{b_at, new_b}}, true), "");  // a neighbour crashes
  testing::poke(path, b_at, new_b.substr(0, 512 - b_at % 512));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}, {b_at, new_b}})));
  EXPECT_EQ(c->counters().recoveries, 1u);
}

// A process that is killed loses its locks one by one. Once its tensor can be
// locked it is gone, even if its journal's lock is still to be seen.
TEST_F(TransactionLock, AJournalOfADyingWriterIsFinishedThoughItIsStillLocked) {
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("b", value(*c, "b", new_b))));
  const auto dying = make_journal({{a_at, new_a}, {b_at, testing::pattern(10007, 99)}}, true);
  ASSERT_TRUE(dying);
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(c->counters().recoveries, 1u);
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}, {b_at, new_b}})));
}

// On other tensors it may be alive.
TEST_F(TransactionLock, AJournalOfALivingNeighbourIsLeftAlone) {
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("b", value(*c, "b", new_b))));
  const auto neighbour = make_journal({{a_at, new_a}, {c_at, new_c}}, true);
  ASSERT_TRUE(neighbour);
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(c->counters().recoveries, 0u);
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{b_at, new_b}})));
}

// The older change of the same tensor first, so that it cannot come back later.
TEST_F(TransactionLock, AJournalOfTheSameTensorIsFinishedFirstAndThenOverwritten) {
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("b", value(*c, "b", new_b))));
  ASSERT_NE(leave({{b_at, testing::pattern(10007, 99)}}, true), "");
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{b_at, new_b}})));
  t.reset();
  c.reset();
  EXPECT_EQ(recover().value().applied, 0u);
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{b_at, new_b}})));
}

}  // namespace
}  // namespace st::store
