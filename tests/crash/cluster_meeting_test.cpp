// Two living hosts of a simulated cluster, beside what a third left when it died. The first stops at one call. The
// second goes on until a call of its own. Then the first goes on to its end, and the second to its. Nobody loses a
// lock. So each is told ok or busy, and never that another host has taken over.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <thread>

#include "baton.h"
#include "bound.h"
#include "cluster_scene.h"
#include "engine/recover_all.h"
#include "workload.h"

namespace st::testing {
namespace {

enum class Work { patch, patch_elsewhere, publish, save, recovery };
constexpr size_t works = 5;
constexpr size_t to_the_end = SIZE_MAX;
constexpr const char *name_of(Work work) {
  return std::array{"patch", "patch_elsewhere", "publish", "save", "recovery"}[static_cast<size_t>(work)];
}

// By these a journal gets its name, its lock and its owner. All calls count where there is time for it.
bool counts(Call call) {
  return full_bound() || call == Call::openat || call == Call::lock || call == Call::renameat ||
         call == Call::renew_name;
}

// The second is at one work, and has committed a patch elsewhere before or has not: then it makes its journal now. The
// patch before was the longer one, so that the end of its journal stays.
struct Met {
  Work work;
  bool has_patched;
};

class Meeting {
 public:
  // The first stops twice.
  Meeting(Work first, Met second, const std::array<size_t, 2> &first_stops, size_t second_stops)
      : works_{first, second.work}, stops_{first_stops, {second_stops, to_the_end}} {
    for (Host &host : hosts_) host.file = ClusterScene::open(host.env).value();
    if (second.has_patched) expect(scene_.change(*hosts_[1].file, ClusterScene::last), "the second before");
    leave_a_journal();
  }

  std::string run() {
    const auto take_part = [this](size_t h) {
      baton_.await(h);
      act(h);
      hosts_[h].ended = true;
      baton_.give(1 - h);
    };
    std::thread second(take_part, 1);
    baton_.give(0);
    take_part(0);
    second.join();
    for (Host &host : hosts_) host.file.reset();
    return wrong_.empty() ? scene_.why_wrong() : wrong_;
  }
  bool reached(size_t h) const { return hosts_[h].reached; }

 private:
  struct Host {
    explicit Host(SimEnv &server) : env(server) {}
    ClusterHost env;
    std::unique_ptr<store::DataFile> file;
    bool reached = false, ended = false;
  };

  void expect(const Result<void> &done, const std::string &what) {
    if (!done && wrong_.empty()) wrong_ = what + ": " + done.error().message;
  }

  // Without a record. So the next locker looks at each journal, and removes this one. (An open would remove it.)
  void leave_a_journal() {
    ClusterHost third(scene_.server);
    auto file = ClusterScene::open(third);
    third.at_call = [&](Call call, size_t) {
      if (call == Call::fdatasync) third.die();
    };
    EXPECT_FALSE(scene_.change(**file, ClusterScene::pair));
  }

  void act(size_t h) {
    Host &host = hosts_[h];
    host.env.at_call = [this, h, calls = size_t{0}](Call call, size_t) mutable {
      if (!counts(call)) return;
      const size_t n = calls++;
      if (n != stops_[h][0] && n != stops_[h][1]) return;
      hosts_[h].reached = true;
      if (hosts_[1 - h].ended) return;
      baton_.give(1 - h);
      baton_.await(h);
    };
    const auto done = carry_out(host, works_[h]);
    host.env.at_call = nullptr;
    if (!done && done.error().status != Status::busy) expect(done, h == 0 ? "the first" : "the second");
  }
  Result<void> carry_out(Host &host, Work work) {
    switch (work) {
      case Work::patch: return scene_.change(*host.file, ClusterScene::neighbour);
      case Work::patch_elsewhere: return scene_.change(*host.file, ClusterScene::last);
      case Work::publish: return scene_.change(*host.file, ClusterScene::neighbour, true);
      case Work::save: return scene_.save(host.env);
      case Work::recovery: ST_TRY(store::recover_all(host.env, model_path, {}, {})); return {};
    }
    return {};
  }

