// A host is frozen amid a commit on several shards, for so long that it loses its locks. Another host changes a shard
// meanwhile, or recovers, and then the first goes on. What stays open is a request that was sent after the last
// question (core/journal/README.md), so nobody is frozen there.
#include <gmock/gmock.h>

#include <algorithm>

#include "bound.h"
#include "engine/open.h"
#include "engine/recover_all.h"
#include "has_record.h"
#include "model/model.h"
#include "shards_scene.h"
#include "stale_env.h"
#include "without_syncs.h"

namespace st::store {
namespace {

using namespace testing;

namespace fs = std::filesystem;

using Host = testing::WithoutSyncs<testing::StaleEnv>;  // no power is cut here

enum class Kind { patches, rewrite };             // the frozen commit: of a in one shard, and of c in the other
enum class Other { patch, alone, index, shard };  // changes both, or a in its shard alone; recovers either

class FrozenHost : public testing::ShardsScene, public ::testing::WithParamInterface<std::tuple<Kind, Other>> {
 protected:
  static std::unique_ptr<Model> open(os::Env &host, const std::string &path) {
    OpenOptions options;
    options.writable = true;
    options.lock_timeout_ms = 0;
    auto opened = open_path(host, path, options);
    return opened ? std::move(*opened) : nullptr;
  }
  static bool shows(const Model &model, std::string_view name, const std::string &expected) {
    const auto place = model.catalogue().find(name);
    std::string found(expected.size(), '\0');
    return place && place->tensor().nbytes == found.size() &&
           place->member->read(*place->snapshot, place->index, found.data()) && found == expected;
  }
  static bool rewrites() { return std::get<Kind>(GetParam()) == Kind::rewrite; }

  void put_anew() const { put_checkpoint_anew(ckpt, index); }
  static TransactionOptions at_once() {
    TransactionOptions options;
    options.lock_timeout_ms = 0;
    return options;
  }
  Result<void> change_both(Model &model) const {
    ST_TRY(auto begun, model.begin(at_once()));
    ST_TRY(begun->update("a", u8(their_a)));
    ST_TRY(begun->update("c", u8(their_c)));
    if (rewrites()) ST_TRY(begun->rename("b", "x"));
    return begun->commit();
  }
  void act(os::Env &host) {
    const Other what = std::get<Other>(GetParam());
    if (what == Other::index || what == Other::shard) {
      static_cast<void>(recover_all(host, what == Other::index ? index : shard, {}, {}));
      return;
    }
    const auto model = open(host, what == Other::patch ? index : shard);
    if (!model) return;
    static_cast<void>(model->refresh());  // an open may have finished the other's commit
    seen_ = shows(*model, "a", their_a);
    auto begun = model->begin(at_once());
    changed_ = begun && (*begun)->update("a", u8(my_a)) && (what == Other::alone || (*begun)->update("c", u8(my_c))) &&
               (*begun)->commit();
  }

  // Before which calls a host may be frozen: not where it writes without another question.
  std::vector<size_t> moments() const {
    enum class Event { call, question, change };
    std::vector<Event> events;
    std::vector<size_t> call_at;  // of each call, among the events
    size_t decided = SIZE_MAX;    // the call before which the super-journal has its record
    put_anew();
    Host host(env);
    host.clock_stands = true;
    const auto model = open(host, index);
    host.before = [&](Call call) {
      if (decided == SIZE_MAX && has_record(index)) decided = call_at.size();
      call_at.push_back(events.size());
      events.push_back(call == Call::renew_name                         ? Event::question
                       : call == Call::pwrite || call == Call::renameat ? Event::change
                                                                        : Event::call);
      return 0;
    };
    host.at_clock = [&] { events.push_back(Event::question); };
    EXPECT_TRUE(is_ok(change_both(*model)));
    host.before = {};
    host.at_clock = {};
    std::vector<size_t> found;
    for (size_t i = 0; i < call_at.size(); ++i) {
      const auto next = std::find_if(events.begin() + static_cast<ptrdiff_t>(call_at[i]), events.end(),
                                     [](Event e) { return e != Event::call; });
      if (i < decided || (next != events.end() && *next == Event::question)) found.push_back(i);
    }
    return found;
  }

  void expect_whole(const Result<void> &done) const {
    EXPECT_TRUE(is_ok(recover_all(env, index, {}, {})));
    for (const auto &entry : fs::recursive_directory_iterator(ckpt))
      EXPECT_FALSE(entry.path().string().ends_with(write::aside_suffix)) << entry.path();
    const auto model = open(env, index);
    ASSERT_TRUE(model);
    using Pair = std::pair<std::string, std::string>;
    const Pair found{bytes(*model, "a"), bytes(*model, "c")}, old{pattern(4000, 1), pattern(5000, 3)},
        theirs{their_a, their_c};
    const bool is_alone = std::get<Other>(GetParam()) == Other::alone;
    std::vector<Pair> allowed;
    if (!changed_) allowed = {theirs};
    if (!changed_ && !done) allowed.push_back(old);
    if (changed_) allowed = {{my_a, is_alone ? their_c : my_c}};
    if (changed_ && is_alone && !done) allowed.emplace_back(my_a, old.second);
    if (changed_ && !seen_) allowed.push_back(theirs);
    EXPECT_EQ(std::count(allowed.begin(), allowed.end(), found), 1);
    if (!rewrites()) return;
    const bool renamed = model->catalogue().find("x").has_value();
    EXPECT_TRUE(renamed || !done);
    EXPECT_TRUE(renamed == (found.second == their_c) || found.second == my_c);
  }

