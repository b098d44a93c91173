// Commits under new names: how long old shards stay, what is never removed, and which handles expect a new name. Also
// what links, other indexes and lists that nobody wrote do to them.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crash_scene.h"
#include "engine/open.h"
#include "engine/recover_all.h"
#include "engine/verify.h"
#include "lock_of_file.h"
#include "model/model.h"
#include "read_only_env.h"
#include "shards/old_list.h"
#include "shards/shards.h"
#include "shards_scene.h"
#include "stale_env.h"
#include "told_progress.h"

namespace st::store {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

// Time goes by when a test says so.
class Calendar : public testing::FaultEnv {
 public:
  Calendar() : FaultEnv(os::Env::posix()) {}
  uint64_t unix_time() override { return now; }
  int openat(int dir, const char *path, int flags, mode_t mode) override {
    if (creating != 0 && flags & O_CREAT) return creating;
    if (!vanishing.empty() && vanishing.ends_with(std::string("/") + path)) fs::remove(vanishing);
    return FaultEnv::openat(dir, path, flags, mode);
  }
  uint64_t now = 1000000;
  int creating = 0;       // what is answered to that
  std::string vanishing;  // somebody removes it just before it is opened
};

class NewNames : public testing::ShardsScene {
 protected:
  NewNames() { put_anew(); }
  void put_anew() {
    fs::remove_all(ckpt);
    fs::create_directory(ckpt);
    put_shards(ckpt);
    put_bytes(index, R"({"metadata":{"total_size":9100},"weight_map":)"
                     R"({"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
  }
  std::unique_ptr<Model> open(os::Env &with, const std::string &path) {
    OpenOptions options;
    options.writable = true;
    options.lock_timeout_ms = 0;
    options.log = [this](LogLevel, const std::string &m) {
      told += m + "\n";
      const testing::LockOfFile free(index);
    };
    auto opened = open_path(with, path, options);
    EXPECT_TRUE(is_ok(opened));
    return opened ? std::move(*opened) : nullptr;
  }
  std::unique_ptr<Model> open() { return open(env, index); }
  static TransactionOptions new_names(uint32_t grace_s = 60) {
    TransactionOptions options;
    options.lock_timeout_ms = 0;
    options.new_names = true;
    options.shard_grace_s = grace_s;
    return options;
  }
  static Result<void> rename(Model &c, const std::string &from, const std::string &to,
                             const TransactionOptions &options = new_names()) {
    auto begun = c.begin(options);
    if (!begun) return Failure(std::move(begun.error()));
    if (auto staged = (*begun)->rename(from, to); !staged) return staged;
    return (*begun)->commit();
  }
  Result<write::Recovered> recover(os::Env &with) {
    return recover_all(with, index, {}, [this](const write::Finding &f) { return told += f.message + "\n", true; });
  }
  std::vector<std::string> names() const { return names_in(ckpt); }
  // Those of the files but indexes and what belongs to them.
  std::vector<std::string> shards() const {
    std::vector<std::string> out;
    for (const std::string &name : names())
      if (name.find(".index.json") == std::string::npos) out.push_back(name);
    return out;
  }
  void forge(const std::vector<write::OldShard> &list) const { put_bytes(list_path, write::spell(list)); }
  static write::OldShard as_it_is(const std::string &path, const std::string &name) {
    struct stat s;
    EXPECT_EQ(::lstat(path.c_str(), &s), 0);
    return {name, s.st_ino, static_cast<uint64_t>(s.st_size),
            static_cast<uint64_t>(s.st_mtim.tv_sec) * 1000000000 + static_cast<uint64_t>(s.st_mtim.tv_nsec), 0};
  }

  const testing::TempDir dir;
  const std::string ckpt = dir / "ckpt", index = ckpt + "/m.safetensors.index.json", list_path = index + ".st-old";
  Calendar env;
  std::string told;
};

TEST_F(NewNames, OldShardsStayUntilTheFirstCommitAfterTheirTime) {
  auto c = open();
  ASSERT_TRUE(is_ok(rename(*c, "a", "x")));
  EXPECT_THAT(shards(), ElementsAre("m-1.g1.safetensors", "m-1.safetensors", "m-2.safetensors"));
  EXPECT_TRUE(same_bytes(bytes(*c, "x"), pattern(4000, 1)));
  env.now += 59;
  ASSERT_TRUE(is_ok(rename(*c, "c", "y")));
  EXPECT_THAT(shards(), ElementsAre("m-1.g1.safetensors", "m-1.safetensors", "m-2.g2.safetensors", "m-2.safetensors"));
  env.now += 1;
  ASSERT_TRUE(is_ok(rename(*c, "x", "a")));
  EXPECT_THAT(shards(),
              ElementsAre("m-1.g1.safetensors", "m-1.g3.safetensors", "m-2.g2.safetensors", "m-2.safetensors"));
  env.now += 60;
  // Also one that changes no shard.
  auto begun = c->begin(new_names());
  ASSERT_TRUE(is_ok((*begun)->set_metadata("by", "me")));
  ASSERT_TRUE(is_ok((*begun)->commit()));
  EXPECT_THAT(shards(), ElementsAre("m-1.g3.safetensors", "m-2.g2.safetensors"));
  begun->reset();
  c.reset();
  EXPECT_TRUE(is_ok(verify(env, index, {}, {})));
}

TEST_F(NewNames, RecoveryRemovesOldShardsBeforeTheirTimeAndTellsOfEach) {
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  std::string found;
  ASSERT_TRUE(is_ok(verify(env, index, {}, [&](const Finding &f) { return found += f.message + "\n", true; })));
  EXPECT_THAT(found, HasSubstr("m-1.safetensors' is an old shard of "));
  EXPECT_THAT(found, HasSubstr("until 1970-01-12 13:47:40 UTC"));
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_THAT(told, HasSubstr("old shard '" + ckpt + "/m-1.safetensors' was removed"));
  EXPECT_THAT(names(), ElementsAre("m-1.g1.safetensors", "m-2.safetensors", "m.safetensors.index.json"));
}

TEST_F(NewNames, AListThatGoesWhileItIsLookedAtIsNone) {
  for (const bool recovers : {true, false}) {
    ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
    ASSERT_TRUE(fs::exists(list_path));
    Calendar meanwhile;
    meanwhile.vanishing = list_path;
    if (recovers) {
      EXPECT_TRUE(is_ok(recover(meanwhile)));
    } else {
      EXPECT_TRUE(is_ok(verify(meanwhile, index, {}, {})));
    }
    ASSERT_FALSE(fs::exists(list_path));
    ASSERT_TRUE(is_ok(rename(*open(), "x", "a")));
  }
}

// By a commit, whatever becomes of it, and by a recovery. Nothing is locked then.
TEST_F(NewNames, WhoIsToldOfOldShardsMayUseTheCheckpoint) {
  enum class By { commit, failed_commit, recovery };
  for (const By by : {By::commit, By::failed_commit, By::recovery}) {
    SCOPED_TRACE(static_cast<int>(by));
    fs::remove_all(ckpt);
    fs::create_directory(ckpt);
    put_shards(ckpt);
    put_bytes(index, R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
    ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
    env.now += 60;
    size_t told_of = 0;
    const auto use = [&](LogLevel, const std::string &message) {
      EXPECT_THAT(message, HasSubstr("was removed"));
      ++told_of;
      env.before = nullptr;
      const auto other = open();
      EXPECT_TRUE(is_ok(rename(*other, "b", "y")));
      EXPECT_EQ(bytes(*other, "y").size(), 100u);
    };
    if (by == By::recovery) {
      ASSERT_TRUE(is_ok(recover_all(env, index, {}, [&](const auto &f) { return use(f.level, f.message), true; })));
    } else {
      OpenOptions options;
      options.writable = true;
      options.log = use;
      auto c = open_path(env, index, options);
      ASSERT_TRUE(is_ok(c));
      env.before = [&](testing::Call what) {
        return by == By::failed_commit && what == testing::Call::renameat ? -EIO : 0;
      };
      const auto done = rename(**c, "c", "z");
      EXPECT_TRUE(by == By::commit ? is_ok(done) : fails_with(Status::io, done));
    }
    EXPECT_EQ(told_of, 1u);
    EXPECT_TRUE(same_bytes(bytes(*open(), by == By::commit ? "z" : "c"), pattern(5000, 3)));
  }
}

// The new index needs no journal of its own. What waits beside the old one would be lost.
TEST_F(NewNames, ARecordThatMayWaitInAPublicPlaceKeepsThemOut) {
  const std::string folder = index + ".st-journal";
  ASSERT_EQ(::chmod(ckpt.c_str(), 01777), 0);
  fs::create_directory(folder);
  ASSERT_EQ(::chmod(folder.c_str(), 0702), 0);  // nobody trusts it
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  EXPECT_THAT(told, HasSubstr("passed over"));
  put_bytes(folder + "/0123456789abcdef", "a record, or not");
  const std::string before = bytes_of(index);
  EXPECT_TRUE(fails_with(Status::journal, rename(*open(), "x", "a")));
  EXPECT_EQ(bytes_of(index), before);
  fs::remove_all(folder);
  EXPECT_TRUE(is_ok(rename(*open(), "x", "a")));
}

TEST_F(NewNames, WhatOnlyChangesBytesStaysInPlace) {
  auto c = open();
  const std::string new_a = pattern(4000, 9), new_c = pattern(5000, 9);
  auto t = *c->begin(new_names());
  ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
  ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
  EXPECT_EQ(t->plan()->kind, CommitPlan::patch);
  ASSERT_TRUE(is_ok(t->commit()));
  t.reset();
  c.reset();
  EXPECT_THAT(names(), ElementsAre("m-1.safetensors", "m-2.safetensors", "m.safetensors.index.json"));
}

TEST_F(NewNames, AShardOfWhichBytesChangeBesideALayoutGetsANewNameToo) {
  auto c = open();
  const std::string new_a = pattern(4000, 9);
  auto t = *c->begin(new_names());
  ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
  ASSERT_TRUE(is_ok(t->rename("c", "y")));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_THAT(shards(), ElementsAre("m-1.g1.safetensors", "m-1.safetensors", "m-2.g1.safetensors", "m-2.safetensors"));
  EXPECT_TRUE(same_bytes(bytes(*c, "a"), new_a));
  EXPECT_EQ(bytes_of(ckpt + "/m-1.safetensors").find(new_a), std::string::npos) << "the old one is as it was";
}

TEST_F(NewNames, OnePublishedShardIsNoAffairOfItsOwn) {
  auto c = open();
  TransactionOptions options = new_names();
  options.publish = true;
  const std::string new_c = pattern(5000, 9);
  auto t = *c->begin(options);
  ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_THAT(shards(), ElementsAre("m-1.safetensors", "m-2.g1.safetensors", "m-2.safetensors"));
  EXPECT_TRUE(same_bytes(bytes(*c, "c"), new_c));
}

TEST_F(NewNames, AShardThatKeepsNothingGetsNoSuccessor) {
  auto c = open();
  auto t = *c->begin(new_names());
  ASSERT_TRUE(is_ok(t->remove("c")));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_THAT(shards(), ElementsAre("m-1.safetensors", "m-2.safetensors"));
  t.reset();
  c.reset();
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_THAT(shards(), ElementsAre("m-1.safetensors"));
}

TEST_F(NewNames, CompactGivesEachShardANewName) {
  auto c = open();
  TransactionOptions options = new_names();
  options.layout = write::Layout::canonical;
  ASSERT_TRUE(is_ok(c->compact(options)));
  EXPECT_THAT(shards(), ElementsAre("m-1.g1.safetensors", "m-1.safetensors", "m-2.g2.safetensors", "m-2.safetensors"));
  EXPECT_TRUE(is_ok(verify(env, index, {}, {})));
}

TEST_F(NewNames, ShardsWhoseNamesDifferInTheirNumbersAloneGetOneEach) {
  fs::rename(ckpt + "/m-1.safetensors", ckpt + "/m.g1.safetensors");
  fs::rename(ckpt + "/m-2.safetensors", ckpt + "/m.g2.safetensors");
  put_bytes(index, R"({"weight_map":{"a":"m.g1.safetensors","b":"m.g1.safetensors","c":"m.g2.safetensors"}})");
  auto c = open();
  const std::string a = bytes(*c, "a"), old_c = bytes(*c, "c");
  auto t = *c->begin(new_names(0));
  ASSERT_TRUE(is_ok(t->rename("a", "a2")));
  ASSERT_TRUE(is_ok(t->rename("c", "c2")));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(same_bytes(bytes(*c, "a2"), a));
  EXPECT_TRUE(same_bytes(bytes(*c, "c2"), old_c));
  EXPECT_TRUE(is_ok(verify(env, index, {}, {})));
  t.reset();
  c.reset();
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_THAT(shards(), ElementsAre("m.g3.safetensors", "m.g4.safetensors"));
}

TEST_F(NewNames, TakeNoRoomAfterWhatIsAskedLast) {
  Calendar disk;
  auto c = open(disk, index);
  auto begun = c->begin(new_names());
  ASSERT_TRUE(is_ok(begun));
  ASSERT_TRUE(is_ok((*begun)->rename("a", "other")));
  size_t made_before = 0;
  (*begun)->at_last([&]() -> Result<void> {
    made_before = disk.calls.size();
    return {};
  });
  ASSERT_TRUE(is_ok((*begun)->commit()));
  ASSERT_GT(made_before, 0u);
  for (size_t i = made_before; i < disk.calls.size(); ++i)
    for (const Call takes : {Call::pwrite, Call::fallocate, Call::mkdirat, Call::copy_range, Call::clone_range})
      EXPECT_NE(disk.calls[i], takes) << i - made_before;
}

TEST_F(NewNames, OneFileIsRefused) {
  auto c = open(env, ckpt + "/m-1.safetensors");
  EXPECT_TRUE(fails_with(Status::unsupported, c->begin(new_names())));
}

// It would be acknowledged, and nobody would see it.
TEST_F(NewNames, AChangeOfAShardThatHasANewNameIsRefusedUntilTheHandleIsRefreshed) {
  auto late = open(), other = open();
  const std::string new_a = pattern(4000, 9), new_c = pattern(5000, 9);
  const auto try_to = [&](const std::vector<std::string> &tensors, bool publish) {
    TransactionOptions options;
    options.lock_timeout_ms = 0;
    auto t = *late->begin(options);
    for (const std::string &name : tensors) EXPECT_TRUE(is_ok(t->update(name, u8(name == "a" ? new_a : new_c))));
    if (publish) {
      EXPECT_TRUE(is_ok(t->rename("a", "z")));
    }
    return t;
  };
  const std::string old = bytes_of(ckpt + "/m-1.safetensors");
  std::vector<std::unique_ptr<AnyTransaction>> begun;
  begun.push_back(try_to({"a"}, false));
  begun.push_back(try_to({"a", "c"}, false));
  begun.push_back(try_to({"a"}, true));
  ASSERT_TRUE(is_ok(rename(*other, "b", "x")));
  for (const auto &t : begun) EXPECT_TRUE(fails_with(Status::file_changed, t->commit()));
  begun.clear();
  EXPECT_EQ(bytes_of(ckpt + "/m-1.safetensors"), old);
  ASSERT_TRUE(is_ok(try_to({"c"}, false)->commit())) << "a shard that has kept its name";
  ASSERT_TRUE(is_ok(late->refresh()));
  ASSERT_TRUE(is_ok(try_to({"a"}, false)->commit()));
  EXPECT_TRUE(same_bytes(bytes(*open(), "a"), new_a));
}

// A host may lead the index's name to the old index for a while.
TEST_F(NewNames, AHostThatRemembersTheOldIndexChangesNoOldShard) {
  const std::string new_a = pattern(4000, 9);
  for (const auto client : {StaleEnv::Client::kernel, StaleEnv::Client::remembers, StaleEnv::Client::glusterfs}) {
    SCOPED_TRACE(static_cast<int>(client));
    StaleEnv here(env), there(env);
    here.client = there.client = client;
    auto late = open(there, index);
    ASSERT_EQ(bytes(*late, "a").size(), 4000u);
    ASSERT_TRUE(is_ok(rename(*open(here, index), "b", "x")));
    const auto change = [&] {
      auto t = *late->begin({});
      EXPECT_TRUE(is_ok(t->update("a", u8(new_a))));
      return t->commit();
    };
    EXPECT_TRUE(fails_with(Status::file_changed, change()));
    ASSERT_TRUE(is_ok(late->refresh()));
    ASSERT_TRUE(is_ok(change()));
    EXPECT_TRUE(same_bytes(bytes(*open(here, index), "a"), new_a));
    late.reset();
    ASSERT_TRUE(is_ok(rename(*open(), "x", "b")));
  }
}

// A host is frozen amid its commit for so long that it loses its locks. Another one changes an old shard meanwhile, or
// cleans up, and then the first goes on. What stays open is a request that was sent after the last question, so nobody
// is frozen there.
class NewNamesOfAFrozenHost : public NewNames {
 protected:
  struct InodeOf {
    explicit InodeOf(const std::string &at) {
      struct stat s;
      EXPECT_EQ(::stat(at.c_str(), &s), 0);
      inode = s.st_ino;
    }
    ino_t inode;
  };
  // What is told there is told amid the commit of the frozen one.
  static std::unique_ptr<Model> open_other(StaleEnv &with, const std::string &path) {
    OpenOptions options;
    options.writable = true;
    options.lock_timeout_ms = 0;
    auto opened = open_path(with, path, options);
    return opened ? std::move(*opened) : nullptr;
  }
  static TransactionOptions usual() {
    TransactionOptions options;
    options.lock_timeout_ms = 0;
    return options;
  }
  // `meanwhile` runs before the call of that number. The locks may have been lost some calls before.
  Result<void> commit(StaleEnv &host, size_t frozen_at, const std::function<void()> &meanwhile,
                      size_t lost_before = 0) {
    auto c = open(host, index);
    size_t so_far = 0;
    host.before = [&](Call) {
      if (so_far + lost_before == frozen_at) host.lose_locks();
      if (so_far++ == frozen_at) meanwhile();
      return 0;
    };
    auto done = rename(*c, "b", "x");
    host.before = {};
    return done;
  }
  // How many calls of a commit come before its last question.
  size_t calls_before_question() {
    put_anew();
    StaleEnv host(env);
    auto c = open(host, index);
    const ino_t old = InodeOf(index).inode;
    size_t so_far = 0, question = 0;
    host.before = [&](Call call) {
      if (call == Call::renew_name && InodeOf(index).inode == old) question = so_far;
      ++so_far;
      return 0;
    };
    EXPECT_TRUE(is_ok(rename(*c, "b", "x")));
    host.before = {};
    return question;
  }
  // Each of the last questions, and some before.
  static size_t next(size_t n, size_t calls) { return n + (n + 24 < calls ? 4 : 1); }
};

TEST_F(NewNamesOfAFrozenHost, LosesNoChangeOfAnother) {
  const std::string new_a = pattern(4000, 9);
  const size_t calls = calls_before_question();
  ASSERT_GT(calls, 20u);
  size_t refused = 0;
  for (const size_t lost_before : {0, 25, 50, 100})
    for (size_t n = lost_before; n <= calls; n = next(n, calls)) {
      put_anew();
      StaleEnv one(env), two(env);
      bool is_changed = false;
      const auto change = [&] {
        const auto other = open_other(one, index);
        if (!other) return;
        auto t = *other->begin(usual());
        is_changed = t->update("a", u8(new_a)) && t->commit();
      };
      const auto done = commit(two, n, change, lost_before);
      EXPECT_TRUE(is_changed || lost_before > 0) << n;
      refused += !done;
      EXPECT_TRUE(!is_changed || same_bytes(bytes(*open(), "a"), new_a)) << n << " after " << lost_before;
      EXPECT_TRUE(is_ok(verify(env, index, {}, {}))) << n << " after " << lost_before;
      ASSERT_FALSE(HasFailure()) << n << " after " << lost_before;
    }
  EXPECT_GT(refused, 0u);
}

// As it is taken for that of a dead writer: by a recovery, or by a commit on another shard that comes to nothing. An
// open looks at all shards; a handle that is open already looks at those that it changes.
TEST_F(NewNamesOfAFrozenHost, NamesNoFileThatAnotherHasRemoved) {
  enum class By { recovery, commit, commit_of_open_handle };
  const size_t calls = calls_before_question();
  for (const auto by : {By::recovery, By::commit, By::commit_of_open_handle})
    for (size_t n = 0; n <= calls; n = next(n, calls)) {
      put_anew();
      StaleEnv one(env), two(env);
      auto other = by == By::commit_of_open_handle ? open_other(one, index) : nullptr;
      const auto done = commit(two, n, [&] {
        if (by == By::recovery) {
          EXPECT_TRUE(is_ok(recover(one)));
          return;
        }
        if (!other) other = open_other(one, index);
        auto options = new_names();
        if (by == By::commit_of_open_handle)  // it goes no further than that
          options.progress = [this](uint64_t, uint64_t) { return fs::exists(ckpt + "/m-1.g1.safetensors"); };
        auto t = *other->begin(options);
        EXPECT_TRUE(is_ok(t->rename("c", "y")));
        t->at_last([] { return Result<void>(fail(Status::cancelled, "no")); });
        EXPECT_TRUE(fails_with(Status::cancelled, t->commit()));
      });
      EXPECT_TRUE(is_ok(verify(env, index, {}, {}))) << n;
      EXPECT_TRUE(same_bytes(bytes(*open(), done ? "x" : "b"), pattern(100, 2))) << n;
      ASSERT_FALSE(HasFailure()) << n << " by " << static_cast<int>(by);
    }
}

// Meanwhile another host commits twice, and its second commit removes what the first has made old.
TEST_F(NewNames, AnOpenFollowsWhatAnotherCommits) {
  for (const auto client : {StaleEnv::Client::kernel, StaleEnv::Client::remembers, StaleEnv::Client::glusterfs})
    for (size_t n = 0, calls = 1; n < calls; ++n) {
      put_anew();
      StaleEnv here(env), there(env);
      here.client = there.client = client;
      size_t so_far = 0;
      there.before = [&](Call) {
        if (so_far++ != n) return 0;
        EXPECT_TRUE(is_ok(rename(*open(here, index), "b", "x", new_names(0))));
        EXPECT_TRUE(is_ok(rename(*open(here, index), "x", "y", new_names(0))));
        return 0;
      };
      auto opened = open(there, index);
      there.before = {};
      calls = so_far;
      ASSERT_TRUE(opened) << n;
      const auto found = opened->catalogue().find("a");
      EXPECT_TRUE(found || found.error().status == Status::file_changed);
      ASSERT_FALSE(HasFailure()) << n << " of " << calls << ", client " << static_cast<int>(client);
    }
}

TEST_F(NewNames, AHostThatRemembersTheOldIndexMissesNoShard) {
  for (const auto client : {StaleEnv::Client::kernel, StaleEnv::Client::remembers, StaleEnv::Client::glusterfs}) {
    SCOPED_TRACE(static_cast<int>(client));
    put_anew();
    StaleEnv here(env), there(env);
    here.client = there.client = client;
    auto late = open(there, index);
    ASSERT_TRUE(is_ok(rename(*open(here, index), "b", "x", new_names(0))));
    ASSERT_TRUE(is_ok(rename(*open(here, index), "x", "y", new_names(0))));
    EXPECT_TRUE(fails_with(Status::file_changed, late->catalogue().find("a")));
    ASSERT_TRUE(is_ok(late->refresh()));
    EXPECT_EQ(bytes(*late, "a").size(), 4000u);
  }
}

TEST_F(NewNames, AChangeOfAShardThatHasGoneMeanwhileIsRefusedAsOneOfAnOldShard) {
  auto late = open(), other = open();
  const std::string new_a = pattern(4000, 9);
  ASSERT_TRUE(is_ok(late->lend().find("a")));
  ASSERT_TRUE(is_ok(rename(*other, "b", "x", new_names(0))));
  ASSERT_TRUE(is_ok(rename(*other, "x", "b", new_names(0))));
  ASSERT_FALSE(fs::exists(ckpt + "/m-1.safetensors"));
  auto t = *late->begin({});
  ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
  EXPECT_TRUE(fails_with(Status::file_changed, t->commit()));
}

// By a commit of the handle itself.
TEST_F(NewNames, AnOlderStateMissesNoShardThatItsIndexNamesNoMore) {
  auto c = open(), other = open();
  const Catalogue before = c->catalogue();
  ASSERT_TRUE(is_ok(rename(*other, "b", "x", new_names(0))));
  ASSERT_TRUE(is_ok(c->refresh()));
  ASSERT_TRUE(is_ok(rename(*c, "x", "b", new_names(0))));
  ASSERT_FALSE(fs::exists(ckpt + "/m-1.safetensors"));
  EXPECT_TRUE(fails_with(Status::file_changed, before.find("a")));
}

TEST_F(NewNames, WhatWasGivenOutStaysWhatItWas) {
  auto c = open();
  const auto place = c->lend().find("a");
  ASSERT_TRUE(is_ok(place));
  auto view = place->member->view(*place->snapshot, place->index);
  ASSERT_TRUE(is_ok(view));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(is_ok(rename(*c, i % 2 == 0 ? "a" : "x", i % 2 == 0 ? "x" : "a", new_names(0))));
    EXPECT_TRUE(same_bytes({reinterpret_cast<const char *>(*view), 4000}, pattern(4000, 1)));
  }
  c->release();
  c.reset();
  EXPECT_THAT(shards(), ElementsAre("m-1.g2.safetensors", "m-1.g3.safetensors", "m-2.safetensors"));
}

// Descriptors of shards may be given up, but not that of a file which the handle itself is about to remove.
TEST_F(NewNames, AStateIsReadableAfterItsShardsWereRemoved) {
  auto c = open();
  const Catalogue pin = c->catalogue();
  const Place place = pin.find("a").value();
  const auto &descriptors = place.member->options().descriptors;
  for (int i = 0; i < 3; ++i) {
    if (i < 2) descriptors->give_up(os::Descriptors::GiveUp::all);  // the commit after the first removes it
    ASSERT_TRUE(is_ok(rename(*c, i % 2 == 0 ? "a" : "x", i % 2 == 0 ? "x" : "a", new_names(0))));
  }
  EXPECT_THAT(shards(), ElementsAre("m-1.g2.safetensors", "m-1.g3.safetensors", "m-2.safetensors"));
  EXPECT_TRUE(is_ok(place.snapshot->here()));
  std::string read(4000, '\0');
  ASSERT_TRUE(is_ok(place.member->read(*place.snapshot, place.index, read.data())));
  EXPECT_TRUE(same_bytes(read, pattern(4000, 1)));
}

TEST_F(NewNames, OtherNamesOfAShardKeepTheOldBytes) {
  fs::create_hard_link(ckpt + "/m-1.safetensors", dir / "copy");
  const std::string old = bytes_of(dir / "copy");
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_EQ(bytes_of(dir / "copy"), old);
  EXPECT_THAT(shards(), ElementsAre("m-1.g1.safetensors", "m-2.safetensors"));
}

// As in a cache, but with an index of its own.
TEST_F(NewNames, OfALinkedShardTheLinkGoesAndNotWhatItLeadsTo) {
  fs::create_directory(dir / "blobs");
  fs::rename(ckpt + "/m-1.safetensors", dir / "blobs/one");
  fs::create_symlink("../blobs/one", ckpt + "/m-1.safetensors");
  const std::string old = bytes_of(dir / "blobs/one");
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  EXPECT_TRUE(fs::is_symlink(ckpt + "/m-1.safetensors"));
  EXPECT_FALSE(fs::is_symlink(ckpt + "/m-1.g1.safetensors"));
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_THAT(shards(), ElementsAre("m-1.g1.safetensors", "m-2.safetensors"));
  EXPECT_EQ(bytes_of(dir / "blobs/one"), old);
  EXPECT_THAT(names_in(dir / "blobs"), ElementsAre("one"));
}

TEST_F(NewNames, AnIndexThatOtherFoldersMayLeadToIsRefused) {
  fs::create_directory(dir / "blobs");
  fs::rename(index, dir / "blobs/index");
  fs::create_symlink("../blobs/index", index);
  auto c = open();
  auto t = *c->begin(new_names());
  ASSERT_TRUE(is_ok(t->rename("a", "x")));
  EXPECT_TRUE(fails_with(Status::unsupported, t->plan()));
  EXPECT_TRUE(fails_with(Status::unsupported, t->commit()));
  EXPECT_THAT(shards(), ElementsAre("m-1.safetensors", "m-2.safetensors"));
}

TEST_F(NewNames, WhatAnotherIndexNamesIsNoRubbish) {
  const std::string other = ckpt + "/backup.safetensors.index.json";
  fs::copy_file(index, other);
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_TRUE(fs::exists(ckpt + "/m-1.safetensors"));
  EXPECT_TRUE(is_ok(verify(env, other, {}, {})));
  EXPECT_TRUE(fs::exists(list_path)) << "it is old all the same";
  // The other has a number of its own, which the first index has not come to.
  ASSERT_TRUE(is_ok(rename(*open(env, other), "a", "z", new_names(0))));
  ASSERT_TRUE(is_ok(recover(env)));
  ASSERT_TRUE(is_ok(rename(*open(), "x", "y", new_names(0))));
  EXPECT_TRUE(is_ok(verify(env, other, {}, {})));
  EXPECT_TRUE(is_ok(verify(env, index, {}, {})));
  // One that cannot be read may name anything.
  put_bytes(other, "{");
  told.clear();
  const auto before = shards();
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_EQ(shards(), before);
  EXPECT_THAT(told, HasSubstr("no old shard was removed, as another index in the folder cannot be read"));
  fs::remove(other);
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_EQ(shards().size(), 2u);
}

// As on btrfs, while a commit replaces that index.
TEST_F(NewNames, WhatAnotherIndexNamesStaysWhereAllListsButTheLastLackThatIndex) {
  class LackingLists : public Calendar {
   public:
    int list(int folder, std::vector<std::string> *out) override {
      const int r = Calendar::list(folder, out);
      if (lists++ < lacking) std::erase(*out, "backup.safetensors.index.json");
      return lists > lacking && fails ? -EIO : r;
    }
    size_t lists = 0, lacking = 0;
    bool fails = false;  // each list that does not lack it
  };
  fs::copy_file(index, ckpt + "/backup.safetensors.index.json");
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  LackingLists whole;
  ASSERT_TRUE(is_ok(recover(whole)));
  for (size_t lacking = 0; lacking < whole.lists; ++lacking) {
    LackingLists some;
    some.lacking = lacking;
    ASSERT_TRUE(is_ok(recover(some)));
    ASSERT_TRUE(fs::exists(ckpt + "/m-1.safetensors")) << lacking << " of " << whole.lists;
    LackingLists failing;
    failing.lacking = lacking;
    failing.fails = true;
    static_cast<void>(recover(failing));
    ASSERT_TRUE(fs::exists(ckpt + "/m-1.safetensors")) << lacking << " of " << whole.lists;
  }
}

TEST_F(NewNames, TheOldIndexMayBePutBack) {
  const std::string old = bytes_of(index);
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  put_bytes(index, old);
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_TRUE(is_ok(verify(env, index, {}, {})));
  EXPECT_THAT(names(), ElementsAre("m-1.safetensors", "m-2.safetensors", "m.safetensors.index.json"));
}

TEST_F(NewNames, AnotherFileUnderAnOldNameIsLeft) {
  for (const bool same_inode : {false, true}) {
    ASSERT_TRUE(is_ok(rename(*open(), same_inode ? "x" : "a", same_inode ? "a" : "x")));
    const std::string old = ckpt + (same_inode ? "/m-1.g1.safetensors" : "/m-1.safetensors");
    if (!same_inode) fs::rename(old, dir / "elsewhere");
    put_bytes(old, "mine");
    ASSERT_TRUE(is_ok(recover(env)));
    EXPECT_EQ(bytes_of(old), "mine");
    fs::remove(old);
  }
}

// Files of a writer that died before its index stood; of one that is at work; of nobody that libst knows.
TEST_F(NewNames, OnlyWhatAWriterDidNotComeToNameIsRemoved) {
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  for (const char *name : {"m-1.g2.safetensors", "m-2.g7.safetensors", "n-1.g9.safetensors", "m-1.g8.safetensors.part",
                           "m-2.g1.safetensors"})
    put_bytes(ckpt + "/" + name, "rubbish");
  put_bytes(ckpt + "/m-2.g5.safetensors", "of a writer");
  auto held = os::File::open(env, AT_FDCWD, ckpt + "/m-2.g5.safetensors", O_RDWR, 0, "held");
  auto lock = os::RangeLock::acquire(*held, {os::whole_file(true)}, {});
  ASSERT_TRUE(is_ok(lock));
  ASSERT_TRUE(is_ok(rename(*open(), "c", "y")));
  EXPECT_THAT(shards(),
              ElementsAre("m-1.g1.safetensors", "m-1.g8.safetensors.part", "m-1.safetensors", "m-2.g1.safetensors",
                          "m-2.g5.safetensors", "m-2.g8.safetensors", "m-2.safetensors", "n-1.g9.safetensors"));
  lock->release();
  // Though later commits may have come past its number.
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_FALSE(fs::exists(ckpt + "/m-2.g5.safetensors"));
  EXPECT_THAT(told, HasSubstr("shard '" + ckpt + "/m-2.g7.safetensors', which no index names, was removed"));
  EXPECT_TRUE(fs::exists(ckpt + "/m-2.g1.safetensors")) << "it may have been named once";
}

TEST_F(NewNames, TheListStaysAsLongAsAWriterIsDying) {
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  const std::string unnamed = ckpt + "/m-2.g9.safetensors";
  put_bytes(unnamed, "of a writer");
  auto held = os::File::open(env, AT_FDCWD, unnamed, O_RDWR, 0, "held");
  auto lock = os::RangeLock::acquire(*held, {os::whole_file(true)}, {});
  ASSERT_TRUE(is_ok(lock));
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_TRUE(fs::exists(unnamed) && fs::exists(list_path));
  lock->release();
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_FALSE(fs::exists(unnamed) || fs::exists(list_path));
}

// Where no writer has given names, there is no list. Later ones take numbers beyond it.
TEST_F(NewNames, AFileOfAnotherWithANumberIsLeft) {
  const std::string another = ckpt + "/m-1.g3.safetensors";
  put_bytes(another, "mine");
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_EQ(bytes_of(another), "mine");
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  EXPECT_TRUE(fs::exists(ckpt + "/m-1.g4.safetensors"));
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_EQ(bytes_of(another), "mine");
}

TEST_F(NewNames, AListThatNobodyWroteIsPutAsideAndNamed) {
  put_bytes(dir / "victim.safetensors", "mine");
  fs::create_directory(ckpt + "/inside");
  const write::OldShard victim = as_it_is(dir / "victim.safetensors", "../victim.safetensors");
  const std::vector<std::pair<const char *, std::function<void()>>> lists = {
      {"no list", [&] { put_bytes(list_path, "m-1.safetensors\n"); }},
      {"empty", [&] { put_bytes(list_path, ""); }},
      {"out of the folder", [&] { forge({victim}); }},
      {"huge", [&] { forge({}), fs::resize_file(list_path, uint64_t{1} << 40); }},
      {"a link", [&] { fs::create_symlink(dir / "victim.safetensors", list_path); }},
      {"a pipe", [&] { ASSERT_EQ(::mkfifo(list_path.c_str(), 0600), 0); }},
      {"a folder", [&] { fs::create_directory(list_path); }},
      {"anybody's", [&] { forge({}), fs::permissions(list_path, fs::perms::all); }},
      {"of two names", [&] { forge({}), fs::create_hard_link(list_path, dir / "second name"); }},
  };
  std::string from = "a", to = "x";
  for (const auto &[what, make] : lists)
    for (const bool by_commit : {false, true}) {
      SCOPED_TRACE(what);
      fs::remove_all(list_path);
      fs::remove_all(list_path + ".bad");
      fs::remove(dir / "second name");
      make();
      const std::vector<std::string> before = shards();
      told.clear();
      std::string found;
      ASSERT_TRUE(is_ok(verify(env, index, {}, [&](const Finding &f) { return found += f.message + "\n", true; })));
      EXPECT_THAT(found, HasSubstr("the list of old shards beside '" + index + "' is not believed ("));
      if (by_commit) {
        ASSERT_TRUE(is_ok(rename(*open(), from, to)));
        std::swap(from, to);
      } else {
        ASSERT_TRUE(is_ok(recover(env)));
        EXPECT_EQ(shards(), before);
        EXPECT_FALSE(fs::exists(list_path));
      }
      EXPECT_THAT(told, HasSubstr("the list of old shards '" + list_path + "' is not believed ("));
      EXPECT_EQ(bytes_of(dir / "victim.safetensors"), "mine");
      EXPECT_TRUE(fs::exists(fs::symlink_status(list_path + ".bad")));
      ASSERT_TRUE(is_ok(verify(env, index, {}, {})));
      ASSERT_TRUE(is_ok(recover(env)));
    }
}

// The owner of the index may write into its list whatever lies beside it, and wait for root.
TEST_F(NewNames, AListOfAnotherUserRemovesNothingButThatUsers) {
  constexpr uid_t stranger = 4242;
  const std::string mine = ckpt + "/victim.safetensors", numbered = ckpt + "/m-1.g7.safetensors";
  put_bytes(mine, "mine");
  put_bytes(numbered, "mine");
  const auto give = [](const std::string &path) {
    return ::chown(path.c_str(), stranger, static_cast<gid_t>(-1)) == 0;
  };
  if (!give(index)) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(::chmod(ckpt.c_str(), 01777), 0);

  forge({as_it_is(mine, "victim.safetensors")});
  ASSERT_TRUE(give(list_path));
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_THAT(told, HasSubstr("is not believed (it is user 4242's, and names 'victim.safetensors' of user 0)"));
  EXPECT_TRUE(fs::exists(list_path + ".bad"));
  EXPECT_EQ(bytes_of(mine), "mine");

  forge({});
  ASSERT_TRUE(give(list_path));
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_EQ(bytes_of(numbered), "mine") << "a list beside which a dead writer left nothing";

  ASSERT_TRUE(give(mine));
  ASSERT_TRUE(give(numbered));
  forge({as_it_is(mine, "victim.safetensors")});
  ASSERT_TRUE(give(list_path));
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_THAT(shards(), ElementsAre("m-1.safetensors", "m-2.safetensors")) << "what is the stranger's own goes";
}

// Users that may write to the index, or to its list, say what is removed: what anybody may remove, and nothing else.
TEST_F(NewNames, AListThatAnybodyMayWriteToRemovesOnlyWhatAnybodyMayRemove) {
  const std::string victim = ckpt + "/victim.safetensors", numbered = ckpt + "/m-1.g7.safetensors";
  for (const mode_t folder : {0755, 01777, 0777})
    for (const mode_t list : {0666, 0644}) {
      SCOPED_TRACE(text(folder, " ", list));
      const bool may_go = folder == 0777;
      put_bytes(victim, "mine");
      put_bytes(numbered, "mine");
      forge({as_it_is(victim, "victim.safetensors")});
      ASSERT_EQ(::chmod(index.c_str(), 0666) + ::chmod(list_path.c_str(), list) + ::chmod(ckpt.c_str(), folder), 0);
      told.clear();
      ASSERT_TRUE(is_ok(recover(env)));
      EXPECT_EQ(fs::exists(victim), !may_go);
      EXPECT_EQ(fs::exists(numbered), !may_go);
      EXPECT_EQ(told.find("take the right to write from them (chmod o-w)") != std::string::npos, !may_go) << told;
      EXPECT_FALSE(fs::exists(list_path));
      EXPECT_EQ(fs::exists(list_path + ".bad"), !may_go);
      for (const std::string &each : {victim, numbered, list_path + ".bad"}) fs::remove(each);
    }
}

TEST_F(NewNames, AListIsWrittenToByItsOwnerAlone) {
  ASSERT_EQ(::chmod(index.c_str(), 0664), 0);
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  struct stat s = {};
  ASSERT_EQ(::stat(list_path.c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0644u);
  ASSERT_EQ(::stat(index.c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0664u);
}

// One of a group has committed, on shards of another. The maker of a list there may unlink all of it anyway.
TEST_F(NewNames, AListOfOneOfAGroupRemovesTheShardsOfAll) {
  const auto give = [](const std::string &path) { return ::chown(path.c_str(), 4242, static_cast<gid_t>(-1)) == 0; };
  const std::string old = ckpt + "/m-1.safetensors";
  if (!give(index)) GTEST_SKIP() << "only root can give a file away";
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  ASSERT_TRUE(fs::exists(old));
  ASSERT_TRUE(give(index));
  ASSERT_TRUE(give(list_path));
  ASSERT_EQ(::chmod(ckpt.c_str(), 0775), 0);
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_FALSE(fs::exists(old)) << told;
  EXPECT_FALSE(fs::exists(list_path + ".bad"));
}

// Where a user may unlink what is that user's alone, the list still removes this.
TEST_F(NewNames, AListThatNamesAFileOfAnotherRemovesTheOthersThatItNames) {
  const auto give = [](const std::string &path) { return ::chown(path.c_str(), 4242, static_cast<gid_t>(-1)) == 0; };
  const std::string victim = ckpt + "/victim.safetensors", own = ckpt + "/own.safetensors";
  put_bytes(victim, "mine");
  put_bytes(own, "its");
  if (!give(index)) GTEST_SKIP() << "only root can give a file away";
  ASSERT_TRUE(give(own));
  forge({as_it_is(victim, "victim.safetensors"), as_it_is(own, "own.safetensors")});
  ASSERT_TRUE(give(list_path));
  for (const mode_t mode : {01777, 0755}) {  // in the second it may write into its list, and unlink nothing
    ASSERT_EQ(::chmod(ckpt.c_str(), mode), 0);
    fs::remove(list_path + ".bad");
    ASSERT_TRUE(is_ok(recover(env)));
    EXPECT_EQ(bytes_of(victim), "mine");
    EXPECT_FALSE(fs::exists(own));
    EXPECT_TRUE(fs::exists(list_path + ".bad"));
    EXPECT_FALSE(fs::exists(list_path)) << "what is not believed is not written again";
    put_bytes(own, "its");
    ASSERT_TRUE(give(own));
    forge({as_it_is(victim, "victim.safetensors"), as_it_is(own, "own.safetensors")});
    ASSERT_TRUE(give(list_path));
  }
  fs::remove(list_path);
}

// As a failed sync of the folder may leave it.
TEST_F(NewNames, AListIsBelievedBesideTheNameThatItWasMadeWith) {
  const std::string made_as = ckpt + "/.m.safetensors.index.json.st-old.st-tmp-0123456789abcdef";
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  fs::create_hard_link(list_path, made_as);
  ASSERT_TRUE(is_ok(rename(*open(), "x", "y")));
  EXPECT_FALSE(fs::exists(list_path + ".bad"));
  EXPECT_FALSE(fs::exists(made_as));
  EXPECT_TRUE(fs::exists(ckpt + "/m-1.safetensors")) << "it is listed still";
  fs::create_hard_link(list_path, made_as);
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_THAT(names(), ElementsAre("m-1.g2.safetensors", "m-2.safetensors", "m.safetensors.index.json"));
}

// An owner of the index believes no list that another of the group has written.
TEST_F(NewNames, RecoveryByAnotherOfTheGroupLeavesTheListToTheOwner) {
  constexpr uid_t owner = 4242, another = 4243;
  ASSERT_EQ(::chmod(dir.path().c_str(), 0777), 0);
  for (const mode_t mode : {0775, 01775})
    for (const bool some_stay : {true, false}) {
      ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
      ASSERT_TRUE(is_ok(rename(*open(), "x", "a")));
      if (::chown(ckpt.c_str(), owner, 0) != 0) GTEST_SKIP() << "only root can give a file away";
      ASSERT_EQ(::chmod(ckpt.c_str(), mode), 0);
      for (const std::string &name : names()) {
        ::chown((ckpt + "/" + name).c_str(), owner, 0);
        ::chmod((ckpt + "/" + name).c_str(), 0664);
      }
      const std::string other = ckpt + "/other.safetensors.index.json";
      if (some_stay) put_bytes(other, R"({"weight_map":{"a":"m-1.safetensors"}})");
      {
        const testing::AsUser user(another);
        EXPECT_TRUE(is_ok(recover(env))) << told;
      }
      struct stat s = {};
      EXPECT_TRUE(::stat(list_path.c_str(), &s) != 0 || s.st_uid == owner);
      fs::remove(other);
      {
        const testing::AsUser user(owner);
        EXPECT_TRUE(is_ok(recover(env))) << told;
      }
      EXPECT_FALSE(fs::exists(list_path));
      EXPECT_FALSE(fs::exists(list_path + ".bad")) << told;
      EXPECT_EQ(shards().size(), 2u);
      ASSERT_EQ(::chown(index.c_str(), ::geteuid(), 0), 0);
    }
}

TEST_F(NewNames, WhoMayNotWriteLeavesOldShards) {
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  testing::ReadOnlyEnv read_only(os::Env::posix());
  EXPECT_TRUE(fails_with(Status::permission, recover(read_only)));
  EXPECT_TRUE(is_ok(verify(read_only, index, {}, {})));
  EXPECT_TRUE(fs::exists(ckpt + "/m-1.safetensors"));
}

TEST_F(NewNames, WhatADeadWriterLeftOfAShardThatIsNoLongerNamedGoesWithRecovery) {
  const std::string dead = ".m-3.safetensors.st-tmp-0123456789abcdef",
                    alive = ".m-4.safetensors.st-tmp-0123456789abcdef";
  const std::string other = ".notes.txt.st-tmp-0123456789abcdef";
  for (const std::string &name : {dead, alive, other}) put_bytes(ckpt + "/" + name, "half");
  auto held = os::File::open(env, AT_FDCWD, ckpt + "/" + alive, O_RDWR, 0, alive);
  ASSERT_TRUE(is_ok(held));
  auto lock = os::RangeLock::acquire(*held, {os::whole_file(true)}, {});
  ASSERT_TRUE(is_ok(lock));
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_THAT(names(), ElementsAre(alive, other, "m-1.safetensors", "m-2.safetensors", "m.safetensors.index.json"));
  for (const std::string &name : {alive, other}) fs::remove(ckpt + "/" + name);
}

// They stage while they show an older index, whose shard has gone. Nobody opens that one any more.
TEST_F(NewNames, JournalsOfDeadWritersBesideAShardThatWentGoWithRecovery) {
  const std::string folder = ckpt + "/m-1.safetensors.st-journal", fresh = pattern(4000, 9);
  auto late = open();
  EXPECT_TRUE(same_bytes(bytes(*late, "a"), pattern(4000, 1)));
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  ASSERT_TRUE(is_ok(recover(env)));
  ASSERT_FALSE(fs::exists(ckpt + "/m-1.safetensors"));
  auto staged = late->begin({});
  ASSERT_TRUE(is_ok(staged));
  ASSERT_TRUE(is_ok((*staged)->update("a", u8(fresh))));
  const auto living = names_in(folder);
  ASSERT_EQ(living.size(), 1u);
  const std::string dead = "/0123456789abcdef", left = bytes_of(folder + "/" + living[0]);
  put_bytes(folder + dead, left);
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_EQ(names_in(folder), living);
  staged->reset();
  late.reset();
  EXPECT_FALSE(fs::exists(folder));

  fs::create_directory(folder);
  put_bytes(folder + dead, left);
  ASSERT_TRUE(is_ok(recover(env)));
  EXPECT_THAT(names(), ElementsAre("m-1.g1.safetensors", "m-2.safetensors", "m.safetensors.index.json"));
  EXPECT_THAT(told, HasSubstr("an empty journal folder was removed"));
}

// Another user may write to the folder, and could make more all the time.
TEST_F(NewNames, RecoveryDropsNoMoreJournalsThanItHasFound) {
  class AgainThere : public Calendar {
   public:
    int unlinkat(int dir, const char *name, int flags) override {
      const bool is_journal = std::string_view(name) == "0123456789abcdef";
      return is_journal && ++times < 100 ? 0 : Calendar::unlinkat(dir, name, flags);
    }
    int times = 0;
  };
  const std::string folder = ckpt + "/m-1.g1.safetensors.st-journal";
  fs::create_directory(folder);
  put_bytes(folder + "/0123456789abcdef", std::string(4096, '\0'));
  AgainThere again;
  ASSERT_TRUE(is_ok(recover(again)));
  EXPECT_EQ(again.times, 1);
}

// They could be taken for the new shard's.
TEST_F(NewNames, ANameBesideWhichTheJournalsOfARemovedFileLieIsLeft) {
  fs::create_directory(ckpt + "/m-1.g1.safetensors.st-journal");
  ASSERT_TRUE(is_ok(rename(*open(), "a", "x")));
  EXPECT_TRUE(fs::exists(ckpt + "/m-1.g2.safetensors"));
  EXPECT_FALSE(fs::exists(ckpt + "/m-1.g1.safetensors"));
}

TEST_F(NewNames, AShardWhoseNameAllowsNoOtherIsRefusedWithTheReason) {
  const std::pair<std::string, const char *> odd[] = {
      {"m\n.safetensors", "has a line break in its name"},
      {"m.bin", "is not named *.safetensors"},
      {std::string(241, 'm') + ".safetensors", "is too long for a new one"},
  };
  for (const auto &[name, why] : odd) {
    fs::copy_file(ckpt + "/m-2.safetensors", ckpt + "/" + name, fs::copy_options::overwrite_existing);
    std::string spelled = name;
    if (const size_t at = spelled.find('\n'); at != std::string::npos) spelled.replace(at, 1, "\\n");
    put_bytes(index, R"({"weight_map":{"c":")" + spelled + "\"}}");
    const auto before = names();
    const auto done = rename(*open(), "c", "x");
    EXPECT_TRUE(fails_with(Status::unsupported, done));
    EXPECT_THAT(done.error().message, HasSubstr(why));
    EXPECT_EQ(names(), before);
  }
}

// As one that only others may write to.
// Before each call of an open, and of a first look into a shard, all shards may get new names, and the old ones go.
TEST_F(NewNames, AnOpenMissesNoShardThatOthersReplace) {
  auto options = new_names(0);
  options.layout = write::Layout::canonical;
  bool came = true;
  for (int n = 0; came; ++n) {
    FaultEnv beside(os::Env::posix());
    came = false;
    int calls = 0;
    beside.before = [&](Call call) {
      const bool looks = call == Call::openat || call == Call::fstatat || call == Call::list || call == Call::pread;
      if (!looks || calls++ != n) return 0;
      came = true;
      auto c = open();
      EXPECT_TRUE(is_ok(c->compact(options)));
      EXPECT_TRUE(is_ok(c->compact(options)));
      return 0;
    };
    const auto c = open(beside, index);
    ASSERT_TRUE(c) << "call " << n;
    const auto found = c->catalogue().find("c");
    ASSERT_TRUE(found || found.error().status == Status::file_changed) << "call " << n << found.error().message;
    ASSERT_TRUE(is_ok(c->refresh()));
    ASSERT_TRUE(is_ok(c->catalogue().find("c"))) << "call " << n;
  }
}

TEST_F(NewNames, ProgressIsOneCountOverAllShards) {
  ToldProgress told;
  auto options = new_names();
  options.progress = told.progress();
  auto c = open();
  auto t = *c->begin(options);
  ASSERT_TRUE(is_ok(t->rename("a", "x")));
  ASSERT_TRUE(is_ok(t->rename("c", "y")));
  ASSERT_TRUE(is_ok(t->commit()));
  told.expect_one_count(9100);
}

TEST_F(NewNames, AFolderThatTakesNoNewFileLeavesAllAsItWas) {
  auto c = open();
  auto t = *c->begin(new_names());
  ASSERT_TRUE(is_ok(t->rename("a", "x")));
  env.creating = -EACCES;
  EXPECT_TRUE(fails_with(Status::permission, t->commit()));
  env.creating = 0;
  EXPECT_THAT(names(), ElementsAre("m-1.safetensors", "m-2.safetensors", "m.safetensors.index.json"));
}

}  // namespace
}  // namespace st::store
