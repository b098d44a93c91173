// What a handle of shards shows while several of them change, by its own commit or by a refresh: one state, all of the
// shards old or all new. What happens beside a call happens inside it, before each of its system calls in turn.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include "bound.h"
#include "fault_env.h"
#include "mapped_meanwhile.h"
#include "shards/shards.h"
#include "shards_scene.h"
#include "without_syncs.h"

namespace st::store {
namespace {

using namespace testing;
using read::MapMode;
using testing::Call;

class ShownOfShards : public testing::ShardsScene {
 protected:
  void put_model() const {
    for (const auto &left : std::filesystem::directory_iterator(dir.path())) std::filesystem::remove_all(left.path());
    put_shards(dir.path());
    put_bytes(dir / "m-3.safetensors", file_of(std::vector{u8_tensor("d", 100, 4)}));
    put_bytes(index, R"({"metadata":{"by":"me"},"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors",)"
                     R"("c":"m-2.safetensors","d":"m-3.safetensors"}})");
  }
  std::unique_ptr<Shards> open(os::Env &with, MapMode map = MapMode::automatic) {
    OpenOptions options;
    options.writable = true;
    options.map = map;
    options.lock_timeout_ms = 0;
    auto opened = Shards::open(with, index, options);
    EXPECT_TRUE(is_ok(opened));
    return opened ? std::move(*opened) : nullptr;
  }
  // With each of its shards.
  std::unique_ptr<Shards> open_all() {
    auto c = open(env);
    for (const char *name : {"a", "c", "d"}) of(c->catalogue(), name);
    return c;
  }
  static std::unique_ptr<AnyTransaction> begin(Shards &shards, bool new_names = false, bool publish = true) {
    TransactionOptions options;
    options.publish = publish;
    options.new_names = new_names;
    options.lock_timeout_ms = 0;
    auto begun = shards.begin(options);
    EXPECT_TRUE(is_ok(begun));
    return begun ? std::move(*begun) : nullptr;
  }
  // It changes the shards of a and c, and perhaps the index.
  std::unique_ptr<AnyTransaction> begin_change(Shards &shards, bool of_index, bool new_names = false) const {
    auto t = begin(shards, new_names);
    EXPECT_TRUE(is_ok(t->update("a", u8(new_a))));
    EXPECT_TRUE(is_ok(t->update("c", u8(new_c))));
    if (of_index) {
      EXPECT_TRUE(is_ok(t->rename("b", "e")));
      EXPECT_TRUE(is_ok(t->set_metadata("by", "you")));
    }
    return t;
  }
  static std::string of(const Catalogue &state, std::string_view name) {
    auto place = state.find(name);
    EXPECT_TRUE(is_ok(place)) << name;
    if (!place) return {};
    auto view = place->member->view(*place->snapshot, place->index);
    EXPECT_TRUE(is_ok(view)) << name;
    return view ? std::string(reinterpret_cast<const char *>(*view), place->tensor().nbytes) : std::string();
  }
  // The state is all old or all new.
  enum class State { old, fresh, mix };
  State state_of(const Catalogue &state, bool of_index) const {
    const std::string a = of(state, "a"), c = of(state, "c");
    int fresh = (a == new_a) + (c == new_c), old = (a == old_a) + (c == old_c), all = 2;
    if (of_index) {
      const bool is_fresh = state.metadata_find("by") == "you";
      const std::string b = of(state, is_fresh ? "e" : "b");
      fresh += is_fresh + (b == old_b && is_fresh), old += !is_fresh + (b == old_b && !is_fresh), all = 4;
    }
    return fresh == all ? State::fresh : old == all ? State::old : State::mix;
  }
  // Does something once, before the n-th system call; of a commit from its first rename on. Whether there were as many.
  enum class Of { commit, refresh };
  bool during(Of of, size_t n, const std::function<void()> &then, const std::function<void()> &call) {
    size_t left = n;
    bool came = false, renames = of == Of::refresh;
    env.before = [&](Call what) {
      renames |= what == Call::renameat;
      if (renames && !came && left-- == 0) {
        came = true;
        then();
      }
      return 0;
    };
    call();
    env.before = nullptr;
    return came;
  }

