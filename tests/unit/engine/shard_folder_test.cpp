// A reshard that dies leaves what the next one into the folder knows as its own, and removes. What is a user's stays.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <set>
#include <thread>

#include "delta_scene.h"
#include "engine/recover_all.h"
#include "engine/reshape.h"
#include "fault_env.h"
#include "short_lists_env.h"

namespace st::store {
namespace {

using namespace testing;

const std::string source = "/models/m.safetensors", folder = "/models/out", index_path = index_in(folder);

struct Stranger : FaultEnv {
  using FaultEnv::FaultEnv;
  uid_t geteuid() override { return 1000; }
};

class ShardFolderTest : public ::testing::Test {
 protected:
  SimEnv fresh_disk() const {
    SimEnv made;
    made.make_folder("/models");
    SimEnv durable(after_cut(made.disk(), true));
    durable.add_file(source, file.file());
    return durable;
  }
  static Result<void> cut(os::Env &env, uint64_t most = 1000) { return reshard(env, source, folder, most, {}); }
  static size_t shards_in(const SimEnv &disk) {
    const auto names = disk.exists(folder) ? disk.names(folder) : std::vector<std::string>();
    return static_cast<size_t>(
        std::count_if(names.begin(), names.end(), [](auto &name) { return name.ends_with(".safetensors"); }));
  }
  // The only list in the folder.
  static std::string written_list(const SimEnv &disk) {
    for (const std::string &name : disk.names(folder))
      if (name.starts_with(".model.safetensors.index.json.st-new-")) return name;
    return {};
  }
  static void recover(os::Env &env) { static_cast<void>(recover_all(env, folder, {}, {})); }
  // What a process that dies before each call, or after the last, leaves.
  static std::vector<SimDisk> left_at_each_call(const SimDisk &begins, const std::function<void(os::Env &)> &process) {
    SimEnv shared(begins);
    std::vector<SimDisk> left;
    FaultEnv env(shared);
    env.before = [&](Call) {
      left.push_back(shared.disk());
      return 0;
    };
    process(env);
    left.push_back(shared.disk());
    return left;
  }
  std::vector<SimDisk> left_at_each_call() const {
    return left_at_each_call(disk.disk(), [](os::Env &env) { EXPECT_TRUE(is_ok(cut(env))); });
  }
  // Those that have shards and no index. States of which a cut leaves the same are one.
  std::vector<SimDisk> left_with_shards() const {
    std::set<uint64_t> seen;
    auto states = left_at_each_call();
    std::erase_if(states, [&](const SimDisk &state) {
      const SimEnv left(state);
      return shards_in(left) == 0 || left.exists(index_path) ||
             !seen.insert(fingerprint(after_cut(state, true))).second;
    });
    return states;
  }
  // Something happens before the n-th call of `process`, and may fail it: for each n.
  static void each_trial(const SimDisk &begins, const std::function<int(SimEnv &left)> &happens,
                         const std::function<void(SimEnv &left, os::Env &env)> &process) {
    bool more = true;
    for (size_t n = 0; more; ++n) {
      SCOPED_TRACE(n);
      SimEnv left(begins);
      FaultEnv env(left);
      more = false;
      env.before = [&, until = n](Call) mutable {
        if (until-- != 0) return 0;
        more = true;
        return happens(left);
      };
      process(left, env);
    }
  }
  // All of what is not durable yet is lost, or none, or one change, or all but that.
  static std::vector<SimDisk> after_cuts(const SimDisk &state) {
    std::vector<SimDisk> cuts = {after_cut(state, false), after_cut(state, true)};
    const auto changes = pending_changes(state);
    for (size_t i = 0; i < changes.size(); ++i)
      for (const uint32_t kept : {0, 1}) {
        std::vector<uint32_t> keep(changes.size(), 1 - kept);
        keep[i] = kept;
        cuts.push_back(after_cut(state, changes, keep));
      }
    return cuts;
  }
  // What a writer leaves that dies at any call and has no index yet, and how another user sees it.
  void each_that_another_user_finds(const std::function<void(SimEnv &left, os::Env &stranger)> &check) {
    size_t seen = 0;
    for (const SimDisk &state : left_at_each_call()) {
      SimEnv left(state);
      if (left.exists(index_path) || shards_in(left) == 0) continue;
      ++seen;
      Stranger stranger(left);
      check(left, stranger);
    }
    EXPECT_GT(seen, 0u);
  }
  // Somebody else's file has the name of the first shard by then.
  void each_with_a_shard_of_others(const std::function<void(SimEnv &left, const std::string &shard)> &check) {
    const std::string shard = folder + "/model-00001-of-00003.safetensors";
    size_t seen = 0;
    for (const SimDisk &state : left_at_each_call()) {
      SimEnv left(state);
      if (left.exists(index_path) || !left.exists(shard)) continue;
      ++seen;
      ASSERT_EQ(left.remove(shard), 0);
      left.add_file(shard, file.file());
      check(left, shard);
    }
    EXPECT_GT(seen, 0u);
  }

