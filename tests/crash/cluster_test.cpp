// Two hosts of a simulated cluster. At each system call of the first something happens to it, or to the server, and the
// second does its work. Then the first goes on, if it lives, and both change the file once more. In the end there is a
// serial order of all that was answered, and no journal was taken for damaged.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>

#include "bound.h"
#include "cluster_scene.h"
#include "engine/recover_all.h"
#include "test_files.h"
#include "workload.h"

namespace st::testing {
namespace {

// What the first is at, when it has committed a change before; or it recovers what a third has left.
enum class First { patch, publish, recovery };
enum class Second { patch, patch_of_the_same_page, publish, recovery };
enum class Moment {
  nothing_happens,     // but that the second comes in between
  amid_a_write,        // of whole pages
  it_dies,             //
  it_dies_afterwards,  // when the second has tried its luck
  it_dies_unnoticed,   // so that the server goes on to hold its locks for a while
  it_is_frozen,        // until the server has given its locks away
  it_is_fenced,        // the same, and the server refuses what needs a lock from then on
  a_lock_comes_late,   // when the first has given up waiting for the answer
  the_server_restarts,
  the_server_restarts_and_forgets,  // what was not synced
};
constexpr const char *name_of(First first) {
  return std::array{"patch", "publish", "recovery"}[static_cast<size_t>(first)];
}
constexpr const char *name_of(Second second) {
  return std::array{"patch", "patch of the same page", "publish", "recovery"}[static_cast<size_t>(second)];
}
constexpr const char *name_of(Moment moment) {
  return std::array{"nothing happens",
                    "it is amid a write",
                    "it dies",
                    "it dies after the second",
                    "it dies unnoticed",
                    "it is frozen",
                    "it is fenced",
                    "a lock comes late",
                    "the server restarts",
                    "the server restarts and forgets"}[static_cast<size_t>(moment)];
}

class Trial {
 public:
  Trial(First first, Second second, bool was_open, Moment moment, size_t at, ClusterHost::Client by)
      : first_(first),
        second_(second),
        moment_(moment),
        at_(at),
        late_(moment == Moment::it_is_fenced ? LateRequests::refused : LateRequests::taken),
        one_(scene_.server, late_, by),
        two_(scene_.server, LateRequests::taken, by),
        by_(by),
        was_open_(was_open) {}

  std::string run() {
    prepare();
    act();
    if (wrong_.empty() && reached_ && !is_exempt()) finish();
    file_of_one_.reset();
    file_of_two_.reset();
    if (!wrong_.empty() || !reached_ || is_exempt()) return wrong_;
    return scene_.why_wrong();
  }
  bool reached() const { return reached_; }
  // core/journal/README.md: what was in flight under lost locks.
  bool is_exempt() const { return one_.wrote_late() || two_.wrote_late(); }

 private:
  using Handle = std::unique_ptr<store::DataFile>;

  void expect(const Result<void> &done, const char *what) {
    if (!done && wrong_.empty()) wrong_ = std::string(what) + ": " + done.error().message;
  }
  Handle opened(ClusterHost &host) {
    auto file = ClusterScene::open(host);
    if (file) return std::move(*file);
    expect(Failure(std::move(file.error())), "an open");
    return nullptr;
  }

  void prepare() {
    if (was_open_) {
      file_of_two_ = opened(two_);
      expect(scene_.change(*file_of_two_, ClusterScene::neighbour), "the second's first change");
    }
    if (first_ == First::recovery) return leave_a_record();
    file_of_one_ = opened(one_);
    expect(scene_.change(*file_of_one_, ClusterScene::pair), "the first's first change");
    static_cast<void>(scene_.seen(*file_of_one_));  // so that all of it is in memory there
    if (was_open_) static_cast<void>(scene_.seen(*file_of_two_));
  }

  // A third host dies when one of the tensors of its change is written.
  void leave_a_record() {
    ClusterHost third(scene_.server, LateRequests::taken, by_);
    auto file = opened(third);
    expect(scene_.change(*file, ClusterScene::pair), "the third's first change");
    bool is_record = false;
    third.at_call = [&](Call call, size_t) {
      is_record |= call == Call::renew_name && scene_.has_record();
      if (is_record && call == Call::fdatasync) third.die();
    };
    EXPECT_FALSE(scene_.change(*file, ClusterScene::pair));
  }

  void act() {
    one_.count_anew();
    size_t writes = 0;
    if (moment_ == Moment::amid_a_write)
      one_.pages.amid_write = [&] {
        if (writes++ == at_) happen();
      };
    else
      one_.at_call = [&](Call call, size_t n) {
        if (n == at_ && (moment_ != Moment::a_lock_comes_late || call == Call::lock)) happen();
        reached_ |= n == at_;
      };
    switch (first_) {
      case First::patch: done_ = scene_.change(*file_of_one_, ClusterScene::pair); break;
      case First::publish: done_ = scene_.change(*file_of_one_, ClusterScene::pair, true); break;
      case First::recovery:
        if (auto recovered = store::recover_all(one_, model_path, {}, {}); !recovered)
          done_ = Failure(std::move(recovered.error()));
    }
    one_.at_call = nullptr;
    one_.pages.amid_write = nullptr;
    if (!one_.is_dead() || moment_ == Moment::it_dies_afterwards) return;
    file_of_one_.reset();
    if (moment_ == Moment::it_dies_unnoticed) second(false);
    one_.notice_death();
    second(true);
  }

