// A host loses its locks amid a commit, as it was frozen or cut off, and goes on when another host has changed the
// file. Or it goes on while the other is at it. What stays open is a request that was sent after the last question
// (core/journal/README.md), so nobody is frozen there.
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "has_record.h"
#include "stale_env.h"
#include "store_scene.h"

namespace st::store {
namespace {

using testing::Call;
using testing::is_ok;
using testing::pattern;
using testing::put_bytes;
using testing::StaleEnv;

// Two threads, of which one goes on at a time.
class Relay {
 public:
  void give_and_wait(int to) {
    std::unique_lock guard(mutex_);
    const int self = turn_;
    turn_ = to;
    changed_.notify_all();
    changed_.wait(guard, [&] { return turn_ == self || over_; });
  }
  void await(int self) {
    std::unique_lock guard(mutex_);
    changed_.wait(guard, [&] { return turn_ == self || over_; });
  }
  void finish() {
    std::lock_guard guard(mutex_);
    over_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = 0;
  bool over_ = false;
};

class Fencing : public testing::StoreScene {
 protected:
  using Pair = std::pair<std::string, std::string>;  // of tensors a and c, which always change together

  static Result<void> update_both(DataFile &c, const Pair &to, bool commit = true) {
    TransactionOptions options;
    options.lock_timeout_ms = 0;
    auto begun = Transaction::begin(c, std::move(options));
    if (!begun) return Failure(std::move(begun.error()));
    ST_TRY((*begun)->update("a", value(c, "a", to.first)));
    ST_TRY((*begun)->update("c", value(c, "c", to.second)));
    return commit ? (*begun)->commit() : Result<void>();
  }
  static Pair both(const DataFile &c) { return {seen(c, "a"), seen(c, "c")}; }
  Pair now(os::Env &host) {
    auto judge = open(host, {});
    return judge ? both(*judge) : Pair{};
  }
  static bool is_refused(const Result<void> &done) { return !done && done.error().status != Status::needs_recovery; }
  static std::function<int(Call)> at(size_t n, std::function<int()> what) {
    return [n, what = std::move(what), so_far = size_t{0}](Call) mutable { return so_far++ == n ? what() : 0; };
  }

  // The calls of one commit on a handle that has a parked journal: how many there are, and which come after the last
  // question and before the data are durable.
  struct Course {
    size_t calls, record, from, to;
    bool is_in_flight(size_t n) const { return n >= from && n <= to; }
  };
  Course course() {
    StaleEnv host(env);
    put_bytes(path, old);
    auto file = open(host);
    EXPECT_TRUE(is_ok(update_both(*file, mine)));
    host.calls.clear();
    EXPECT_TRUE(is_ok(update_both(*file, theirs)));
    const auto &calls = host.calls;
    std::vector<size_t> syncs;
    for (size_t i = 0; i < calls.size(); ++i)
      if (calls[i] == Call::fdatasync) syncs.push_back(i);
    const size_t data = syncs[syncs.size() - 2], emptied = syncs.back();
    EXPECT_GT(emptied, data);
    size_t question = data;
    while (question > 0 && calls[question] != Call::renew_name) --question;  // and looked up after that
    size_t record = syncs[syncs.size() - 3];
    while (record > 0 && calls[record] != Call::pwrite) --record;
    EXPECT_GT(record, 0u);
    EXPECT_GT(question, record);
    return {calls.size(), record, question + 1, data};
  }