  const Holdings file{{u8_tensor("a", 1000, 1), u8_tensor("b", 1000, 2), u8_tensor("c", 1000, 3)}, {}};
  SimEnv disk = fresh_disk();
};

TEST_F(ShardFolderTest, WhatADeadWriterLeftIsRemovedByTheNext) {
  disk.make_folder(folder);
  disk.add_file(folder + "/notes.txt", "mine");
  disk.add_file(folder + "/.model-notes.txt", "mine");
  size_t named = 0, whole = 0;
  const auto states = left_at_each_call();
  for (size_t n = 0; n < states.size(); ++n)
    for (const SimDisk &state : {states[n], after_cut(states[n], false), after_cut(states[n], true)}) {
      SimEnv left(state);
      const bool is_whole = left.exists(index_path);
      const size_t notes = left.exists(folder + "/notes.txt") ? 2 : 0;  // a folder may be lost by a cut
      if (!is_whole && shards_in(left) > 0) ++named;
      whole += is_whole;
      for (const uint64_t most : {1000, 2000}) {  // other names, too
        SimEnv next(state);
        const auto again = cut(next, most);
        if (is_whole) {
          ASSERT_TRUE(fails_with(Status::invalid_argument, again)) << "call " << n;
          ASSERT_EQ(shards_in(next), 3u);
          continue;
        }
        ASSERT_TRUE(is_ok(again)) << "call " << n;
        ASSERT_EQ(next.names(folder).size(), notes + (most == 1000 ? 4 : 3)) << "call " << n;
        ASSERT_EQ(shards_in(next), most == 1000 ? 3u : 2u);
      }
    }
  EXPECT_GT(named, 0u) << "some have their names before the index is there";
  EXPECT_GT(whole, 0u);
}

TEST_F(ShardFolderTest, AnIndexThatAListLacksIsThereNevertheless) {
  const TempDir dir;
  const std::string from = dir / "m.safetensors", to = dir / "out", index = index_in(to);
  put_bytes(from, file_of({u8_tensor("a", 100, 1)}));
  std::filesystem::create_directory(to);
  put_bytes(index, "another checkpoint's");
  ShortListsEnv lacking;
  EXPECT_TRUE(fails_with(Status::invalid_argument, reshard(lacking, from, to, 1000, {})));
  EXPECT_EQ(bytes_of(index), "another checkpoint's");
}

// Its writer gives the index its name, and dies, before each call up to the one that locks its list.
TEST_F(ShardFolderTest, WhatAnIndexHasComeToNameMeanwhileStays) {
  const auto states = left_at_each_call();
  const auto is_named = [&](const SimDisk &state) {
    const SimEnv left(state);
    return shards_in(left) == 3 && !left.exists(index_path);
  };
  const auto named = std::ranges::find_if(states, is_named);
  ASSERT_NE(named, states.end());
  const std::vector<std::function<Result<void>(os::Env &)>> calls = {
      [](os::Env &env) -> Result<void> {
        ST_TRY(recover_all(env, folder, {}, {}));
        return {};
      },
      [](os::Env &env) { return cut(env, 2000); },
  };
  for (const auto &call : calls) {
    size_t came = 0;
    bool more = true;
    for (size_t n = 0; more; ++n) {
      SCOPED_TRACE(n);
      SimEnv left(*named);
      const std::string list = written_list(left);
      struct UntilLocked : FaultEnv {
        using FaultEnv::FaultEnv;
        int openat(int at, const char *name, int flags, mode_t mode) override {
          const int fd = FaultEnv::openat(at, name, flags, mode);
          if (list == name) opened = fd;
          return fd;
        }
        int lock(int fd, int command, struct flock *lock) override {
          const int r = FaultEnv::lock(fd, command, lock);
          locked |= fd == opened;
          return r;
        }
        std::string list;
        int opened = -1;
        bool locked = false;
      } env(left);
      env.list = list;
      more = false;
      env.before = [&, until = n](Call) mutable {
        if (env.locked || until-- != 0) return 0;
        more = true;
        left.add_file(index_path, "{}");
        return 0;
      };
      static_cast<void>(call(env));
      if (!more) break;
      ++came;
      EXPECT_EQ(shards_in(left), 3u);
      if (HasFailure()) return;
    }
    EXPECT_GT(came, 0u);
  }
}

// By the folder, and by the index that is not there.
TEST_F(ShardFolderTest, WhatADeadWriterLeftIsRemovedByARecovery) {
  disk.make_folder(folder);
  const std::vector<std::string> notes = {".model-notes.txt", ".model.safetensors.index.json.st-new-mine", "notes.txt"};
  for (const std::string &name : notes) disk.add_file(folder + "/" + name, "mine");
  size_t cleaned = 0, whole = 0;
  const auto states = left_at_each_call();
  for (size_t n = 0; n < states.size(); ++n)
    for (const SimDisk &state : {states[n], after_cut(states[n], false), after_cut(states[n], true)})
      for (const std::string &path : {folder, index_path}) {
        SCOPED_TRACE(text("call ", n, ", ", path));
        SimEnv left(state);
        if (!left.exists(folder + "/notes.txt")) continue;  // lost by a cut
        const bool is_whole = left.exists(index_path), is_any = left.names(folder) != notes;
        size_t told = 0;
        const auto done = recover_all(left, path, {}, [&](const write::Finding &f) {
          EXPECT_EQ(f.status, Status::ok);
          return ++told, true;
        });
        whole += is_whole;
        cleaned += is_any && !is_whole;
        if (is_whole) {
          EXPECT_TRUE(is_ok(done));
          EXPECT_EQ(left.names(folder).size(), notes.size() + 4);
          continue;
        }
        const auto again = is_any ? recover_all(left, path, {}, {}) : done;
        EXPECT_TRUE(fails_with(path == folder ? Status::not_regular : Status::no_file, again));
        EXPECT_TRUE(!is_any || is_ok(done));
        EXPECT_EQ(told > 0, is_any);
        EXPECT_EQ(left.names(folder), notes);
        if (HasFailure()) return;
      }
  EXPECT_GT(cleaned, 0u);
  EXPECT_GT(whole, 0u);
}

// The caller may have seen enough after each of them.
TEST_F(ShardFolderTest, ARecoveryLeavesWhatIsNotAsItWasWritten) {
  each_with_a_shard_of_others([&](SimEnv &left, const std::string &shard) {
    int stops = 0;
    const auto stop = [](const write::Finding &) { return false; };
    for (; fails_with(Status::cancelled, recover_all(left, folder, {}, stop)); ++stops)
      if (stops > 10) break;
    EXPECT_GT(stops, 0);
    EXPECT_EQ(left.names(folder), (std::vector<std::string>{"model-00001-of-00003.safetensors"}));
    EXPECT_EQ(left.contents(shard), file.file());
    EXPECT_TRUE(fails_with(Status::not_regular, recover_all(left, folder, {}, {})));
  });
}

// Before each of its calls.
TEST_F(ShardFolderTest, ARecoveryLeavesALivingWriterAlone) {
  size_t busy = 0;
  bool more = true;
  for (size_t n = 0; more; ++n) {
    SCOPED_TRACE(n);
    SimEnv shared = fresh_disk();
    FaultEnv env(shared);
    more = false;
    env.before = [&, left = n](Call) mutable {
      if (left-- != 0) return 0;
      more = true;
      if (!shared.exists(folder) || shared.exists(index_path)) return 0;
      const auto before = shared.names(folder);
      const bool is_busy = static_cast<bool>(fails_with(Status::busy, recover_all(shared, folder, {}, {})));
      busy += is_busy;
      // Its list may have no lock yet. Then there is nothing else, and it makes another.
      EXPECT_TRUE(is_busy ? shared.names(folder) == before : before.size() < 2 && shared.names(folder).empty());
      return 0;
    };
    EXPECT_TRUE(is_ok(cut(env)));
    EXPECT_EQ(shared.names(folder).size(), 4u);
    if (HasFailure()) return;
  }
  EXPECT_GT(busy, 0u);
}

// Its function may use the folder.
TEST_F(ShardFolderTest, ARecoveryTellsWhenNothingIsLocked) {
  size_t told = 0;
  for (const SimDisk &state : left_at_each_call()) {
    SimEnv left(state);
    if (left.exists(index_path) || !left.exists(folder) || left.names(folder).empty()) continue;
    EXPECT_TRUE(is_ok(recover_all(left, folder, {}, [&](const write::Finding &) {
      EXPECT_TRUE(fails_with(Status::not_regular, recover_all(left, folder, {}, {})));
      return ++told, true;
    })));
  }
  EXPECT_GT(told, 0u);
}

// A second process comes to the folder when the first one has its list locked, and waits for it.
class BesideAnother {
 public:
  explicit BesideAnother(const std::string &in) : in_(in) {}
  ~BesideAnother() {
    if (thread_.joinable()) thread_.join();
  }
  void begin() {
    thread_ = std::thread([this] {
      done_ = recover_all(os::Env::posix(), in_, {60'000, nullptr, &waits_}, {});
      has_ended_ = true;
    });
    while (waits_ == 0 && !has_ended_) std::this_thread::yield();
  }
  bool has_begun() const { return thread_.joinable(); }
  Result<write::Recovered> end() {
    thread_.join();
    return std::move(done_);
  }

 private:
  const std::string in_;
  std::atomic<uint64_t> waits_ = 0;
  std::atomic<bool> has_ended_ = false;
  Result<write::Recovered> done_;
  std::thread thread_;
};

TEST_F(ShardFolderTest, RecoveriesWaitForEachOther) {
  constexpr int rounds = 20;  // of the two lists, either has the first name
  for (int n = 0; n < rounds; ++n) {
    const TempDir real;
    const std::string out = real / "out", left = out + "/.model-00001-of-00003.safetensors.st-tmp-0000000000000000";
    std::filesystem::create_directory(out);
    put_bytes(left, "half of it");
    FaultEnv env(os::Env::posix());
    BesideAnother second(out);
    env.before = [&](Call call) {
      if (call == Call::unlinkat && !second.has_begun()) second.begin();
      return 0;
    };
    EXPECT_TRUE(is_ok(recover_all(env, out, {}, {})));
    ASSERT_TRUE(second.has_begun());
    EXPECT_TRUE(is_ok(second.end()));
    EXPECT_TRUE(std::filesystem::is_empty(out));
    if (HasFailure()) return;
  }
}

TEST_F(ShardFolderTest, ManyRecoveriesOfOneFolderEndWell) {
  constexpr int rounds = 20, threads = 4;
  for (int n = 0; n < rounds; ++n) {
    const TempDir real;
    const std::string out = real / "out";
    std::filesystem::create_directory(out);
    put_bytes(out + "/.model-00001-of-00003.safetensors.st-tmp-0000000000000000", "half of it");
    std::atomic<int> cleaned = 0;
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i)
      all.emplace_back([&] {
        const auto done = recover_all(os::Env::posix(), out, {60'000}, {});
        cleaned += done.has_value();
        EXPECT_TRUE(done || done.error().status == Status::not_regular) << done.error().message;
      });
    for (std::thread &t : all) t.join();
    EXPECT_GT(cleaned, 0);
    EXPECT_TRUE(std::filesystem::is_empty(out));
    if (HasFailure()) return;
  }
}

TEST_F(ShardFolderTest, ARecoveryWaitsForALivingWriter) {
  const TempDir real;
  const std::string out = real / "out";
  put_bytes(real / "m.safetensors", file.file());
  FaultEnv env(os::Env::posix());
  BesideAnother second(out);
  env.before = [&](Call call) {
    if (call == Call::renameat && !second.has_begun()) second.begin();
    return 0;
  };
  EXPECT_TRUE(is_ok(reshard(env, real / "m.safetensors", out, 1000, {})));
  ASSERT_TRUE(second.has_begun());
  EXPECT_TRUE(is_ok(second.end())) << "the checkpoint is there by now";
  EXPECT_TRUE(std::filesystem::exists(index_in(out)));
  EXPECT_TRUE(std::filesystem::exists(out + "/model-00003-of-00003.safetensors"));
}

TEST_F(ShardFolderTest, ARecoveryTellsWhatItCouldNotRemove) {
  const TempDir real;
  const std::string list = real / ".model.safetensors.index.json.st-new-0123456789abcdef";
  ASSERT_EQ(::mkfifo(list.c_str(), 0600), 0);
  std::string told;
  EXPECT_TRUE(is_ok(recover_all(os::Env::posix(), real.path(), {}, [&](const write::Finding &f) {
    EXPECT_EQ(f.level, LogLevel::warning);
    told += f.message;
    return true;
  })));
  EXPECT_NE(told.find(list), std::string::npos) << told;
}

TEST_F(ShardFolderTest, WhatIsNoFileUnderTheUsualNameHidesNothing) {
  const TempDir real;
  const std::string usual = real / "model.safetensors", left = real / ".model-1.safetensors.st-tmp-0000000000000000";
  const std::vector<std::function<void()>> makes = {
      [&] { ASSERT_EQ(::mkfifo(usual.c_str(), 0600), 0); },
      [&] { std::filesystem::create_directory(usual); },
      [&] { std::filesystem::create_symlink("nowhere", usual); },
  };
  for (const auto &make : makes) {
    make();
    put_bytes(left, "half of it");
    EXPECT_TRUE(is_ok(recover_all(os::Env::posix(), real.path(), {}, {})));
    EXPECT_FALSE(std::filesystem::exists(left));
    EXPECT_FALSE(recover_all(os::Env::posix(), real.path(), {}, {}));
    std::filesystem::remove(usual);
  }
}

// Its writer died when it had the index in its place.
TEST_F(ShardFolderTest, ShardsOfAnIndexThatWasRemovedStay) {
  size_t seen = 0;
  for (const SimDisk &state : left_at_each_call())
    for (const SimDisk &on_disk : {state, after_cut(state, false), after_cut(state, true)}) {
      SimEnv left(on_disk);
      if (!left.exists(index_path) || written_list(left).empty()) continue;
      ++seen;
      left.remove(index_path);
      SimEnv next(left.disk());
      EXPECT_TRUE(fails_with(Status::invalid_argument, cut(next)));
      EXPECT_EQ(shards_in(next), 3u);
      EXPECT_TRUE(is_ok(recover_all(left, folder, {}, {})));
      EXPECT_EQ(left.names(folder).size(), 3u);
      EXPECT_EQ(shards_in(left), 3u);
    }
  EXPECT_GT(seen, 0u);
}

// So none is left that nobody knows any more.
TEST_F(ShardFolderTest, AWriterThatFailsAndDiesAmidItsTidyingLeavesWhatTheNextKnows) {
  size_t seen = 0;
  std::vector<SimDisk> left;
  FaultEnv env(disk);
  bool fails = false;
  env.before = [&](Call call) {
    if (fails) left.push_back(disk.disk());
    const bool is_index = call == Call::renameat && shards_in(disk) == 3;
    fails |= is_index;
    return is_index ? -EIO : 0;
  };
  EXPECT_FALSE(cut(env));
  for (const SimDisk &state : left) {
    SimEnv next(state);
    if (next.exists(index_path)) continue;
    ++seen;
    EXPECT_TRUE(is_ok(cut(next, 2000)));
    EXPECT_EQ(shards_in(next), 2u);
  }
  EXPECT_GT(seen, 0u);
}

TEST_F(ShardFolderTest, AReshardsLogMayUseTheFolder) {
  const TempDir real;
  const std::string out = real / "out", planted = out + "/model-00001-of-00003.safetensors.st-journal";
  put_bytes(real / "m.safetensors", file.file());
  std::filesystem::create_directories(planted);
  ASSERT_EQ(::chmod(out.c_str(), 01777), 0);
  ASSERT_EQ(::chmod(planted.c_str(), 0702), 0);
  size_t told = 0;
  bool is_made = false;
  write::SaveOptions options;
  options.log = [&](LogLevel, const std::string &message) {
    EXPECT_NE(message.find("passed over"), std::string::npos) << message;
    const auto recovered = recover_all(os::Env::posix(), out, {}, {});
    EXPECT_TRUE(is_made ? is_ok(recovered) : fails_with(Status::not_regular, recovered));
    ++told;
  };
  FaultEnv starved(os::Env::posix());
  starved.before = [renames = 0](Call call) mutable {  // the fourth gives the first of three shards its name
    return call == Call::renameat && ++renames == 4 ? throw std::bad_alloc() : 0;
  };
  EXPECT_THROW(static_cast<void>(reshard(starved, real / "m.safetensors", out, 1000, options)), std::bad_alloc);
  EXPECT_EQ(told, 1u);
  is_made = true;
  EXPECT_TRUE(is_ok(reshard(os::Env::posix(), real / "m.safetensors", out, 1000, options)));
  EXPECT_EQ(told, 2u);
}

// Another user may read the list of a writer, and so see that it lives, and may not write to it.
TEST_F(ShardFolderTest, AnotherUsersLivingWriterIsLeftAlone) {
  Stranger stranger(disk);
  stranger.before_open = [](std::string_view name, int flags) {
    const bool writes = (flags & O_ACCMODE) != O_RDONLY && (flags & O_CREAT) == 0;
    return writes && name.find(".st-new-") != name.npos ? -EACCES : 0;
  };
  FaultEnv env(disk);
  size_t busy = 0;
  env.before = [&](Call call) {
    if (call != Call::renameat || disk.exists(index_path)) return 0;
    const auto before = disk.names(folder);
    busy += static_cast<bool>(fails_with(Status::busy, cut(stranger)));
    busy += static_cast<bool>(fails_with(Status::busy, recover_all(stranger, folder, {}, {})));
    EXPECT_EQ(disk.names(folder), before);
    return 0;
  };
  EXPECT_TRUE(is_ok(cut(env)));
  EXPECT_GT(busy, 0u);
  EXPECT_EQ(busy % 2, 0u);
  EXPECT_EQ(disk.names(folder).size(), 4u);
}

TEST_F(ShardFolderTest, AWaitForALivingWriterCanBeCancelled) {
  const TempDir real;
  const std::string out = real / "out";
  put_bytes(real / "m.safetensors", file.file());
  FaultEnv env(os::Env::posix());
  size_t asked = 0;
  env.before = [&](Call call) {
    if (call != Call::renameat || asked > 0) return 0;
    const Control control([&](uint64_t, uint64_t) { return ++asked, false; }, nullptr);
    EXPECT_TRUE(fails_with(Status::cancelled, recover_all(os::Env::posix(), out, {60'000, &control, nullptr}, {})));
    EXPECT_EQ(asked, 1u);
    return 0;
  };
  EXPECT_TRUE(is_ok(reshard(env, real / "m.safetensors", out, 1000, {})));
  EXPECT_GT(asked, 0u);
}

// As of one that another host has removed. Then the folder is looked at anew.
TEST_F(ShardFolderTest, AServerMayHaveLostWhatARecoveryWaitsFor) {
  FaultEnv env(disk);
  size_t busy = 0;
  env.before = [&](Call call) {
    if (call != Call::renameat || shards_in(disk) == 0) return 0;
    bool more = true;
    for (size_t n = 0; more; ++n) {
      FaultEnv beside(disk);
      more = false;
      beside.before = [&, until = n](Call) mutable {
        more |= until == 0;
        return until-- == 0 ? -ESTALE : 0;
      };
      const auto done = recover_all(beside, folder, {}, {});
      EXPECT_FALSE(done);
      busy += more && !done && done.error().status == Status::busy;
    }
    return 0;
  };
  EXPECT_TRUE(is_ok(cut(env)));
  EXPECT_GT(busy, 0u);
  recover(disk);  // lists of recoveries that could not remove them
  EXPECT_EQ(disk.names(folder).size(), 4u);
}

// A reshard died, and then another, or a recovery.
TEST_F(ShardFolderTest, WhatTwoDeadOnesLeftIsKnownToTheNext) {
  size_t whole = 0, cleaned = 0;
  std::set<uint64_t> seen;
  for (const SimDisk &first : left_at_each_call()) {
    if (SimEnv(first).exists(index_path) || !seen.insert(fingerprint(after_cut(first, true))).second) continue;
    for (const bool reshards : {true, false})
      for (const SimDisk &second :
           left_at_each_call(first, [&](os::Env &env) { reshards ? void(cut(env, 2000)) : recover(env); }))
        for (const SimDisk &state : after_cuts(second)) {
          if (!seen.insert(fingerprint(state)).second) continue;
          SimEnv left(state), next(state);
          if (left.exists(index_path)) {
            ++whole;
            left.remove(index_path);
            recover(left);
            ASSERT_EQ(shards_in(left), 2u);
          } else if (left.exists(folder)) {
            ++cleaned;
            recover(left);
            ASSERT_EQ(left.names(folder).size(), 0u);
            ASSERT_TRUE(is_ok(cut(next)));
            ASSERT_EQ(next.names(folder).size(), 4u);
          }
        }
  }
  EXPECT_GT(whole, 0u);
  EXPECT_GT(cleaned, 0u);
}

// Whatever a cut brings back of it.
TEST_F(ShardFolderTest, WhatAWriterThatFailsLeavesIsKnownToTheNext) {
  disk.make_folder(folder);
  const SimDisk durable = after_cut(disk.disk(), true);
  size_t came = 0;
  std::set<uint64_t> seen;
  bool more = true;
  for (size_t n = 0; more; ++n) {
    SCOPED_TRACE(n);
    SimEnv shared(durable);
    FaultEnv env(shared);
    std::vector<SimDisk> left;
    more = false;
    env.before = [&, until = n](Call) mutable {
      if (more) left.push_back(shared.disk());
      if (until-- != 0) return 0;
      more = true;
      return -EIO;
    };
    if (cut(env)) continue;
    left.push_back(shared.disk());
    for (const SimDisk &dead : left)
      for (const SimDisk &state : after_cuts(dead)) {
        if (!seen.insert(fingerprint(state)).second) continue;
        SimEnv next(state);
        if (next.exists(index_path)) {
          ASSERT_EQ(shards_in(next), 3u);
          continue;
        }
        ++came;
        ASSERT_TRUE(is_ok(cut(next, 2000)));
        ASSERT_EQ(shards_in(next), 2u);
      }
  }
  EXPECT_GT(came, 0u);
}

TEST_F(ShardFolderTest, WhatARecoveryFailsToRemoveIsToldAndKnownToTheNext) {
  size_t stayed = 0;
  for (const SimDisk &state : left_with_shards()) {
    const auto fails = [](SimEnv &) { return -EIO; };
    each_trial(state, fails, [&](SimEnv &left, os::Env &env) {
      size_t warned = 0;
      const auto done = recover_all(env, folder, {}, [&](const write::Finding &f) {
        warned += f.level == LogLevel::warning;
        return true;
      });
      ASSERT_TRUE(!done || shards_in(left) == 0 || warned > 0);
      stayed += done && shards_in(left) > 0;
      recover(left);
      ASSERT_EQ(left.names(folder).size(), 0u);
    });
  }
  EXPECT_GT(stayed, 0u);
}

TEST_F(ShardFolderTest, WhatIsMadeBesideARecoveryOrAnotherWriterIsWhole) {
  const auto cuts = [](os::Env &env) { return cut(env).has_value(); };
  const auto recovers = [](os::Env &env) { return recover(env), false; };
  const auto cuts_otherwise = [](os::Env &env) { return cut(env, 2000).has_value(); };
  const std::vector<std::array<std::function<bool(os::Env &)>, 2>> pairs = {
      {recovers, cuts_otherwise}, {recovers, recovers}, {cuts, cuts_otherwise}, {cuts, recovers}};
  size_t made = 0;
  for (const SimDisk &state : left_with_shards()) {
    for (const auto &[one, other] : pairs) {
      bool is_others = false;
      const auto runs = [&, &runs_other = other](SimEnv &left) { return is_others = runs_other(left), 0; };
      each_trial(state, runs, [&, &runs_one = one](SimEnv &left, os::Env &env) {
        is_others = false;
        const bool is_its = runs_one(env);
        made += is_its || is_others;
        ASSERT_FALSE(is_its && is_others);
        ASSERT_EQ(shards_in(left), is_its ? 3u : is_others ? 2u : 0u);
        ASSERT_EQ(left.exists(index_path), is_its || is_others);
      });
    }
  }
  EXPECT_GT(made, 0u);
}

// They decide about it.
TEST_F(ShardFolderTest, ARecoveryLeavesANewIndexBesideItsJournals) {
  disk.make_folder(folder);
  disk.make_folder(index_path + ".st-journal");
  const std::string fresh = ".model.safetensors.index.json.st-new-0123456789abcdef";
  disk.add_file(folder + "/" + fresh, "{}");
  EXPECT_TRUE(fails_with(Status::not_regular, recover_all(disk, folder, {}, {})));
  EXPECT_TRUE(disk.exists(folder + "/" + fresh));
}

TEST_F(ShardFolderTest, ARecoveryLeavesTheListOfAnotherUser) {
  each_that_another_user_finds([&](SimEnv &left, os::Env &stranger) {
    const size_t shards = shards_in(left);
    std::string told;
    ASSERT_TRUE(is_ok(recover_all(stranger, folder, {}, [&](const write::Finding &f) {
      told += f.message;
      return true;
    })));
    EXPECT_NE(told.find("was left by user"), std::string::npos) << told;
    EXPECT_EQ(shards_in(left), shards);
    EXPECT_TRUE(is_ok(recover_all(left, folder, {}, {})));
    EXPECT_EQ(left.names(folder).size(), 0u);
  });
}

TEST_F(ShardFolderTest, AShardThatIsNotAsItWasWrittenStays) {
  each_with_a_shard_of_others([&](SimEnv &left, const std::string &shard) {
    ASSERT_TRUE(fails_with(Status::invalid_argument, cut(left)));
    ASSERT_EQ(left.contents(shard), file.file());
    ASSERT_EQ(shards_in(left), 1u) << "the others are as they were written";
  });
}

TEST_F(ShardFolderTest, ShardsThatNoListNamesAreSomebodyElses) {
  const std::string shard = folder + "/model-00001-of-00003.safetensors";
  disk.make_folder(folder);
  disk.add_file(shard, file.file());
  disk.add_file(folder + "/.model.safetensors.index.json.st-new-0123456789abcdef", "no list");
  EXPECT_TRUE(fails_with(Status::invalid_argument, cut(disk)));
  EXPECT_EQ(disk.contents(shard), file.file());
}

TEST_F(ShardFolderTest, AListOfAnotherUserIsNotBelieved) {
  each_that_another_user_finds([&](SimEnv &left, os::Env &stranger) {
    const size_t shards = shards_in(left);
    ASSERT_TRUE(fails_with(Status::invalid_argument, cut(stranger)));
    ASSERT_EQ(shards_in(left), shards);
  });
}

// What a stranger puts into a shared folder ends nobody's work there.
TEST_F(ShardFolderTest, AStrangersFileThatLooksLikeAListIsPassedOver) {
  const std::string list = ".model.safetensors.index.json.st-new-0123456789abcdef";
  struct Owned : FaultEnv {
    using FaultEnv::FaultEnv;
    int fstatat(int at, const char *name, struct stat *out, int flags) override {
      const int r = FaultEnv::fstatat(at, name, out, flags);
      if (strangers == name) out->st_uid = 4242;
      return r;
    }
    std::string strangers;
  } env(disk);
  env.strangers = list;
  env.before_open = [&](std::string_view name, int) { return name == list ? -EACCES : 0; };
  disk.make_folder(folder);
  disk.add_file(folder + "/" + list, "");
  EXPECT_TRUE(is_ok(cut(env)));
  EXPECT_EQ(shards_in(disk), 3u);

  const TempDir real;
  put_bytes(real / "m.safetensors", file.file());
  std::filesystem::create_directory(real / "out");
  ASSERT_EQ(::mkfifo((real / ("out/" + list)).c_str(), 0600), 0);
  EXPECT_TRUE(is_ok(reshard(os::Env::posix(), real / "m.safetensors", real / "out", 1000, {})));
}

// A disk that says how much is free, and what can be shared on it.
class FreeDisk : public FaultEnv {
 public:
  explicit FreeDisk(os::Env &base) : FaultEnv(base) {
    told_of_disk = [this](struct statfs &s) {
      s.f_blocks = 1'000'000;
      s.f_bavail = free / static_cast<uint64_t>(s.f_bsize);
    };
  }
  uint64_t free = 0;
};

TEST_F(ShardFolderTest, ShardsThatDoNotAllFitAreRefusedBeforeTheFirstByte) {
  FreeDisk env(disk);
  write::SaveOptions options;
  uint64_t moved = 0;
  options.progress = [&](uint64_t done, uint64_t) { return moved = std::max(moved, done), true; };
  std::optional<uint64_t> refused_at;
  constexpr uint64_t step = 4096, most = 64;
  for (uint64_t blocks = 0; blocks < most; ++blocks) {
    env.free = blocks * step;
    const auto done = reshard(env, source, folder, 1000, options);
    if (done) break;
    refused_at = env.free;
    ASSERT_TRUE(fails_with(Status::no_space, done));
    EXPECT_NE(done.error().message.find(folder), std::string::npos) << done.error().message;
    EXPECT_EQ(done.error().message.find(".st-"), std::string::npos) << done.error().message;
    ASSERT_EQ(moved, 0u) << env.free;
    EXPECT_FALSE(disk.exists(folder));
  }
  ASSERT_TRUE(refused_at);
  EXPECT_GT(moved, 0u);
  EXPECT_EQ(shards_in(disk), 3u);
}

// Blocks that are shared take no room.
TEST_F(ShardFolderTest, WhatShardsShareWithTheirSourceIsNoRoomThatTheyTake) {
  std::vector<TestTensor> tensors;
  constexpr size_t block = 4096, long_one = 256 * block;
  for (const char *name : {"a", "b", "c", "d"}) tensors.push_back(u8_tensor(name, long_one, 1));
  write::SaveOptions aligned;
  aligned.alignment = block;
  const auto least_free = [&](bool shares) {
    SimEnv made = fresh_disk();
    SimDisk state = made.disk();
    state.reflinks = shares;
    SimEnv on(state);
    on.add_file("/models/long.safetensors", file_of(tensors));
    EXPECT_TRUE(is_ok(join(on, "/models/long.safetensors", "/models/aligned.safetensors", aligned)));
    FreeDisk env(on);
    for (env.free = 0; !reshard(env, "/models/aligned.safetensors", folder, long_one, aligned); env.free += 16 * block)
      if (env.free > 16 * long_one) break;
    EXPECT_EQ(on.names(folder).size(), 5u);
    return env.free;
  };
  EXPECT_GE(least_free(false), 4 * long_one);
  EXPECT_LT(least_free(true), 2 * long_one);
}

TEST_F(ShardFolderTest, OfTwoWritersInOneFolderTheSecondIsRefused) {
  FaultEnv env(disk);
  size_t refused = 0;
  env.before = [&](Call call) {
    if ((call != Call::copy_range && call != Call::renameat) || disk.exists(index_path)) return 0;
    const auto second = cut(disk, 2000);
    EXPECT_FALSE(second);
    refused += !second && second.error().status == Status::busy;
    return 0;
  };
  EXPECT_TRUE(is_ok(cut(env)));
  EXPECT_GT(refused, 0u);
  EXPECT_EQ(disk.names(folder).size(), 4u);
  EXPECT_EQ(shards_in(disk), 3u);
}

}  // namespace
}  // namespace st::store