  // Tries each call in turn, on a new model, while there are more.
  void each_call(const std::function<void(size_t n, bool &more)> &trial) {
    bool more = true;
    for (size_t n = every.first(); more; n += every.step) {
      SCOPED_TRACE(text("call ", n));
      put_model();
      more = false;
      trial(n, more);
      if (HasFailure()) return;
    }
  }

  // Something happens before each call. After each call that fails it does so before some.
  testing::EveryNth every{6, 1}, some{20, 3};
  // Is it the n-th rename or sync from the first rename on?
  struct FailsOnce {
    size_t left;
    bool renames = false;
    bool operator()(Call what) {
      renames |= what == Call::renameat;
      const bool counts = what == Call::renameat || what == Call::fsync || what == Call::fdatasync;
      return renames && counts && left-- == 0;
    }
  };

  const testing::TempDir dir;
  const std::string index = dir / "m.safetensors.index.json";
  const std::string old_a = pattern(4000, 1), old_b = pattern(100, 2), old_c = pattern(5000, 3),
                    old_d = pattern(100, 4);
  const std::string new_a = pattern(4000, 11), new_c = pattern(5000, 13), new_d = pattern(100, 14);
  Unsynced unsynced{os::Env::posix()};
  FaultEnv env{static_cast<os::Env &>(unsynced)};
};

TEST_F(ShownOfShards, ARefreshBesideItsOwnHandlesCommitShowsAllOfItOrNothing) {
  const struct {
    bool of_index, new_names;
    MapMode map;
  } cases[] = {{false, false, MapMode::automatic}, {true, false, MapMode::automatic},
               {false, true, MapMode::automatic},  {true, true, MapMode::automatic},
               {false, false, MapMode::none},      {false, false, MapMode::copy_on_write}};
  for (const auto &trial : cases) {
    const bool of_index = trial.of_index;
    SCOPED_TRACE(text("index ", of_index, " new names ", trial.new_names, " map ", static_cast<int>(trial.map)));
    each_call([&](size_t n, bool &more) {
      auto c = open(env, trial.map);
      ASSERT_EQ(state_of(c->catalogue(), of_index), State::old);
      auto t = begin_change(*c, of_index, trial.new_names);
      std::optional<Catalogue> beside;
      State then = State::mix;
      const auto look = [&] {
        EXPECT_TRUE(is_ok(c->refresh()));
        beside = c->catalogue();
        then = state_of(*beside, of_index);
        EXPECT_NE(then, State::mix);
      };
      more = during(Of::commit, n, look, [&] { ASSERT_TRUE(is_ok(t->commit())); });
      EXPECT_EQ(state_of(c->catalogue(), of_index), State::fresh);
      if (more) {
        EXPECT_EQ(state_of(*beside, of_index), then);
      }
    });
  }
}

// It goes on from an index that the handle does not show yet.
TEST_F(ShownOfShards, ARefreshBesideACommitShowsTheIndexThatAnotherHandleLeft) {
  each_call([&](size_t n, bool &more) {
    auto c = open_all();
    auto t = begin_change(*c, true);
    {
      auto other = open(unsynced);
      auto its = begin(*other);
      ASSERT_TRUE(is_ok(its->rename("d", "d2")));
      ASSERT_TRUE(is_ok(its->commit()));
    }
    const auto look = [&] {
      EXPECT_TRUE(is_ok(c->refresh()));
      const Catalogue beside = c->catalogue();
      EXPECT_NE(state_of(beside, true), State::mix);
      EXPECT_TRUE(same_bytes(of(beside, "d2"), old_d));
    };
    more = during(Of::commit, n, look, [&] { ASSERT_TRUE(is_ok(t->commit())); });
    EXPECT_EQ(state_of(c->catalogue(), true), State::fresh);
    EXPECT_TRUE(same_bytes(of(c->catalogue(), "d2"), old_d));
  });
}

// The first has given its locks back, and nobody has looked at its index yet. In the window of the second somebody
// does.
TEST_F(ShownOfShards, ARefreshBesideTheSecondOfTwoCommitsShowsAllOfTheFirst) {
  each_call([&](size_t n, bool &more) {
    auto c = open_all();
    auto first = begin(*c), second = begin(*c);
    ASSERT_TRUE(is_ok(first->rename("b", "e")));
    ASSERT_TRUE(is_ok(second->update("d", u8(new_d))));
    ASSERT_TRUE(is_ok(second->rename("c", "f")));
    const auto look = [&] {
      EXPECT_TRUE(is_ok(c->refresh()));
      const Catalogue beside = c->catalogue();
      EXPECT_TRUE(same_bytes(of(beside, "e"), old_b));
      const bool is_fresh = of(beside, "d") == new_d;
      EXPECT_TRUE(same_bytes(of(beside, is_fresh ? "f" : "c"), old_c));
    };
    enum class At { begin, first_renames, first_ends, second, second_renames, end } at = At::begin;
    size_t left = n;
    env.before = [&](Call what) {
      if (at == At::begin && what == Call::renameat) at = At::first_renames;
      if (at == At::second && what == Call::renameat) at = At::second_renames;
      if (at == At::second_renames && !more && left-- == 0) {
        more = true;
        look();
      }
      if (at == At::first_renames && what == Call::unlinkat) at = At::first_ends;  // of its super-journal
      if (at == At::first_ends) {
        at = At::second;
        at = second->commit() ? At::end : At::first_ends;  // as soon as it gets its locks
      }
      return 0;
    };
    EXPECT_TRUE(is_ok(first->commit()));
    EXPECT_EQ(at, At::end);
    env.before = nullptr;
    EXPECT_TRUE(same_bytes(of(c->catalogue(), "d"), new_d));
    EXPECT_TRUE(same_bytes(of(c->catalogue(), "e"), old_b));
    EXPECT_TRUE(same_bytes(of(c->catalogue(), "f"), old_c));
  });
}

// Its old files cannot be opened once more, and what was read of them stays what it was.
TEST_F(ShownOfShards, ARefreshAndACommitBesideItNeedNoFileThatIsGone) {
  for (const Of outer : {Of::commit, Of::refresh}) {
    SCOPED_TRACE(text("inside the ", outer == Of::commit ? "commit" : "refresh"));
    each_call([&](size_t n, bool &more) {
      auto c = open(env, MapMode::none);
      const Catalogue before = c->catalogue();
      ASSERT_EQ(state_of(before, false), State::old);
      auto t = begin_change(*c, false);
      const auto give_up = [&] { c->member_options().descriptors->give_up(os::Descriptors::GiveUp::all); };
      const auto commit = [&] {
        EXPECT_TRUE(is_ok(t->commit()));
        give_up();
      };
      const auto refresh = [&] {
        give_up();
        EXPECT_TRUE(is_ok(c->refresh()));
        EXPECT_NE(state_of(c->catalogue(), false), State::mix);
      };
      more = outer == Of::commit ? during(outer, n, refresh, commit) : during(outer, n, commit, refresh);
      EXPECT_EQ(state_of(before, false), State::old);
      EXPECT_EQ(state_of(c->catalogue(), false), more || outer == Of::commit ? State::fresh : State::old);
    });
  }
}

// What it has left to recovery is found by the next look.
TEST_F(ShownOfShards, ACommitThatWasNotFinishedWithholdsNothing) {
  for (const bool of_index : {false, true})
    for (size_t n = 0; n < 2; ++n) {
      SCOPED_TRACE(text("index ", of_index, " rename ", n));
      put_model();
      auto c = open(env);
      ASSERT_EQ(state_of(c->catalogue(), of_index), State::old);
      auto t = begin_change(*c, of_index);
      env.before = nth_call_fails(n, -EIO, true, [](Call call) { return call == Call::renameat; });
      EXPECT_TRUE(fails_with(Status::needs_recovery, t->commit()));
      env.before = nullptr;
      EXPECT_EQ(state_of(c->catalogue(), of_index), State::old);
      t.reset();
      ASSERT_TRUE(is_ok(c->refresh()));
      EXPECT_EQ(state_of(c->catalogue(), of_index), State::fresh);
    }
}

// The m-th rename or sync of the commit, from its first rename on, fails; then the refresh begins at once or n calls
// later, while the commit gives back what it has.
TEST_F(ShownOfShards, ARefreshBesideACommitThatFailsShowsAllOfItOrNothing) {
  for (const bool of_index : {false, true}) {
    bool fails = true;
    for (size_t m = 0; fails; ++m) {
      bool more = true;
      for (size_t n = some.first(); more; n += some.step) {
        SCOPED_TRACE(text("index ", of_index, " fails ", m, " call ", n));
        put_model();
        auto c = open(env);
        ASSERT_EQ(state_of(c->catalogue(), of_index), State::old);
        auto t = begin_change(*c, of_index);
        size_t left = n;
        fails = more = false;
        env.before = [&, fail = FailsOnce{m}](Call what) mutable {
          if (!fails) {
            fails = fail(what);
            return fails ? -EIO : 0;
          }
          if (!more && left-- == 0) {
            more = true;
            if (c->refresh()) {
              EXPECT_NE(state_of(c->catalogue(), of_index), State::mix);
            }
          }
          return 0;
        };
        const auto done = t->commit();
        env.before = nullptr;
        EXPECT_TRUE(done || done.error().status == Status::needs_recovery);
        t.reset();
        EXPECT_TRUE(is_ok(c->refresh()));
        EXPECT_EQ(state_of(c->catalogue(), of_index), State::fresh);
        if (HasFailure()) return;
      }
    }
  }
}

// The commit has begun before the refresh, and waits before the call that fails; or it begins and fails beside it.
TEST_F(ShownOfShards, ACommitThatFailsBesideARefreshShowsAllOfItOrNothing) {
  for (const bool of_index : {false, true})
    for (const bool begun_before : {false, true}) {
      bool fails = true;
      for (size_t m = 0; fails; ++m) {
        bool more = true;
        for (size_t n = some.first(); more; n += some.step) {
          SCOPED_TRACE(text("index ", of_index, " begun before ", begun_before, " fails ", m, " call ", n));
          put_model();
          auto c = open(env);
          ASSERT_EQ(state_of(c->catalogue(), of_index), State::old);
          auto t = begin_change(*c, of_index);
          std::promise<void> there, on;
          size_t left = n;
          bool refreshes = true;
          fails = more = false;
          std::thread committer;
          const auto commit = [&] {
            committer = std::thread([&] {
              const auto done = t->commit();
              EXPECT_TRUE(done || done.error().status == Status::needs_recovery);
              t.reset();
              if (!fails) there.set_value();
            });
            there.get_future().wait();
          };
          const auto let_it_end = [&] { on.set_value(), committer.join(); };
          env.before = [&, fail = FailsOnce{m}, refresher = std::this_thread::get_id()](Call what) mutable {
            if (std::this_thread::get_id() != refresher) {
              if (fails || !fail(what)) return 0;
              fails = true;
              there.set_value();
              on.get_future().wait();
              return -EIO;
            }
            if (refreshes && !more && left-- == 0) {
              more = true;
              if (!begun_before) commit();
              let_it_end();
            }
            return 0;
          };
          if (begun_before) commit();
          EXPECT_TRUE(is_ok(c->refresh()));
          refreshes = false;
          EXPECT_NE(state_of(c->catalogue(), of_index), State::mix);
          if (committer.joinable()) let_it_end();
          env.before = nullptr;
          if (HasFailure()) return;
        }
      }
    }
}

// Both happen beside one refresh. Another handle recovers what the commit has left.
TEST_F(ShownOfShards, ACommitThatFailsAndIsRecoveredBesideARefreshShowsAllOfItOrNothing) {
  constexpr size_t calls_at_a_shard = 6;  // between the one that opens it and the look for a journal beside it
  bool fails = true;
  for (size_t m = 0; fails; ++m) {
    bool more = true;
    for (size_t n = 0; more && n < calls_at_a_shard; ++n) {
      SCOPED_TRACE(text("fails before call ", m, ", recovered ", n, " calls later"));
      put_model();
      auto c = open(env);
      ASSERT_EQ(state_of(c->catalogue(), false), State::old);
      auto t = begin_change(*c, false);
      size_t before_fault = m, before_recovery = n;
      bool commits = false;
      fails = more = false;
      env.before = [&, fail = FailsOnce{0}](Call what) mutable {
        if (commits) return fail(what) ? -EIO : 0;
        if (!fails && before_fault-- == 0) {
          fails = commits = true;
          EXPECT_TRUE(fails_with(Status::needs_recovery, t->commit()));
          t.reset();
          commits = false;
        }
        if (fails && !more && before_recovery-- == 0) {
          more = true;
          OpenOptions options;
          options.writable = true;
          options.lock_timeout_ms = 0;
          static_cast<void>(Shards::open(unsynced, index, options));  // in vain while the refresh recovers
        }
        return 0;
      };
      EXPECT_TRUE(is_ok(c->refresh()));
      EXPECT_NE(state_of(c->catalogue(), false), State::mix);
      env.before = nullptr;
      if (HasFailure()) return;
    }
  }
}

// The later one recovers what the commit has left, and stops when it has found the shards. The earlier one has read the
// index before. Both are then at the last calls of their refresh.
TEST_F(ShownOfShards, OfTwoRefreshesBesideACommitThatFailsNoneShowsTheOthersShardsAlone) {
  constexpr size_t last = 3;
  size_t calls_of_earlier = 0, calls_of_later = 0;
  const auto counts = [](size_t &calls) { return [&calls](Call) { return ++calls, 0; }; };
  put_model();
  auto alone = open(env);
  ASSERT_EQ(state_of(alone->catalogue(), true), State::old);
  env.before = counts(calls_of_earlier);
  ASSERT_TRUE(is_ok(alone->refresh()));
  env.before = nullptr;
  alone.reset();
  for (size_t m = 1; m <= std::min(last, calls_of_earlier); ++m)
    for (size_t n = 0; n <= last; ++n) {  // 0: the later one does not stop, and counts
      SCOPED_TRACE(text("fails before the last call but ", m, ", the later stops before the last but ", n));
      put_model();
      auto c = open(env);
      ASSERT_EQ(state_of(c->catalogue(), true), State::old);
      auto t = begin_change(*c, true);
      std::promise<void> there, on;
      std::thread later;
      size_t before_fault = calls_of_earlier - m, before_stop = n == 0 ? SIZE_MAX : calls_of_later - n;
      if (n == 0) calls_of_later = 0;
      bool fails = false, commits = false, stops = false;
      env.before = [&, fail = FailsOnce{0}, earlier = std::this_thread::get_id()](Call what) mutable {
        if (std::this_thread::get_id() != earlier) {
          if (n == 0) ++calls_of_later;
          if (stops || before_stop-- > 0) return 0;
          stops = true;
          there.set_value();
          on.get_future().wait();
          return 0;
        }
        if (commits) return fail(what) ? -EIO : 0;
        if (fails || before_fault-- > 0) return 0;
        fails = commits = true;
        EXPECT_TRUE(fails_with(Status::needs_recovery, t->commit()));
        t.reset();
        commits = false;
        later = std::thread([&] {
          EXPECT_TRUE(is_ok(c->refresh()));
          if (!stops) there.set_value();
        });
        there.get_future().wait();
        return 0;
      };
      EXPECT_TRUE(is_ok(c->refresh()));
      EXPECT_NE(state_of(c->catalogue(), true), State::mix);
      if (stops) on.set_value();
      if (later.joinable()) later.join();
      env.before = nullptr;
      if (HasFailure()) return;
    }
}

// Its recovery gives the shard's name to another file than the one that was opened first.
TEST_F(ShownOfShards, AShardThatIsOpenedAloneIsTheOneThatItsRecoveryLeaves) {
  put_model();
  auto c = open(env);
  auto t = begin_change(*c, false);
  env.before = nth_call_fails(0, -EIO, true, [](Call call) { return call == Call::renameat; });
  EXPECT_TRUE(fails_with(Status::needs_recovery, t->commit()));
  env.before = nullptr;
  t.reset(), c.reset();
  OpenOptions options;
  options.writable = true;
  auto shard = DataFile::open(env, dir / "m-1.safetensors", options);
  ASSERT_TRUE(is_ok(shard));
  const HeldSnapshot shown = (*shard)->hold();
  std::string a(new_a.size(), '\0');
  ASSERT_TRUE(is_ok((*shard)->read(*shown, shown->header.index.find("a").value(), a.data())));
  EXPECT_TRUE(same_bytes(a, new_a));
}

TEST_F(ShownOfShards, ACommitOfAnotherShardBesideItShowsAllOfItOrNothing) {
  for (const bool of_index : {false, true}) {
    SCOPED_TRACE(text("index ", of_index));
    each_call([&](size_t n, bool &more) {
      auto c = open(env);
      auto t = begin_change(*c, of_index);
      const auto commit = [&] {
        auto other = begin(*c);
        ASSERT_TRUE(is_ok(other->update("d", u8(new_d))));
        if (!other->commit()) return;  // not while the first has all locks
        const Catalogue beside = c->catalogue();
        EXPECT_NE(state_of(beside, of_index), State::mix);
        EXPECT_TRUE(same_bytes(of(beside, "d"), new_d));
      };
      more = during(Of::commit, n, commit, [&] { ASSERT_TRUE(is_ok(t->commit())); });
      EXPECT_EQ(state_of(c->catalogue(), of_index), State::fresh);
    });
  }
}

// Another writer has changed its shard, and others with it.
TEST_F(ShownOfShards, ACommitThatFollowsAChangeOfSeveralShardsShowsAllOfIt) {
  for (const bool publish : {true, false}) {
    SCOPED_TRACE(publish);
    put_model();
    auto c = open(env);
    ASSERT_EQ(state_of(c->catalogue(), false), State::old);
    auto t = begin(*c, false, publish);
    ASSERT_TRUE(is_ok(t->update("b", u8(new_d))));
    {
      auto other = open(unsynced);
      ASSERT_TRUE(is_ok(begin_change(*other, false)->commit()));
    }
    ASSERT_TRUE(is_ok(t->commit()));
    EXPECT_EQ(state_of(c->catalogue(), false), State::fresh);
    EXPECT_TRUE(same_bytes(of(c->catalogue(), "b"), new_d));
  }
}

// It touches none of those shards, and shows what another handle has committed there, as it shows the index.
TEST_F(ShownOfShards, ACommitElsewhereShowsAllOfWhatAnotherHandleHasCommitted) {
  for (const bool changes_index : {false, true}) {
    SCOPED_TRACE(changes_index);
    put_model();
    auto c = open_all();
    ASSERT_TRUE(is_ok(begin_change(*open(unsynced), true)->commit()));
    auto t = begin(*c);
    ASSERT_TRUE(is_ok(t->update("d", u8(new_d))));
    if (changes_index) {
      ASSERT_TRUE(is_ok(t->set_metadata("more", "yes")));
    }
    ASSERT_TRUE(is_ok(t->commit()));
    EXPECT_EQ(state_of(c->catalogue(), true), State::fresh);
    EXPECT_TRUE(same_bytes(of(c->catalogue(), "d"), new_d));
  }
}

// It has found one of the shards that another handle has changed, and then another shard was locked.
TEST_F(ShownOfShards, WhatACommitInVainHasFoundIsNotShownAlone) {
  put_model();
  auto c = open_all();
  ASSERT_TRUE(is_ok(begin_change(*open(unsynced), false)->commit()));
  {
    auto in_vain = begin(*c);
    ASSERT_TRUE(is_ok(in_vain->update("b", u8(new_d))));
    ASSERT_TRUE(is_ok(in_vain->update("d", u8(new_d))));
    const std::string path = dir / "m-3.safetensors";
    const auto file = *os::File::open(unsynced, AT_FDCWD, path, O_RDWR, 0, path);
    const auto locked = os::RangeLock::acquire(file, {os::whole_file(true)}, {});
    ASSERT_TRUE(is_ok(locked));
    EXPECT_TRUE(fails_with(Status::busy, in_vain->commit()));
  }
  EXPECT_NE(state_of(c->catalogue(), false), State::mix);
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("d", u8(new_d))));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(state_of(c->catalogue(), false), State::fresh);
}