  const Pair mine{new_a, new_c}, theirs{pattern(4000, 81), pattern(3000, 82)},
      third{pattern(4000, 83), pattern(3000, 84)}, fourth{pattern(4000, 85), pattern(3000, 86)};
};

// It goes on when the other is done, and then may die at any call. What the other has shown before its own change is
// over.
TEST_F(Fencing, AHostThatWasFrozenAmidACommitLeavesNoHalfOfIt) {
  const Course course = this->course();
  size_t tried = 0, refused = 0;
  for (size_t n = 0; n < course.calls; ++n) {
    if (course.is_in_flight(n)) continue;
    bool died = true;
    for (size_t m = 1; died; m += 1 + m / 8) {
      StaleEnv one(env), two(env);
      put_bytes(path, old);
      auto file = open(two);
      ASSERT_TRUE(is_ok(update_both(*file, third)));
      died = false;
      bool shown = false;
      size_t so_far = 0;
      two.before = [&](Call call) {
        const size_t i = so_far++;
        if (i == n) {
          two.lose_locks();
          auto other = open(one);
          shown = both(*other) == theirs;
          EXPECT_TRUE(is_ok(update_both(*other, mine))) << n;
        }
        died |= i >= n + m && testing::can_fail(call);
        return died && testing::can_fail(call) ? -EIO : 0;
      };
      const auto done = update_both(*file, theirs);
      file.reset();
      two.before = {};
      const Pair at_last = now(one);
      EXPECT_TRUE(at_last == mine || (at_last == theirs && !shown)) << n << ", then " << m;
      ASSERT_FALSE(HasFailure()) << n << ", then " << m;
      refused += !done;
      ++tried;
    }
  }
  EXPECT_GT(refused, 0u);
  EXPECT_GT(tried, 100u);
}

// The other is amid its own commit, or amid recovery, when the first goes on, ends, and stages another change.
TEST_F(Fencing, AHostThatWakesUpAmidARecoverySpoilsNothing) {
  const Course course = this->course();
  size_t tried = 0;
  for (size_t n = course.calls / 4; n < course.calls; ++n) {
    if (course.is_in_flight(n)) continue;
    bool reached = true;
    for (size_t k = n % 7; reached; k += 7) {
      StaleEnv one(env), two(env);
      put_bytes(path, old);
      auto file = open(two);
      ASSERT_TRUE(is_ok(update_both(*file, third)));
      Relay relay;
      two.before = at(n, [&] {
        two.lose_locks();
        relay.give_and_wait(1);
        return 0;
      });
      Result<void> woken;
      std::thread frozen([&] {
        woken = update_both(*file, theirs);
        two.before = {};
        static_cast<void>(update_both(*file, fourth, false));
        relay.give_and_wait(1);
      });
      relay.await(1);
      reached = false;
      one.before = at(k, [&] {
        reached = true;
        relay.give_and_wait(0);
        return 0;
      });
      {
        auto other = open(one);
        const auto done = other ? update_both(*other, mine) : Result<void>();
        // As soon as its record is durable, the first may take that over, and carry it out.
        EXPECT_TRUE(done || done.error().status == Status::busy || done.error().status == Status::needs_recovery)
            << n << ", " << k << ": " << done.error().message;
      }
      one.before = {};
      relay.finish();
      frozen.join();
      file.reset();
      const Pair at_last = now(one);
      EXPECT_TRUE(at_last == mine || at_last == theirs || at_last == third) << n << ", " << k;
      EXPECT_FALSE(is_refused(woken) && at_last == theirs) << n << ", " << k;
      ASSERT_FALSE(HasFailure()) << n << ", " << k;
      ++tried;
    }
  }
  EXPECT_GT(tried, 100u);
}

// It commits when the other has found its journal idle, and dies with half of the data written. The other finds the
// journal when it opens the file, or when it commits.
TEST_F(Fencing, AJournalThatWasIdleIsReadOnceMoreWhenItIsClaimed) {
  const Course course = this->course();
  for (const bool is_open : {false, true}) {
    StaleEnv one(env), two(env);
    put_bytes(path, old);
    auto file = open(two);
    ASSERT_TRUE(is_ok(update_both(*file, third)));
    auto other = is_open ? open(one) : nullptr;
    Relay relay;
    size_t so_far = 0, written = 0;
    two.before = [&](Call call) {
      if (so_far++ == course.record) {
        two.lose_locks();
        relay.give_and_wait(1);
      }
      if (so_far > course.record && call == Call::pwrite) ++written;
      return written > 2 && testing::can_fail(call) ? -EIO : 0;  // the record, and the first tensor
    };
    std::thread frozen([&] {
      EXPECT_FALSE(update_both(*file, theirs));
      relay.give_and_wait(1);
    });
    relay.await(1);
    bool claimed = false;
    one.before = [&](Call call) {
      if (call == Call::renameat && !std::exchange(claimed, true)) relay.give_and_wait(0);
      return 0;
    };
    if (!other) other = open(one);
    EXPECT_TRUE(is_ok(update(*other, "b", new_b)));
    one.before = {};
    relay.finish();
    frozen.join();
    file.reset();
    EXPECT_TRUE(claimed);
    EXPECT_TRUE(now(one) == theirs) << is_open;
  }
}

// Its record is durable, and the other is about to carry it out.
TEST_F(Fencing, ARecordThatAnotherHasClaimedIsNotTakenBack) {
  const Course course = this->course();
  StaleEnv one(env), two(env);
  put_bytes(path, old);
  auto file = open(two);
  ASSERT_TRUE(is_ok(update_both(*file, third)));
  Relay relay;
  size_t so_far = 0;
  bool asks = false;
  two.before = [&](Call call) {
    if (so_far++ > course.record && call == Call::renew_name && !std::exchange(asks, true)) {
      two.lose_locks();
      relay.give_and_wait(1);
    }
    return 0;
  };
  Result<void> woken;
  std::thread frozen([&] {
    woken = update_both(*file, theirs);
    relay.give_and_wait(1);
  });
  relay.await(1);
  bool found = false;
  one.before = [&](Call call) {
    if (call == Call::pwrite && !std::exchange(found, true)) relay.give_and_wait(0);
    return 0;
  };
  auto other = open(one);
  one.before = {};
  relay.finish();
  frozen.join();
  file.reset();
  EXPECT_TRUE(found);
  EXPECT_FALSE(woken);
  EXPECT_FALSE(is_refused(woken));
  EXPECT_TRUE(both(*other) == theirs);
}

// The one that recovers is frozen, too, and a third goes on from there.
TEST_F(Fencing, AFrozenRecovererLeavesWhatAnotherTookOver) {
  const Course course = this->course();
  const auto record_left = [&] {
    put_bytes(path, old);
    size_t so_far = 0;
    StaleEnv dead(env);
    auto file = open(dead);
    EXPECT_TRUE(is_ok(update_both(*file, third)));
    dead.before = [&](Call call) { return so_far++ > course.from && testing::can_fail(call) ? -EIO : 0; };
    EXPECT_FALSE(update_both(*file, theirs));
  };
  record_left();
  std::vector<Call> calls;
  {
    StaleEnv one(env);
    open(one);
    calls = one.calls;
  }
  std::vector<size_t> syncs;
  for (size_t i = 0; i < calls.size(); ++i)
    if (calls[i] == Call::fdatasync) syncs.push_back(i);
  ASSERT_EQ(syncs.size(), 3u);  // the record is confirmed, the data are durable, the journal is empty
  size_t question = syncs[1];
  while (question > 0 && calls[question] != Call::renew_name) --question;
  ASSERT_GT(question, syncs[0]);
  for (size_t n = 0; n < calls.size(); ++n) {
    if (n > question && n <= syncs[1]) continue;  // in flight
    record_left();
    StaleEnv one(env), other(env);
    one.before = at(n, [&] {
      one.lose_locks();
      EXPECT_TRUE(is_ok(update_both(*open(other), mine)));
      return 0;
    });
    static_cast<void>(DataFile::open(one, path, writable()));
    one.before = {};
    EXPECT_TRUE(now(other) == mine) << n;
  }
}

// Between two of the writes that a large tensor takes.
TEST_F(Fencing, AHostThatWasFrozenAmidALongWriteWritesNoMore) {
  const size_t n = size_t{7} << 19;
  const std::string were = pattern(n, 1), theirs = pattern(n, 2), mine = pattern(n, 3);
  enum class Frozen { commit, recovery };
  for (const Frozen what : {Frozen::commit, Frozen::recovery}) {
    size_t k = 0;
    for (bool reached = true; reached; ++k) {
      StaleEnv one(env), two(env), dead(env);
      put_bytes(path, testing::file_of(std::vector{testing::u8_tensor("big", n, 1)}));
      std::unique_ptr<DataFile> file = what == Frozen::commit ? open(two) : nullptr;
      if (what == Frozen::recovery) {  // a record that waits
        size_t written = 0;
        auto dying = open(dead);
        dead.at_clock = [&] { written += testing::has_record(path); };
        dead.before = [&](Call call) { return written > 2 && testing::can_fail(call) ? -EIO : 0; };
        EXPECT_FALSE(update(*dying, "big", theirs));
        dying.reset();
      }
      size_t so_far = 0;
      reached = false;
      two.at_clock = [&] {
        if (!testing::has_record(path)) return;
        if (so_far++ != k) return;
        reached = true;
        two.lose_locks();
        EXPECT_TRUE(is_ok(update(*open(one), "big", mine)));
        two.frozen_ms += 60000;
      };
      const Result<void> done = file ? update(*file, "big", theirs) : Result<void>();
      if (!file) static_cast<void>(DataFile::open(two, path, writable()));
      two.at_clock = {};
      EXPECT_EQ(reached && file, !done);
      file.reset();
      const auto judge = open(one, {});
      std::string found(n, '\0');
      EXPECT_TRUE(judge && is_ok(judge->read(judge->snapshot(), 0, found.data())));
      EXPECT_TRUE(found == (reached ? mine : theirs)) << k;
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_GE(k, 4u);
  }
}

}  // namespace
}  // namespace st::store
