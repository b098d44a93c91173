// A shard that is opened when others of the model already are: by a handle, by a state that is kept, and by a
// transaction. What others have committed meanwhile is shown as a whole, or not at all.
#include <gtest/gtest.h>

#include <cerrno>

#include "bound.h"
#include "shards/shards.h"
#include "shards_scene.h"
#include "unsynced_env.h"

namespace st::store {
namespace {

using namespace testing;
using read::MapMode;
using testing::Call;

class LateOpen : public testing::ShardsScene {
 protected:
  LateOpen() { put_model(); }
  void put_model() const {
    put_shards(dir.path());
    put_bytes(dir / "m-3.safetensors", file_of(std::vector{u8_tensor("d", 100, 4)}));
    put_bytes(index, R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors",)"
                     R"("c":"m-2.safetensors","d":"m-3.safetensors"}})");
  }
  std::unique_ptr<Shards> open(os::Env &with, MapMode map = MapMode::automatic) const {
    OpenOptions options;
    options.writable = true;
    options.map = map;
    auto opened = Shards::open(with, index, options);
    EXPECT_TRUE(is_ok(opened));
    return opened ? std::move(*opened) : nullptr;
  }
  std::unique_ptr<AnyTransaction> begin(Shards &shards, TransactionOptions options) const {
    auto begun = shards.begin(std::move(options));
    EXPECT_TRUE(is_ok(begun));
    return begun ? std::move(*begun) : nullptr;
  }
  std::unique_ptr<AnyTransaction> begin(Shards &shards, bool publish = true) const {
    TransactionOptions options;
    options.publish = publish;
    return begin(shards, std::move(options));
  }
  void change(Shards &by, const std::vector<std::string_view> &names, bool publish = true) const {
    const auto t = begin(by, publish);
    for (const std::string_view name : names) ASSERT_TRUE(is_ok(t->update(name, u8(fresh(name)))));
    ASSERT_TRUE(is_ok(t->commit()));
  }
  void change_by_another(const std::vector<std::string_view> &names, bool publish = true) const {
    change(*open(unsynced), names, publish);
  }
  const std::string &fresh(std::string_view name) const { return name == "a" ? new_a : name == "c" ? new_c : new_d; }
  // "old", "new", or the name of the status.
  std::string one(const Catalogue &state, std::string_view name) const {
    const auto place = state.find(name);
    if (!place) return std::string(name_of(place.error().status));
    std::string out(place->tensor().nbytes, '\0');
    if (const auto read = place->member->read(*place->snapshot, place->index, out.data()); !read)
      return std::string(name_of(read.error().status));
    return out == fresh(name) ? "new" : "old";
  }
  static std::string name_of(Status s) {
    return s == Status::file_changed ? "changed" : text("status ", static_cast<int>(s));
  }
  template <class T>
  static Status status_of(const Result<T> &r) {
    return r ? Status::ok : r.error().status;
  }
  std::string look(const Catalogue &state, const std::vector<std::string_view> &names) const {
    std::string all;
    for (const std::string_view name : names) all += (all.empty() ? "" : " ") + one(state, name);
    return all;
  }
  static void keep(const Catalogue &state) { ASSERT_TRUE(is_ok(state.several()->remember_unopened())); }
  // Before the n-th system call of `call`. Whether there were as many.
  bool before_call(size_t n, const std::function<void()> &then, const std::function<void()> &call) {
    bool came = false;
    env.before = [&, left = n](Call) mutable {
      if (!came && left-- == 0) {
        came = true;
        then();
      }
      return 0;
    };
    call();
    env.before = nullptr;
    return came;
  }

