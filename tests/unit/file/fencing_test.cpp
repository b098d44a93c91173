// A host loses its locks amid a commit, as it was frozen or cut off, and goes on when another host has changed the
// file. Or it goes on while the other is at it. What stays open is a request that was sent after the last question
// (core/journal/README.md), so nobody is frozen there.
#include <condition_variable>
#include <mutex>
#include <thread>

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
  Pair now(os::Env &host) {
    auto judge = open(host, {});
    return judge ? Pair{seen(*judge, "a"), seen(*judge, "c")} : Pair{};
  }
  static std::function<int(Call)> at(size_t n, std::function<int()> what) {
    return [n, what = std::move(what), so_far = size_t{0}](Call) mutable { return so_far++ == n ? what() : 0; };
  }

  // The calls of one commit on a handle that has a parked journal: how many there are, and which come after the last
  // question and before the data are durable.
  struct Course {
    size_t calls, from, to;
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
    EXPECT_GT(question, 0u);
    return {calls.size(), question + 1, data};
  }

  const Pair mine{new_a, new_c}, theirs{pattern(4000, 81), pattern(3000, 82)},
      third{pattern(4000, 83), pattern(3000, 84)};
};

// It goes on when the other is done, and then may die at any call.
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
      size_t so_far = 0;
      two.before = [&](Call call) {
        const size_t i = so_far++;
        if (i == n) {
          two.lose_locks();
          EXPECT_TRUE(is_ok(update_both(*open(one), mine))) << n;
        }
        died |= i >= n + m && testing::can_fail(call);
        return died && testing::can_fail(call) ? -EIO : 0;
      };
      const auto done = update_both(*file, theirs);
      file.reset();
      two.before = {};
      const Pair at_last = now(one);
      EXPECT_TRUE(at_last == mine || at_last == theirs) << n << ", then " << m;
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
      std::thread frozen([&] {
        static_cast<void>(update_both(*file, theirs));
        two.before = {};
        static_cast<void>(update_both(*file, third, false));
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
        EXPECT_TRUE(done || done.error().status == Status::busy) << n << ", " << k << ": " << done.error().message;
      }
      one.before = {};
      relay.finish();
      frozen.join();
      file.reset();
      const Pair at_last = now(one);
      EXPECT_TRUE(at_last == mine || at_last == theirs || at_last == third) << n << ", " << k;
      ASSERT_FALSE(HasFailure()) << n << ", " << k;
      ++tried;
    }
  }
  EXPECT_GT(tried, 100u);
}

}  // namespace
}  // namespace st::store