  void happen() {
    reached_ = true;
    switch (moment_) {
      case Moment::nothing_happens:
      case Moment::amid_a_write: return second(false);
      case Moment::it_dies: return one_.die();
      case Moment::it_dies_afterwards: second(false); return one_.die();
      case Moment::it_dies_unnoticed: return one_.die_unnoticed();
      case Moment::it_is_frozen:
      case Moment::it_is_fenced: one_.lose_locks(); return second(true);
      case Moment::a_lock_comes_late: one_.lose_the_answer(); return;
      case Moment::the_server_restarts:
      case Moment::the_server_restarts_and_forgets:
        one_.lose_locks();
        two_.lose_locks();
        scene_.server.restart(moment_ == Moment::the_server_restarts_and_forgets);
        return second(false);
    }
  }

  // Nobody is in its way: then it must get in.
  void second(bool is_free) {
    if (!file_of_two_) {
      auto file = ClusterScene::open(two_);
      if (!file) return check(Failure(std::move(file.error())), is_free);
      file_of_two_ = std::move(*file);
    }
    switch (second_) {
      case Second::patch: check(scene_.change(*file_of_two_, ClusterScene::pair), is_free); break;
      case Second::patch_of_the_same_page: check(scene_.change(*file_of_two_, ClusterScene::neighbour), is_free); break;
      case Second::publish: check(scene_.change(*file_of_two_, ClusterScene::neighbour, true), is_free); break;
      case Second::recovery:
        if (auto recovered = store::recover_all(two_, model_path, {}, {}); !recovered)
          check(Failure(std::move(recovered.error())), is_free);
    }
    if (!is_free) return;
    expect(file_of_two_->refresh(), "the second's refresh");
    scene_.must_stay(scene_.seen(*file_of_two_));
  }
  void check(const Result<void> &done, bool is_free) {
    if (done) return;
    const bool restarted = moment_ >= Moment::the_server_restarts;
    const Status status = done.error().status;
    if (status == Status::busy && !is_free) return;
    if (restarted && (status == Status::needs_recovery || status == Status::io || status == Status::file_changed ||
                      status == Status::poisoned))
      return;
    expect(done, "the second");
  }

  // What each finds when both are through, and another change of each.
  void finish() {
    if (done_ ? false : done_.error().status == Status::journal || done_.error().status == Status::internal)
      return expect(done_, "the first");
    if (wrong_ = scene_.why_wrong_now(); !wrong_.empty()) return;
    if (!one_.is_dead() && file_of_one_) static_cast<void>(scene_.change(*file_of_one_, ClusterScene::pair));
    if (one_.is_dead()) file_of_one_.reset();
    auto file = ClusterScene::open(two_);
    if (!file && file.error().status == Status::busy) return;
    if (!file) return expect(Failure(std::move(file.error())), "an open in the end");
    static_cast<void>(scene_.change(**file, ClusterScene::others));
  }

  const First first_;
  const Second second_;
  const Moment moment_;
  const size_t at_;
  const LateRequests late_;
  ClusterScene scene_;
  ClusterHost one_, two_;
  const ClusterHost::Client by_;
  const bool was_open_;
  Handle file_of_one_, file_of_two_;
  Result<void> done_;
  bool reached_ = false;
  std::string wrong_;
};

using Client = ClusterHost::Client;
class Cluster : public ::testing::TestWithParam<std::tuple<First, Client>> {};
INSTANTIATE_TEST_SUITE_P(Operations, Cluster,
                         ::testing::Combine(::testing::Values(First::patch, First::publish, First::recovery),
                                            ::testing::Values(Client::remembers, Client::glusterfs)),
                         [](const auto &info) {
                           const bool by_glusterfs = std::get<1>(info.param) == Client::glusterfs;
                           return name_of(std::get<0>(info.param)) + std::string(by_glusterfs ? "_by_glusterfs" : "");
                         });

TEST_P(Cluster, TwoHostsLeaveASerialOrderWhateverHappensAtAnyCall) {
  const auto [first, client] = GetParam();
  const size_t step = full_bound() ? 1 : small_bound() ? 31 : 2;
  size_t tried = 0, exempt = 0, turn = 0;
  for (const Second second : {Second::patch, Second::patch_of_the_same_page, Second::publish, Second::recovery})
    for (const bool was_open : {false, true})
      for (size_t m = 0; m <= static_cast<size_t>(Moment::the_server_restarts_and_forgets); ++m) {
        const auto moment = static_cast<Moment>(m);
        const size_t stride = moment == Moment::amid_a_write ? 1 : step;
        bool reached = true;
        for (size_t at = turn++ % stride; reached; at += stride) {
          Trial trial(first, second, was_open, moment, at, client);
          EXPECT_EQ(trial.run(), "") << name_of(moment) << " at call " << at << " of a " << name_of(first)
                                     << ", then a " << name_of(second) << (was_open ? " by one that was open" : "");
          reached = trial.reached();
          tried += reached;
          exempt += trial.is_exempt();
        }
      }
  std::printf("%zu moments, %zu of them exempt\n", tried, exempt);
  EXPECT_LT(exempt * 6, tried);
}

}  // namespace
}  // namespace st::testing
