// Random histories of two or three hosts of a simulated cluster. At any system call another host may go on. Hosts are
// frozen beyond their locks' life, die, and forget; locks come late; the server restarts. One seed is one history.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <thread>

#include "baton.h"
#include "bound.h"
#include "cluster_scene.h"
#include "engine/recover_all.h"
#include "workload.h"

namespace st::testing {
namespace {

class History {
 public:
  explicit History(uint64_t seed) : random_(seed + chosen_seed() * 1000003) {
    const LateRequests late = one_in(2) ? LateRequests::refused : LateRequests::taken;
    const auto client = one_in(2) ? ClusterHost::Client::glusterfs : ClusterHost::Client::remembers;
    for (size_t n = 2 + below(2); n > 0; --n) hosts_.push_back(std::make_unique<Host>(scene_.server, late, client));
    for (size_t h = 0; h < hosts_.size(); ++h)
      hosts_[h]->env.at_call = [this, h](Call call, size_t) { at_call(h, call); };
  }

  std::string run() {
    std::vector<std::thread> threads;
    for (size_t h = 0; h < hosts_.size(); ++h)
      threads.emplace_back([this, h] {
        baton_.await(h);
        live(h);
        hosts_[h]->ended = true;
        baton_.give(next());
      });
    baton_.give(0);
    for (std::thread &thread : threads) thread.join();
    if (is_exempt()) return {};
    if (!wrong_.empty()) return wrong_;
    return scene_.why_wrong();
  }
  // core/journal/README.md: what was in flight under lost locks.
  bool is_exempt() const {
    return std::any_of(hosts_.begin(), hosts_.end(), [](const auto &host) { return host->env.wrote_late(); });
  }
  bool is_troubled() const { return troubles_ > 0; }

 private:
  struct Host {
    Host(SimEnv &server, LateRequests late, ClusterHost::Client client) : env(server, late, client) {}
    ClusterHost env;
    bool ended = false;
    uint64_t frozen_until = 0;
  };

  uint64_t below(uint64_t n) { return random_() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }

  // Any that has not ended; one that is frozen only where there is no other.
  size_t next() {
    std::vector<size_t> awake, any;
    for (size_t h = 0; h < hosts_.size(); ++h) {
      if (hosts_[h]->ended) continue;
      any.push_back(h);
      if (hosts_[h]->frozen_until <= steps_) awake.push_back(h);
    }
    const auto &from = awake.empty() ? any : awake;
    return from.empty() ? SIZE_MAX : from[below(from.size())];
  }

  void at_call(size_t h, Call call) {
    ++steps_;
    if (one_in(150) && troubles_ < 3) trouble(h, call);
    if (hosts_[h]->frozen_until > steps_ || one_in(12)) {
      const size_t to = next();
      if (to == h) return;
      baton_.give(to);
      baton_.await(h);
    }
  }

  void trouble(size_t h, Call call) {
    Host &host = *hosts_[h];
    ++troubles_;
    switch (below(8)) {
      case 0: return host.env.die();
      case 1:
        for (const auto &each : hosts_) each->env.lose_locks();
        return scene_.server.restart(one_in(2));
      case 2:
        if (call == Call::lock) host.env.lose_the_answer();
        return;
      case 3:
      case 4:
        if (call == Call::lock || call == Call::fdatasync) host.env.forget_all();
        return;
      default: host.env.lose_locks(); host.frozen_until = steps_ + below(600);
    }
  }

  void live(size_t h) {
    os::Env &env = hosts_[h]->env;
    std::unique_ptr<store::DataFile> file;
    for (int k = 0; k < 4 && !hosts_[h]->env.is_dead(); ++k) {
      if (!file || file->poisoned() || one_in(4)) {
        auto opened = ClusterScene::open(env);
        check(opened);
        file = opened ? std::move(*opened) : nullptr;
      }
      if (!file) continue;
      constexpr uint32_t sets[] = {ClusterScene::pair, ClusterScene::neighbour, ClusterScene::others};
      const uint32_t set = sets[below(3)];
      const int32_t patience = one_in(2) ? 0 : 20;
      switch (below(6)) {
        case 0: check(store::recover_all(env, model_path, {}, {})); break;
        case 1: check(file->refresh()); break;
        case 2: check(scene_.change(*file, set, true, patience)); break;
        default: check(scene_.change(*file, set, false, patience)); break;
      }
    }
  }
  template <class T>
  void check(const Result<T> &done) {
    // Locks that are lost before a handle has tried them seem to be no locks. Without its lock a new file is rubbish,
    // and gone when it is to be opened once more.
    constexpr Status may_be[] = {Status::busy,     Status::io,      Status::file_changed,    Status::needs_recovery,
                                 Status::poisoned, Status::no_file, Status::lock_unsupported};
    if (!done && std::find(std::begin(may_be), std::end(may_be), done.error().status) == std::end(may_be))
      wrong_ = done.error().message;
  }

  ClusterScene scene_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Host>> hosts_;
  Baton baton_;
  uint64_t steps_ = 0;
  int troubles_ = 0;
  std::string wrong_;
};

TEST(ClusterHistory, EndsInASerialOrder) {
  const uint64_t histories = full_bound() ? 20000 : small_bound() ? 30 : 300;
  uint64_t exempt = 0, troubled = 0;
  for (uint64_t seed = 0; seed < histories; ++seed) {
    History history(seed);
    EXPECT_EQ(history.run(), "") << "seed " << seed;
    exempt += history.is_exempt();
    troubled += history.is_troubled();
  }
  std::printf("%ju histories, %ju of them troubled, %ju exempt\n", histories, troubled, exempt);
  EXPECT_LT(exempt * 4, histories);
  EXPECT_GT(troubled * 2, histories);
}

}  // namespace
}  // namespace st::testing