  const testing::TempDir dir;
  const std::string index = dir / "m.safetensors.index.json";
  const std::string new_a = pattern(4000, 11), new_c = pattern(5000, 13), new_d = pattern(100, 14);
  mutable Unsynced unsynced{os::Env::posix()};
  FaultEnv env{static_cast<os::Env &>(unsynced)};
  testing::EveryNth every{6, 1};
};

TEST_F(LateOpen, AHandleShowsNoPartOfACommitByAnother) {
  for (const MapMode map : {MapMode::automatic, MapMode::none}) {
    put_model();
    const auto c = open(env, map);
    EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
    change_by_another({"a", "c"});
    EXPECT_EQ(look(c->catalogue(), {"c", "a", "c", "d"}), "changed old changed changed");
    const auto all = c->catalogue().all();
    ASSERT_FALSE(all);
    EXPECT_EQ(all.error().status, Status::file_changed);
    EXPECT_EQ(all.error().shard, 0);
    ASSERT_TRUE(is_ok(c->refresh()));
    EXPECT_EQ(look(c->catalogue(), {"a", "c", "d"}), "new new old");
  }
}

TEST_F(LateOpen, OneThatWasReplacedAloneGoesWithTheOthers) {
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  change_by_another({"c"});
  EXPECT_EQ(look(c->catalogue(), {"c", "d", "a"}), "new old old");
}

TEST_F(LateOpen, APatchReplacesNothing) {
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  change_by_another({"a", "c"}, false);
  EXPECT_EQ(look(c->catalogue(), {"a", "c", "d"}), "new new old");
}

// Whichever shards it changes.
TEST_F(LateOpen, OnesOwnCommitIsInNobodysWay) {
  for (const bool several : {false, true}) {
    put_model();
    const auto c = open(env);
    const Catalogue before = c->catalogue();
    EXPECT_EQ(look(before, {"a"}), "old");
    change(*c, several ? std::vector<std::string_view>{"a", "c"} : std::vector<std::string_view>{"a"});
    EXPECT_EQ(look(before, {"a", "d", "c"}), "old old old");
    EXPECT_EQ(look(c->catalogue(), {"a", "d", "c"}), several ? "new old new" : "new old old");
  }
}

// Before each of its system calls.
TEST_F(LateOpen, ACallBesideACommitByAnotherShowsOneState) {
  bool more = true;
  for (size_t n = every.first(); more; n += every.step) {
    SCOPED_TRACE(text("call ", n));
    put_model();
    const auto c = open(env);
    std::string seen;
    more = before_call(
        n,
        [&] {
          change_by_another({"a", "c"});
        },
        [&] {
          const Catalogue state = c->catalogue();
          if (!state.range(1, 2)) seen = "changed changed";
        });
    if (seen.empty()) seen = look(c->catalogue(), {"a", "c"});
    EXPECT_TRUE(seen == "old old" || seen == "new new" || seen == "changed changed") << seen;
    if (HasFailure()) return;
  }
}

TEST_F(LateOpen, AHandleOpensMoreBesideItsOwnCommits) {
  bool more = true;
  for (size_t n = every.first(); more; n += every.step) {
    SCOPED_TRACE(text("call ", n));
    put_model();
    const auto c = open(env);
    const Catalogue before = c->catalogue();
    EXPECT_EQ(look(before, {"a"}), "old");
    std::string seen;
    more = before_call(
        n, [&] { seen = look(c->catalogue(), {"d"}) + " " + look(before, {"d"}); },
        [&] {
          change(*c, {"a", "c"});
        });
    EXPECT_TRUE(!more || seen == "old old") << seen;
    EXPECT_EQ(look(before, {"a", "c"}), "old old");
    EXPECT_EQ(look(c->catalogue(), {"a", "c", "d"}), "new new old");
    if (HasFailure()) return;
  }
}

// Another commits c and d, and another thread then asks the same state for d.
TEST_F(LateOpen, TwoCallsThatOpenShardsBesideEachOtherShowOneState) {
  bool more = true;
  for (size_t n = every.first(); more; n += every.step) {
    SCOPED_TRACE(text("call ", n));
    put_model();
    const auto shards = open(env);
    const Catalogue state = shards->catalogue();
    EXPECT_EQ(look(state, {"a"}), "old");
    std::string d, c;
    more = before_call(
        n,
        [&] {
          change_by_another({"c", "d"});
          d = one(state, "d");
        },
        [&] { c = one(state, "c"); });
    EXPECT_TRUE(!more || c == d || c == "changed" || d == "changed") << c << ' ' << d;
    if (HasFailure()) return;
  }
}

TEST_F(LateOpen, WhatIsReplacedAllTheTimeIsToldAsAChange) {
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  const Catalogue kept = c->catalogue();
  env.before = [&](Call what) {
    if (what == Call::fstatat) change_by_another({"c"});
    return 0;
  };
  keep(kept);
  EXPECT_EQ(look(kept, {"c"}), "changed");
  env.before = nullptr;
  EXPECT_EQ(look(kept, {"c", "d"}), "new old");
}

TEST_F(LateOpen, EachCallMayFail) {
  const auto expect_io = [&](size_t n, const auto &call) {
    size_t left = n;
    bool failed = false;
    env.before = [&](Call) { return left-- == 0 ? (failed = true, EIO) : 0; };
    const Result<void> done = call();
    env.before = nullptr;
    EXPECT_TRUE(done || done.error().status == Status::io) << done.error().message;
    return failed;
  };
  bool more = true;
  for (size_t n = 0; more; ++n) {
    SCOPED_TRACE(text("call ", n));
    const auto c = open(env);
    EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
    const Catalogue kept = c->catalogue();
    more = expect_io(n, [&] { return kept.several()->remember_unopened(); });
    more |= expect_io(n, [&]() -> Result<void> {
      ST_TRY(kept.range(2, 2));
      return {};
    });
    EXPECT_EQ(look(kept, {"a", "c", "d"}), "old old old");
  }
}

TEST_F(LateOpen, ATransactionGoesOnFromWhatOthersHaveCommitted) {
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  change_by_another({"a", "c"});
  EXPECT_EQ(look(c->catalogue(), {"c"}), "changed");
  change(*c, {"d"});
  EXPECT_EQ(look(c->catalogue(), {"a", "c", "d"}), "new new new");
}

TEST_F(LateOpen, WhatIsAskedBeforeAChangeIsAskedOfOneState) {
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  const auto t = begin(*c);
  t->before_change([](auto) -> Result<void> { return {}; });
  change_by_another({"a", "c"});
  EXPECT_EQ(status_of(t->update("d", u8(new_d))), Status::file_changed);
}

// Its first shard need not be replaced.
TEST_F(LateOpen, AKeptStateOpensWhatWasThereWhenItWasKept) {
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  const Catalogue kept = c->catalogue();
  keep(kept);
  keep(kept);
  change_by_another({"a"});
  EXPECT_EQ(look(kept, {"a", "d"}), "old old");
  change_by_another({"c"});
  EXPECT_EQ(look(kept, {"c"}), "changed");
  ASSERT_TRUE(is_ok(c->refresh()));
  EXPECT_EQ(look(kept, {"a", "c", "d"}), "old changed old");
  EXPECT_EQ(look(c->catalogue(), {"a", "c", "d"}), "new new old");
}

TEST_F(LateOpen, AKeptStateWithoutOpenShards) {
  const auto c = open(env);
  const Catalogue kept = c->catalogue();
  keep(kept);
  change_by_another({"a", "c"});
  change_by_another({"d"}, false);
  EXPECT_EQ(look(kept, {"a", "c", "d"}), "changed changed new");
}

TEST_F(LateOpen, WhatIsKeptWhenTheHandleIsBehindShowsNoPart) {
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  change_by_another({"a", "c"});
  const Catalogue kept = c->catalogue();
  keep(kept);
  EXPECT_EQ(look(kept, {"a", "c", "d"}), "old changed changed");
}

// Before each of its system calls, and each of the commit's.
TEST_F(LateOpen, AStateThatIsKeptBesideACommitIsOneState) {
  const auto expect_one = [&](const Catalogue &kept) {
    const std::string c = one(kept, "c"), a = one(kept, "a");
    EXPECT_TRUE(a == c || a == "changed" || c == "changed") << a << ' ' << c;
  };
  bool more = true;
  for (size_t n = every.first(); more; n += every.step) {
    SCOPED_TRACE(text("call ", n));
    put_model();
    const auto c = open(env);
    const Catalogue kept = c->catalogue();
    more = before_call(
        n,
        [&] {
          change_by_another({"a", "c"});
        },
        [&] { keep(kept); });
    expect_one(kept);
    if (HasFailure()) return;
  }
  more = true;
  for (size_t n = every.first(); more; n += every.step) {
    SCOPED_TRACE(text("call ", n, " of the commit"));
    put_model();
    const auto c = open(unsynced), other = open(env);
    const Catalogue kept = c->catalogue();
    more = before_call(
        n, [&] { keep(kept); },
        [&] {
          change(*other, {"a", "c"});
        });
    expect_one(kept);
    if (HasFailure()) return;
  }
}

// The shards are removed before anything could be locked.
TEST_F(LateOpen, AnOldShardThatHasGoneIsToldAsAChange) {
  for (const bool of_index : {false, true}) {
    put_model();
    const auto c = open(env), other = open(unsynced);
    const auto t = begin(*c);
    ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
    ASSERT_TRUE(is_ok(of_index ? t->rename("a", "e") : t->update("a", u8(new_a))));
    TransactionOptions options;
    options.publish = options.new_names = true;
    options.shard_grace_s = 0;
    for (const char *name : {"a", "d"}) {  // the second removes what the first has left
      const auto its = begin(*other, options);
      ASSERT_TRUE(is_ok(its->update(name, u8(fresh(name)))));
      ASSERT_TRUE(is_ok(its->commit()));
    }
    EXPECT_EQ(status_of(t->plan()), Status::file_changed);
    EXPECT_EQ(status_of(t->commit()), Status::file_changed);
  }
}

}  // namespace
}  // namespace st::store
