// A host of a simulated cluster loses its locks at one call. Nobody tells it, and it goes on until another call. There
// a second host takes the locks, and changes the file. Then the first goes on, or dies a few calls later. In the end
// there is a serial order of what was answered, no journal was taken for damaged, and a power cut takes nothing back.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "bound.h"
#include "cluster_scene.h"
#include "engine/recover_all.h"
#include "workload.h"

namespace st::testing {
namespace {

enum class Frozen {
  patch,            // the first of its handle
  patch_as_before,  // another of the same tensors
  publish,
  save,
  recovery,
};
constexpr const char *name_of(Frozen first) {
  return std::array{"patch", "patch_as_before", "publish", "save", "recovery"}[static_cast<size_t>(first)];
}
enum class Other { patch, patch_of_the_same_page, publish, recovery };

// The number of a call of the first host.
struct Calls {
  size_t loses_locks, other_comes, dies;
};
constexpr size_t never = SIZE_MAX;

class Awakening {
 public:
  Awakening(Frozen first, Other second, const Calls &at)
      : first_(first), second_(second), at_(at), one_(scene_.server), two_(scene_.server) {}

  std::string run() {
    prepare();
    one_.count_anew();
    one_.at_call = [this](Call, size_t n) { at_call(n); };
    act();
    one_.at_call = nullptr;
    file_.reset();
    return wrong_.empty() && !is_exempt() ? scene_.why_wrong() : wrong_;
  }
  size_t calls() const { return calls_; }  // of the first, when nothing happens to it
  bool reached() const { return came_; }
  // core/journal/README.md: what was in flight under lost locks.
  bool is_exempt() const { return one_.wrote_late(); }

 private:
  void expect(const Result<void> &done, const char *what) {
    if (!done && done.error().status != Status::busy && wrong_.empty())
      wrong_ = std::string(what) + ": " + done.error().message;
  }
  std::unique_ptr<store::DataFile> opened(ClusterHost &host) {
    auto file = ClusterScene::open(host);
    if (!file) return expect(Failure(std::move(file.error())), "an open"), nullptr;
    return std::move(*file);
  }

  void prepare() {
    if (first_ == Frozen::recovery) return leave_a_record();
    if (first_ == Frozen::save) return;
    file_ = opened(one_);
    if (first_ == Frozen::patch_as_before)
      expect(scene_.change(*file_, ClusterScene::pair), "the first's first change");
  }
  void leave_a_record() {
    ClusterHost third(scene_.server);
    auto file = opened(third);
    bool is_record = false;
    third.at_call = [&](Call call, size_t) {
      is_record |= call == Call::renew_name && scene_.has_record();
      if (is_record && call == Call::fdatasync) third.die();
    };
    EXPECT_FALSE(scene_.change(*file, ClusterScene::pair));
  }

  void at_call(size_t n) {
    calls_ = n + 1;
    if (n == at_.loses_locks) one_.lose_locks();
    if (n == at_.other_comes) other();
    if (n == at_.dies) one_.die();
  }

  // The first may have taken new locks since.
  void other() {
    came_ = true;
    const auto file = opened(two_);
    if (!file) return;
    switch (second_) {
      case Other::patch: expect(scene_.change(*file, ClusterScene::pair), "the second's patch"); break;
      case Other::patch_of_the_same_page:
        expect(scene_.change(*file, ClusterScene::neighbour), "the second's patch");
        break;
      case Other::publish: expect(scene_.change(*file, ClusterScene::neighbour, true), "the second's publish"); break;
      case Other::recovery:
        if (auto recovered = store::recover_all(two_, model_path, {}, {}); !recovered)
          expect(Failure(std::move(recovered.error())), "the second's recovery");
    }
    // A publish whose folder is not synced may be taken back by a power cut.
    const auto shown = file->refresh();
    if (shown && scene_.server.is_name_durable(model_path)) scene_.must_stay(scene_.seen(*file));
  }

  void act() {
    switch (first_) {
      case Frozen::patch:
      case Frozen::patch_as_before: static_cast<void>(scene_.change(*file_, ClusterScene::pair)); break;
      case Frozen::publish: static_cast<void>(scene_.change(*file_, ClusterScene::pair, true)); break;
      case Frozen::save: static_cast<void>(scene_.save(one_)); break;
      case Frozen::recovery: static_cast<void>(store::recover_all(one_, model_path, {}, {})); break;
    }
  }