// Begun before, and of another shard.
TEST_F(ShownOfShards, AfterACommitThatFailsHalfWayNoOtherIsMade) {
  put_model();
  auto c = open_all();
  auto fails = begin_change(*c, true), other = begin(*c);
  ASSERT_TRUE(is_ok(other->update("d", u8(new_d))));
  env.before = [fail = FailsOnce{0}](Call what) mutable { return fail(what) ? -EIO : 0; };
  EXPECT_TRUE(fails_with(Status::needs_recovery, fails->commit()));
  env.before = nullptr;
  EXPECT_TRUE(fails_with(Status::poisoned, other->commit()));
  EXPECT_NE(state_of(c->catalogue(), true), State::mix);
  fails.reset();
  other.reset();
  EXPECT_TRUE(is_ok(c->refresh()));
  EXPECT_EQ(state_of(c->catalogue(), true), State::fresh);
}

// What it follows to is its own handle's, and came with nothing else.
TEST_F(ShownOfShards, ACommitThatFollowsAnotherOfItsHandleLooksAtNoOtherShard) {
  size_t opens[2] = {};
  for (const bool others_are_open : {false, true}) {
    put_model();
    auto c = open(env);
    of(c->catalogue(), "a");
    if (others_are_open) of(c->catalogue(), "c"), of(c->catalogue(), "d");
    auto first = begin(*c), second = begin(*c);
    ASSERT_TRUE(is_ok(first->update("a", u8(new_a))));
    ASSERT_TRUE(is_ok(second->update("b", u8(new_d))));
    ASSERT_TRUE(is_ok(first->commit()));
    env.calls.clear();
    ASSERT_TRUE(is_ok(second->commit()));
    opens[others_are_open] = std::count(env.calls.begin(), env.calls.end(), Call::openat);
    EXPECT_TRUE(same_bytes(of(c->catalogue(), "a"), new_a));
    EXPECT_TRUE(same_bytes(of(c->catalogue(), "b"), new_d));
  }
  EXPECT_EQ(opens[true], opens[false]);
}