  const testing::TempDir dir;
  mutable testing::Unsynced env{os::Env::posix()};
  const std::string ckpt = dir / "ckpt", index = ckpt + "/m.safetensors.index.json", shard = ckpt + "/m-1.safetensors";
  const std::string their_a = pattern(4000, 8), their_c = pattern(5000, 8), my_a = pattern(4000, 9),
                    my_c = pattern(5000, 9);
  bool changed_ = false;  // by the other, which was told so
  bool seen_ = false;     // the frozen commit, by the other before its own change
};

TEST_P(FrozenHost, SpoilsNothing) {
  const std::vector<size_t> moments = this->moments();
  ASSERT_GT(moments.size(), 100u);
  const size_t last = 80;
  const auto step = [&](size_t i, size_t lost_before) -> size_t {
    if (full_bound()) return 1;
    if (i + last < moments.size()) return small_bound() ? 61 : 31;
    return small_bound() ? 7 : lost_before == 1 ? 1 : 5;  // one may lock a journal anew right after the loss
  };
  size_t refused = 0;
  for (const size_t lost_before : {0, 1, 100})
    for (size_t i = 0; i < moments.size(); i += step(i, lost_before)) {
      const size_t n = moments[i];
      if (n < lost_before) continue;
      put_anew();
      Host frozen(env), other(env);
      frozen.clock_stands = true;
      auto model = open(frozen, index);
      size_t so_far = 0;
      changed_ = seen_ = false;
      frozen.before = [&](Call) {
        if (so_far + lost_before == n) frozen.lose_locks();
        if (so_far++ == n) {
          act(other);
          frozen.frozen_ms += 60000;
        }
        return 0;
      };
      const auto done = change_both(*model);
      frozen.before = {};
      model.reset();
      refused += !done;
      expect_whole(done);
      ASSERT_FALSE(HasFailure()) << "frozen at call " << n << ", its locks lost " << lost_before << " calls before";
    }
  EXPECT_GT(refused, 0u);
}

// Another host has taken it away, as its lock was lost. Without a look the transaction would be half done.
TEST_P(FrozenHost, DecidesNothingWithoutItsNewFiles) {
  if (!rewrites() || std::get<Other>(GetParam()) != Other::patch) GTEST_SKIP() << "it has no new file";
  put_anew();
  Host host(env);
  auto model = open(host, index);
  std::string gone;
  host.before = [&](Call call) {
    if (call != Call::renew_name || !gone.empty() || has_record(index)) return 0;
    for (const auto &entry : fs::directory_iterator(ckpt))
      if (const std::string name = entry.path().filename().string(); name.starts_with(".m-1.safetensors.st-new-"))
        gone = name;
    if (!gone.empty()) fs::remove(ckpt + "/" + gone);
    return 0;
  };
  EXPECT_TRUE(fails_with(Status::file_changed, change_both(*model)));
  host.before = {};
  EXPECT_FALSE(gone.empty());
  model.reset();
  const auto now = open(env, index);
  ASSERT_TRUE(now);
  EXPECT_TRUE(same_bytes(bytes(*now, "a"), pattern(4000, 1)));
  EXPECT_TRUE(same_bytes(bytes(*now, "c"), pattern(5000, 3)));
}

// Between two files of a commit that its writer had decided. The other carries it out meanwhile, and drops it.
using FrozenRecoverer = FrozenHost;
TEST_P(FrozenRecoverer, GoesNoFurther) {
  put_anew();
  {
    Host writer(env);
    const auto model = open(writer, index);
    writer.before = [&](Call call) { return call != Call::close && has_record(index) ? -EIO : 0; };
    EXPECT_FALSE(change_both(*model));
  }
  const auto inode_of = [](const std::string &path) {
    struct stat s = {};
    EXPECT_EQ(::stat(path.c_str(), &s), 0);
    return s.st_ino;
  };
  const ino_t old = inode_of(shard);
  Host frozen(env), other(env);
  frozen.clock_stands = true;
  frozen.before = [&](Call) {
    if (frozen.frozen_ms > 0 || inode_of(shard) == old) return 0;
    frozen.lose_locks();
    act(other);
    frozen.frozen_ms = 60000;
    return 0;
  };
  EXPECT_TRUE(fails_with(Status::busy, recover_all(frozen, index, {}, {})));
  EXPECT_EQ(frozen.frozen_ms, 60000u);
  frozen.before = {};
  expect_whole({});
}

INSTANTIATE_TEST_SUITE_P(Commits, FrozenRecoverer, ::testing::Values(std::tuple(Kind::rewrite, Other::index)));

INSTANTIATE_TEST_SUITE_P(Commits, FrozenHost,
                         ::testing::Combine(::testing::Values(Kind::patches, Kind::rewrite),
                                            ::testing::Values(Other::patch, Other::alone, Other::index, Other::shard)));

}  // namespace
}  // namespace st::store