  ClusterScene scene_;
  std::array<Host, 2> hosts_{Host(scene_.server), Host(scene_.server)};
  const std::array<Work, 2> works_;
  const std::array<std::array<size_t, 2>, 2> stops_;
  Baton baton_;
  std::string wrong_;
};

class ClusterMeeting : public ::testing::TestWithParam<Work> {};
INSTANTIATE_TEST_SUITE_P(Works, ClusterMeeting,
                         ::testing::Values(Work::patch, Work::patch_elsewhere, Work::publish, Work::save,
                                           Work::recovery),
                         [](const auto &first) { return name_of(first.param); });

TEST_P(ClusterMeeting, NobodyTakesOverFromTheLiving) {
  const size_t step = full_bound() ? 1 : small_bound() ? 17 : 2, later = full_bound() ? 15 : 5;
  size_t tried = 0, turn = 0;
  for (size_t work = 0; work < works; ++work)
    for (const bool has_patched : {false, true}) {
      bool goes_on = true;
      for (size_t first = 0; goes_on; ++first) {
        bool second_goes_on = true;
        for (size_t second = turn++ % step; second_goes_on && goes_on; second += step)
          for (const size_t again : {to_the_end, first + later}) {
            Meeting trial(GetParam(), {static_cast<Work>(work), has_patched}, {first, again}, second);
            EXPECT_EQ(trial.run(), "") << "the first stopped at calls " << first << " and "
                                       << static_cast<ssize_t>(again) << " of its " << name_of(GetParam())
                                       << ", and the second at call " << second << " of its "
                                       << name_of(static_cast<Work>(work)) << (has_patched ? ", after a patch" : "");
            goes_on = trial.reached(0);
            second_goes_on = trial.reached(1);
            tried += goes_on;
          }
      }
    }
  std::printf("%zu meetings\n", tried);
}

// A save loses its locks at a call, and stands still. Another host is amid a patch when the save goes on to its end.
// Then the other dies, and its record, if it has one, must not lie beside a file that it is not for. `renames`: the
// number of the save's last rename. `met`: the patch came to its call.
std::string save_amid_a_patch(size_t saver_stops, size_t patcher_stops, size_t *renames, bool *met) {
  ClusterScene scene;
  ClusterHost saver(scene.server), patcher(scene.server);
  auto file = ClusterScene::open(patcher).value();
  Baton baton;
  bool saved = false, patched = false;
  saver.at_call = [&](Call call, size_t n) {
    if (call == Call::renameat) *renames = n;
    if (n != saver_stops) return;
    saver.lose_locks();
    baton.give(1), baton.await(0);
  };
  patcher.count_anew();
  patcher.at_call = [&](Call, size_t n) {
    if (n != patcher_stops || saved) return;
    *met = true;
    baton.give(0), baton.await(1);
    patcher.die();
  };
  std::thread first([&] {
    baton.await(0);
    static_cast<void>(scene.save(saver));
    saved = true;
    if (!patched) baton.give(1);
  });
  std::thread second([&] {
    baton.await(1);
    static_cast<void>(scene.change(*file, ClusterScene::neighbour));
    patched = true;
    if (!saved) baton.give(0);
  });
  baton.give(0);
  first.join(), second.join();
  saver.at_call = nullptr, patcher.at_call = nullptr;
  file.reset();
  return scene.why_wrong();
}

TEST(ClusterSave, UnderLostLocksLeavesNoRecordBesideAnotherFile) {
  const size_t step = full_bound() ? 1 : small_bound() ? 5 : 2;
  // From its last question for its journal to the rename, nothing is promised.
  constexpr size_t from_the_question = 3;
  size_t renames = 0, tried = 0;
  bool met = false;
  EXPECT_EQ(save_amid_a_patch(to_the_end, to_the_end, &renames, &met), "");
  ASSERT_GT(renames, from_the_question + 10);
  const size_t last = renames - from_the_question;
  for (size_t save = last - 10; save < last; ++save) {
    met = true;
    for (size_t patch = 0; met; patch += step) {
      met = false;
      EXPECT_EQ(save_amid_a_patch(save, patch, &renames, &met), "")
          << "the save lost its locks at call " << save << ", and went on at call " << patch << " of the patch";
      tried += met;
    }
  }
  EXPECT_GT(tried, 50u);
}

}  // namespace
}  // namespace st::testing