// Another handle's commit takes it out of the index, and it is removed. What was read of it stays.
TEST_F(ShownOfShards, ARefreshBesideWhichAShardGoesShowsWhatIsLeft) {
  each_call([&](size_t n, bool &more) {
    auto c = open(env, MapMode::none);
    const Catalogue before = c->catalogue();
    ASSERT_EQ(state_of(before, false), State::old);
    ASSERT_TRUE(same_bytes(of(before, "d"), old_d));
    const auto take_d_out = [&] {
      c->member_options().descriptors->give_up(os::Descriptors::GiveUp::all);
      replace_by(index, R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
      std::filesystem::remove(dir / "m-3.safetensors");
    };
    more = during(Of::refresh, n, take_d_out, [&] { ASSERT_TRUE(is_ok(c->refresh())); });
    EXPECT_EQ(state_of(c->catalogue(), false), State::old);
    EXPECT_TRUE(same_bytes(of(before, "d"), old_d));
  });
}

// What nobody looked at may be put away. Up to the end somebody may come and look.
TEST_F(ShownOfShards, WhatIsLookedAtBesideARefreshShowsByTheNextWhatOthersPatch) {
  each_call([&](size_t n, bool &more) {
    auto c = open(env, MapMode::none), other = open(unsynced);
    ASSERT_TRUE(same_bytes(of(c->catalogue(), "a"), old_a));
    std::optional<Catalogue> taken;
    const auto look = [&] {
      taken.emplace(c->catalogue());
      ASSERT_TRUE(same_bytes(of(*taken, "a"), old_a));
    };
    more = during(Of::refresh, n, look, [&] { ASSERT_TRUE(is_ok(c->refresh())); });
    if (!more) return;
    auto t = begin(*other, false, false);
    ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
    ASSERT_TRUE(is_ok(t->commit()));
    ASSERT_TRUE(is_ok(c->refresh()));
    EXPECT_TRUE(same_bytes(of(*taken, "a"), new_a));
    EXPECT_TRUE(same_bytes(of(c->catalogue(), "a"), new_a));
  });
}

TEST_F(ShownOfShards, ACommitBesideARefreshShowsAllThatItFindsOrNothing) {
  each_call([&](size_t n, bool &more) {
    auto c = open_all();
    {
      auto other = open(unsynced);
      ASSERT_TRUE(is_ok(begin_change(*other, false)->commit()));
    }
    const auto commit = [&] {
      auto own = begin(*c);
      ASSERT_TRUE(is_ok(own->update("d", u8(new_d))));
      ASSERT_TRUE(is_ok(own->commit()));
      const Catalogue beside = c->catalogue();
      EXPECT_NE(state_of(beside, false), State::mix);
      EXPECT_TRUE(same_bytes(of(beside, "d"), new_d));
    };
    more = during(Of::refresh, n, commit, [&] { ASSERT_TRUE(is_ok(c->refresh())); });
    EXPECT_EQ(state_of(c->catalogue(), false), State::fresh);
    if (more) {
      EXPECT_TRUE(same_bytes(of(c->catalogue(), "d"), new_d));
    }
  });
}

// The earlier one stops before its n-th call, and goes on when the later one is as far.
TEST_F(ShownOfShards, OfTwoRefreshesThatWhichLookedEarlierHidesNothing) {
  each_call([&](size_t n, bool &more) {
    auto c = open(env, MapMode::copy_on_write);
    ASSERT_EQ(state_of(c->catalogue(), false), State::old);
    std::promise<void> there, on;
    size_t calls_of_earlier = 0, calls_of_later = 0;
    std::thread earlier;
    const auto let_it_end = [&] { on.set_value(), earlier.join(); };
    env.before = [&, later = std::this_thread::get_id()](Call) {
      if (std::this_thread::get_id() == later) {
        if (calls_of_later++ == n) let_it_end();
      } else if (calls_of_earlier++ == n) {
        there.set_value();
        on.get_future().wait();
      }
      return 0;
    };
    earlier = std::thread([&] {
      EXPECT_TRUE(is_ok(c->refresh()));
      if (calls_of_earlier <= n) there.set_value();
    });
    there.get_future().wait();
    more = calls_of_earlier > n;
    auto other = open(unsynced);
    EXPECT_TRUE(is_ok(begin_change(*other, false)->commit()));
    EXPECT_TRUE(is_ok(c->refresh()));
    if (earlier.joinable()) let_it_end();
    env.before = nullptr;
    EXPECT_EQ(state_of(c->catalogue(), false), State::fresh);
  });
}

// A patch of several shards decides between the look at the old bytes and the write of the new ones.
TEST_F(ShownOfShards, WhatIsMappedCopyOnWriteWhileACommitGoesOnShowsNoMoreOfIt) {
  put_model();
  auto c = open(env);
  auto t = begin(*c, false, false);
  ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
  ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
  MappedMeanwhile first(os::Env::posix(), dir / "m-1.safetensors"), second(os::Env::posix(), dir / "m-2.safetensors");
  env.before = [&](Call call) {
    first.map_at(call);
    second.map_at(call);
    return 0;
  };
  ASSERT_TRUE(is_ok(t->commit()));
  env.before = nullptr;
  EXPECT_EQ(state_of(c->catalogue(), false), State::fresh);
  EXPECT_GT(first.count(), 4u);
  EXPECT_EQ(first.changed() + second.changed(), 0);
}

}  // namespace
}  // namespace st::store