  const Frozen first_;
  const Other second_;
  const Calls at_;
  ClusterScene scene_;
  ClusterHost one_, two_;
  std::unique_ptr<store::DataFile> file_;
  size_t calls_ = 0;
  bool came_ = false;
  std::string wrong_;
};

class ClusterFencing : public ::testing::TestWithParam<Frozen> {};
INSTANTIATE_TEST_SUITE_P(Operations, ClusterFencing,
                         ::testing::Values(Frozen::patch, Frozen::patch_as_before, Frozen::publish, Frozen::save,
                                           Frozen::recovery),
                         [](const auto &first) { return name_of(first.param); });

TEST_P(ClusterFencing, WhoeverLosesItsLocksSpoilsNothing) {
  const size_t step = full_bound() ? 1 : small_bound() ? 29 : 7;
  size_t tried = 0, exempt = 0, turn = 0;
  for (const Other second : {Other::patch, Other::patch_of_the_same_page, Other::publish, Other::recovery}) {
    Awakening undisturbed(GetParam(), second, {never, never, never});
    EXPECT_EQ(undisturbed.run(), "");
    const size_t calls = undisturbed.calls();
    ASSERT_GT(calls, 20u);
    for (size_t lost = 0; lost < calls; ++lost)
      for (size_t comes = lost + turn++ % step; comes < calls; comes += step)
        for (const size_t dies : {never, comes + turn % 29}) {
          Awakening trial(GetParam(), second, {lost, comes, dies});
          EXPECT_EQ(trial.run(), "") << "its locks were lost at call " << lost << " of " << calls
                                     << ", and the other came at call " << comes << " for " << static_cast<int>(second)
                                     << "; it died at " << static_cast<ssize_t>(dies);
          tried += trial.reached();
          exempt += trial.is_exempt();
        }
  }
  std::printf("%zu moments, %zu of them exempt\n", tried, exempt);
  EXPECT_LT(exempt * 6, tried);
}

bool is_dropping(const ClusterScene &scene) {
  const auto names = scene.server.names(model_path + ".st-journal");
  return std::any_of(names.begin(), names.end(), [](const std::string &name) { return name.ends_with(".gone"); });
}

// One loses its locks at a call. Another takes its journal away, and dies when that has its last name, which is not
// durable yet. A third finishes that, and changes the same tensors by a journal that it has had before, so that it
// syncs no folder for it. Then the first goes on, and its record must be under no name that a power cut brings back.
TEST(ClusterDropping, WhatADeadHostWasDroppingDoesNotComeBack) {
  size_t calls = 1, tried = 0;
  for (size_t lost = 0; lost < calls; ++lost) {
    ClusterScene scene;
    ClusterHost one(scene.server), two(scene.server), three(scene.server);
    auto first = ClusterScene::open(one), third = ClusterScene::open(three);
    ASSERT_TRUE(first && third);
    ASSERT_TRUE(scene.change(**third, ClusterScene::pair));
    bool came = false;
    two.at_call = [&](Call call, size_t) {
      if (call == Call::fsync && is_dropping(scene)) two.die();
    };
    one.count_anew();
    one.at_call = [&](Call, size_t n) {
      calls = std::max(calls, n + 1);
      if (n != lost) return;
      one.lose_locks();
      static_cast<void>(store::recover_all(two, model_path, {}, {}));
      if (!two.is_dead()) return;
      came = true;
      EXPECT_TRUE(scene.change(**third, ClusterScene::pair)) << "after call " << lost;
      EXPECT_FALSE(is_dropping(scene));
    };
    static_cast<void>(scene.change(**first, ClusterScene::pair));
    one.at_call = nullptr;
    first->reset(), third->reset();
    if (!came || one.wrote_late()) continue;
    ++tried;
    EXPECT_EQ(scene.why_wrong(), "") << "its locks were lost at call " << lost;
  }
  EXPECT_GT(tried, 10u);
}

}  // namespace
}  // namespace st::testing
