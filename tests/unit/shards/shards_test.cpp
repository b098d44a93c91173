// Sharded checkpoints: one catalogue, lazily opened shards, what is wrong between
// index and shards, descriptors, changes across shards, and reshaping.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "clock_env.h"
#include "engine/open.h"
#include "engine/reshape.h"
#include "engine/verify.h"
#include "file/transaction.h"
#include "format/shard_index.h"
#include "shards/shards.h"
#include "shards_scene.h"
#include "short_lists_env.h"

namespace st::testing {
namespace {

using store::Model;
using store::OpenOptions;

class ShardsTest : public ShardsScene {
 protected:
  ShardsTest() {
    put_shards(dir.path());
    put_index(
        R"({"metadata":{"total_size":9100,"by":"me"},"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
  }
  std::string shard(int i) const { return dir / ("m-" + std::to_string(i) + ".safetensors"); }
  void put_index(const std::string &json) { put_bytes(index, json); }
  static OpenOptions writable() {
    OpenOptions options;
    options.writable = true;
    options.lock_timeout_ms = 0;
    return options;
  }
  std::unique_ptr<Model> open(OpenOptions options = {}) const { return open_at(index, std::move(options)); }
  static std::unique_ptr<Model> open_at(const std::string &path, OpenOptions options = {}) {
    auto opened = store::open_path(os::Env::posix(), path, std::move(options));
    EXPECT_TRUE(opened) << opened.error().message;
    return opened ? std::move(*opened) : nullptr;
  }
  Status first_failure() const {
    auto opened = store::open_path(os::Env::posix(), index, {});
    if (!opened) return opened.error().status;
    const store::Catalogue catalogue = (*opened)->catalogue();
    for (size_t i = 0; i < catalogue.size(); ++i)
      if (auto place = catalogue.at(i); !place) return place.error().status;
    return Status::ok;
  }
  Status verified() const { return verified(index); }
  static Status verified(const std::string &path) {
    auto done = store::verify(os::Env::posix(), path, {}, {});
    return done ? Status::ok : done.error().status;
  }
  static std::string bytes(const Model &c, std::string_view name) {
    auto place = c.catalogue().find(name);
    EXPECT_TRUE(place) << place.error().message;
    if (!place) return {};
    auto view = place->member->view(*place->snapshot, place->index);
    EXPECT_TRUE(view) << view.error().message;
    return {reinterpret_cast<const char *>(*view), static_cast<size_t>(place->tensor().nbytes)};
  }
  static size_t descriptors() {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
  }

  const TempDir dir;
  const std::string index = dir / "m.safetensors.index.json";
};

// As of one file: a part of the first tensor is better than nothing.
TEST_F(ShardsTest, AMemoryLimitBelowTheFirstTensorStillPrefetchesThatMuch) {
  for (const std::string &path : {index, shard(1)})
    for (const uint64_t limit : {1000, 4050}) {
      OpenOptions options;
      options.bulk.prefetch = read::Prefetch::parallel;  // as on a disk
      options.memory_limit = limit;
      auto c = open_at(path, options);
      ASSERT_TRUE(c->prefetch(c->catalogue(), std::nullopt, {}));
      EXPECT_EQ(c->catalogue().find("a")->member->counters().bytes_prefetched, limit) << path;
    }
}

TEST_F(ShardsTest, OpensAsOneByIndexAndByFolder) {
  for (const std::string &path : {index, dir.path(), dir.path() + "/"}) {
    auto c = open_at(path);
    ASSERT_TRUE(c);
    EXPECT_EQ(c->catalogue().members(), 2u);
    const store::Catalogue catalogue = c->catalogue();
    ASSERT_EQ(catalogue.size(), 3u);
    EXPECT_EQ(catalogue.at(0)->tensor().name, "a");
    EXPECT_EQ(catalogue.at(2)->tensor().name, "c");
    EXPECT_EQ(catalogue.at(2)->number, 1u);
    EXPECT_EQ(catalogue.find("c")->global, 2u);
    EXPECT_EQ(catalogue.metadata_find("by"), "me");
    EXPECT_EQ(bytes(*c, "b"), pattern(100, 2));
    EXPECT_EQ(bytes(*c, "c"), pattern(5000, 3));
  }
}

// Another program has a lease on a file, and keeps it.
TEST_F(ShardsTest, ALeaseIsWaitedForNoLongerThanTheHandleWaitsForLocks) {
  ClockEnv env(os::Env::posix());
  std::string leased;
  env.before_open = [&](std::string_view name, int) { return name == leased ? -EAGAIN : 0; };
  auto shards = store::Shards::open(env, index, writable());
  ASSERT_TRUE(shards);
  store::TransactionOptions options;
  options.lock_timeout_ms = 0;
  const std::string both[] = {std::filesystem::path(index).filename().string(),
                              std::filesystem::path(shard(1)).filename().string()};
  for (const std::string &name : both) {
    auto transaction = (*shards)->begin(options);
    ASSERT_TRUE(transaction);
    ASSERT_TRUE((*transaction)->rename("a", "x"));
    leased = name;
    const auto plan = (*transaction)->plan();
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().status, Status::busy) << plan.error().message;
    EXPECT_EQ(env.sleeps, 0u);
    leased.clear();
  }
  leased = both[0];
  const auto opened = store::Shards::open(env, index, writable());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().status, Status::busy) << opened.error().message;
  EXPECT_EQ(env.sleeps, 0u);
}

TEST_F(ShardsTest, ShardsAreOpenedWhenTheyAreNeeded) {
  auto c = open();
  EXPECT_EQ(c->catalogue().opened().size(), 0u);
  EXPECT_EQ(c->catalogue().size(), 3u);
  EXPECT_EQ(c->catalogue().opened().size(), 0u);
  ASSERT_TRUE(c->catalogue().at(2));
  EXPECT_EQ(c->catalogue().opened().size(), 1u);
}

TEST_F(ShardsTest, AShardThatAListLacksIsThereNevertheless) {
  ShortListsEnv lacking;
  auto opened = store::Shards::open(lacking, index, writable());
  ASSERT_TRUE(is_ok(opened));
  EXPECT_TRUE(is_ok((*opened)->refresh()));
  std::filesystem::remove(shard(2));
  EXPECT_TRUE(fails_with(Status::shard_missing, (*opened)->refresh()));
}

TEST_F(ShardsTest, WhatIsWrongHasAName) {
  EXPECT_EQ(first_failure(), Status::ok);
  EXPECT_EQ(verified(), Status::ok);
  put_index(R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-3.safetensors"}})");
  EXPECT_EQ(first_failure(), Status::shard_missing);
  EXPECT_EQ(verified(), Status::shard_missing);
  put_index(R"({"weight_map":{"a":")" + std::string(300, 'x') + R"("}})");  // no file's name can be so long
  EXPECT_EQ(first_failure(), Status::shard_missing);
  put_index(R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","x":"m-2.safetensors"}})");
  EXPECT_EQ(first_failure(), Status::shard_tensor);
  EXPECT_EQ(verified(), Status::shard_tensor);
  put_index(R"({"weight_map":{"a":"m-1.safetensors","c":"m-2.safetensors"}})");  // m-1 also holds b
  EXPECT_EQ(first_failure(), Status::shard_tensor);
  EXPECT_EQ(verified(), Status::shard_tensor);
  put_index(R"({"weight_map":{"a":"m-2.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
  EXPECT_EQ(first_failure(), Status::shard_tensor);
  put_bytes(shard(2), file_of(std::vector{u8_tensor("c", 5000, 3), u8_tensor("a", 10, 4)}));
  EXPECT_EQ(first_failure(), Status::shard_duplicate);
  EXPECT_EQ(verified(), Status::shard_duplicate);
  put_index(R"({"weight_map":{"a":"../m-1.safetensors"}})");
  EXPECT_EQ(first_failure(), Status::shard_path);
  put_index("{}");
  EXPECT_EQ(first_failure(), Status::shard_index);
  EXPECT_EQ(verified(), Status::shard_index);
}

TEST_F(ShardsTest, AFolderWithTwoIndexesIsAmbiguous) {
  put_bytes(dir / "n.safetensors.index.json", "{}");
  auto opened = store::open_path(os::Env::posix(), dir.path(), {});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().status, Status::shard_index);
}

TEST_F(ShardsTest, AnIndexThatIsReplacedIsNoticedBeforeAShardIsOpened) {
  auto c = open();
  ASSERT_TRUE(c->catalogue().find("a"));
  testing::replace_by(index, R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
  EXPECT_EQ(bytes(*c, "a"), pattern(4000, 1));  // which was open
  auto place = c->catalogue().find("c");
  ASSERT_FALSE(place);
  EXPECT_EQ(place.error().status, Status::file_changed);
  ASSERT_TRUE(c->refresh());
  EXPECT_EQ(bytes(*c, "c"), pattern(5000, 3));
}

// A server may tell late when the index was written (MooseFS), and anybody may touch it.
TEST_F(ShardsTest, AnIndexOfAnotherTimeThatCannotBeReadIsNotTakenForAnother) {
  for (int before_it = 0;; ++before_it) {
    FaultEnv env(os::Env::posix());
    auto model = store::open_path(env, index, {});
    ASSERT_TRUE(model);
    std::filesystem::last_write_time(index, std::filesystem::last_write_time(index) - std::chrono::hours(1));
    env.before = [left = before_it](Call call) mutable { return call == Call::pread && left-- == 0 ? -EIO : 0; };
    const auto place = (*model)->catalogue().find("c");
    if (place) {
      EXPECT_GT(before_it, 1);  // the index, and the shard's header
      return;
    }
    EXPECT_EQ(place.error().status, Status::io);
  }
}

TEST_F(ShardsTest, AnIndexOfAnotherTimeIsTheSameAsLongAsItsBytesAre) {
  const auto age = [&](int hours) {  // another number each time, as Windows sets whole seconds
    std::filesystem::last_write_time(index, std::filesystem::last_write_time(index) - std::chrono::hours(hours));
  };
  const std::string same =
      R"({"metadata":{"total_size":9100,"by":"me"},"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})";
  const std::string other =
      R"({"metadata":{"total_size":9100,"by":"us"},"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})";
  const auto model = open();
  age(1);
  EXPECT_EQ(bytes(*model, "a"), pattern(4000, 1));
  put_index(other);
  age(2);
  const auto place = model->catalogue().find("c");
  ASSERT_FALSE(place);
  EXPECT_EQ(place.error().status, Status::file_changed);
  put_index(same);
  EXPECT_EQ(bytes(*model, "c"), pattern(5000, 3));
  const auto second = open();
  testing::replace_by(index, same);  // by whoever may have changed the shards, too
  EXPECT_FALSE(second->catalogue().find("c"));
}

// Whose files have a ctime that is `seconds` later than it is, and later by more at each look.
struct LaterCtime final : FaultEnv {
  LaterCtime() : FaultEnv(os::Env::posix()) {}
  int fstat(int fd, struct stat *out) override { return later(FaultEnv::fstat(fd, out), out); }
  int fstatat(int dir, const char *path, struct stat *out, int flags) override {
    return later(FaultEnv::fstatat(dir, path, out, flags), out);
  }
  int later(int r, struct stat *out) {
    seconds = std::min(seconds + more, most);
    if (r == 0) out->st_ctim.tv_sec += seconds;
    return r;
  }
  static constexpr int most = 10000;
  int seconds = 0, more = 0;
};

// As when an archive is unpacked over it, whose files all have one time.
TEST_F(ShardsTest, AnIndexIsToldFromOneOfTheSameInodeSizeAndTime) {
  LaterCtime env;
  std::filesystem::copy_file(shard(2), dir / "m-3.safetensors");
  const auto before = std::filesystem::last_write_time(index);
  auto c = store::open_path(env, index, writable());
  ASSERT_TRUE(is_ok(c));
  EXPECT_EQ(bytes(**c, "c"), pattern(5000, 3));
  put_index(
      R"({"metadata":{"total_size":9100,"by":"me"},"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-3.safetensors"}})");
  std::filesystem::last_write_time(index, before);
  env.seconds = 1;
  auto begun = (*c)->begin({});
  ASSERT_TRUE(is_ok(begun));
  const std::string value(5000, 'x');
  ASSERT_TRUE(is_ok((*begun)->update("c", u8(value))));
  const auto done = (*begun)->commit();
  ASSERT_FALSE(done);  // else the change were where nobody looks for it
  EXPECT_EQ(done.error().status, Status::file_changed);
}

// A server may tell another ctime at each look. And others may link it or change its mode all the time.
TEST_F(ShardsTest, AnIndexWhoseCtimeTellsNothingIsToldByItsBytes) {
  LaterCtime env;
  env.more = 1;
  auto c = store::open_path(env, index, writable());
  ASSERT_TRUE(is_ok(c));
  EXPECT_EQ(bytes(**c, "c"), pattern(5000, 3));
  for (unsigned n = 0; n < 3; ++n) {
    EXPECT_TRUE(is_ok((*c)->refresh()));
    auto begun = (*c)->begin({});
    ASSERT_TRUE(is_ok(begun));
    const std::string value = pattern(5000, 10 + n);
    ASSERT_TRUE(is_ok((*begun)->update("c", u8(value))));
    ASSERT_TRUE(is_ok((*begun)->rename(n % 2 ? "z" : "a", n % 2 ? "a" : "z")));
    ASSERT_TRUE(is_ok((*begun)->commit()));
    EXPECT_EQ(bytes(**c, "c"), value);
  }
  EXPECT_TRUE(is_ok((*c)->refresh()));
  std::filesystem::remove(shard(2));
  const auto lacking = store::open_path(env, index, {});
  ASSERT_FALSE(lacking);
  EXPECT_EQ(lacking.error().status, Status::shard_missing);
  EXPECT_LT(env.seconds, env.most);
}

TEST_F(ShardsTest, BulkReadsGoAcrossShards) {
  auto c = open();
  std::string a(4000, 0), cc(5000, 0);
  const store::Catalogue catalogue = c->catalogue();
  uint64_t last = 0, total = 0;
  auto done = c->read_many({{*catalogue.find("c"), nullptr, reinterpret_cast<std::byte *>(cc.data())},
                            {*catalogue.find("a"), nullptr, reinterpret_cast<std::byte *>(a.data())}},
                           [&](uint64_t now, uint64_t all) { return last = now, total = all, true; });
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(a, pattern(4000, 1));
  EXPECT_EQ(cc, pattern(5000, 3));
  EXPECT_EQ(last, 9000u);
  EXPECT_EQ(total, 9000u);
  ASSERT_TRUE(c->load(catalogue, std::nullopt, false, false, {}));
  EXPECT_EQ(bytes(*c, "b"), pattern(100, 2));
  ASSERT_TRUE(c->prefetch(catalogue, std::nullopt, {}));
  auto stopped = c->read_many({{*catalogue.find("a"), nullptr, reinterpret_cast<std::byte *>(a.data())}},
                              [](uint64_t, uint64_t) { return false; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().status, Status::cancelled);
}

TEST_F(ShardsTest, ATransactionChangesAllShardsOrNone) {
  auto c = open(writable());
  const std::string a = pattern(4000, 11), x = pattern(50, 12), old_b = bytes(*c, "b");
  auto txn = c->begin({});
  ASSERT_TRUE(txn);
  ASSERT_TRUE((*txn)->update("a", u8(a)));
  ASSERT_TRUE((*txn)->remove("c"));
  ASSERT_TRUE((*txn)->put("x", u8(x)));  // goes where something is rewritten anyway
  ASSERT_TRUE((*txn)->rename("b", "bb"));
  EXPECT_EQ((*txn)->rename("a", "bb").error().status, Status::duplicate_name);
  EXPECT_EQ((*txn)->remove("b").error().status, Status::not_found);
  ASSERT_TRUE((*txn)->set_metadata("note", "n"));
  EXPECT_EQ((*txn)->set_metadata("total_size", "1").error().status, Status::invalid_argument);
  auto done = (*txn)->commit();
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(c->catalogue().size(), 3u);
  EXPECT_EQ(bytes(*c, "a"), a);
  EXPECT_EQ(bytes(*c, "x"), x);
  EXPECT_EQ(bytes(*c, "bb"), old_b);
  EXPECT_EQ(c->catalogue().metadata_find("note"), "n");
  EXPECT_EQ(c->catalogue().metadata_find("total_size"), "4150");
  EXPECT_EQ(verified(), Status::ok);
  auto again = open();
  EXPECT_EQ(bytes(*again, "x"), x);
  txn->reset();
  c.reset();
  for (const auto &entry : std::filesystem::directory_iterator(dir.path()))
    EXPECT_TRUE(entry.path().filename().string().starts_with("m")) << entry.path();
}

TEST_F(ShardsTest, AnUpdateInOneShardLeavesTheIndexAlone) {
  const std::string before = bytes_of(index);
  auto c = open(writable());
  const std::string fresh = pattern(5000, 21);
  auto txn = c->begin({});
  ASSERT_TRUE((*txn)->update("c", u8(fresh)));
  ASSERT_TRUE((*txn)->commit());
  EXPECT_EQ(bytes(*c, "c"), fresh);
  EXPECT_EQ(bytes_of(index), before);
}

// What another handle has committed meanwhile is followed, where it fits.
TEST_F(ShardsTest, FollowsAnIndexThatOthersChanged) {
  auto one = open(writable()), two = open(writable());
  const std::string x = pattern(10, 31), y = pattern(20, 32);
  auto a = one->begin({}), b = two->begin({});
  ASSERT_TRUE((*a)->put("x", u8(x)));
  ASSERT_TRUE((*b)->put("y", u8(y)));
  ASSERT_TRUE((*a)->commit());
  auto done = (*b)->commit();
  ASSERT_TRUE(done) << done.error().message;
  ASSERT_TRUE(one->refresh());
  for (const auto *c : {&one, &two}) {
    EXPECT_EQ(bytes(**c, "x"), x);
    EXPECT_EQ(bytes(**c, "y"), y);
  }
  EXPECT_EQ(verified(), Status::ok);
}

TEST_F(ShardsTest, WaitsForWhoeverHoldsTheIndexOrAShard) {
  auto c = open(writable());
  for (const std::string &held : {index, shard(2)}) {
    auto file = os::File::open(os::Env::posix(), AT_FDCWD, held, O_RDWR, 0, held);
    auto lock = os::RangeLock::acquire(*file, {{0, 0, true}}, {});
    ASSERT_TRUE(lock);
    store::TransactionOptions options;
    options.lock_timeout_ms = 0;
    auto txn = c->begin(options);
    ASSERT_TRUE((*txn)->remove("c"));
    auto busy = (*txn)->commit();
    ASSERT_FALSE(busy);
    EXPECT_EQ(busy.error().status, Status::busy) << busy.error().message;
    lock->release();
    if (held == shard(2)) {
      EXPECT_TRUE((*txn)->commit());  // again
    }
  }
  EXPECT_EQ(c->catalogue().size(), 2u);
}

TEST_F(ShardsTest, ThousandsOfShardsNeedNoMoreDescriptorsThanAFew) {
  constexpr int n = 2000;
  const std::string many = dir / "many";
  std::filesystem::create_directory(many);
  ShardIndex built = ShardIndex::of({}, 0);
  for (int i = 0; i < n; ++i) {
    const std::string name = "s" + std::to_string(i) + ".safetensors";
    put_bytes(many + "/" + name, file_of(std::vector{u8_tensor("t" + std::to_string(i), 64, i % 100)}));
    built.assign("t" + std::to_string(i), name);
  }
  put_bytes(many + "/m.safetensors.index.json", built.spell());
  const size_t before = descriptors();
  rlimit was;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
  const rlimit low{std::min<rlim_t>(1024, was.rlim_cur), was.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  {
    auto c = open_at(many, writable());
    ASSERT_TRUE(c);
    std::vector<const char *> views;
    for (int i = 0; i < n; ++i) {
      auto place = c->catalogue().find("t" + std::to_string(i));
      ASSERT_TRUE(place) << place.error().message;
      auto view = place->member->view(*place->snapshot, place->index);
      ASSERT_TRUE(view);
      views.push_back(reinterpret_cast<const char *>(*view));
    }
    EXPECT_LE(descriptors(), before + 140);
    for (int i = 0; i < n; ++i) {  // views stay, and reads open anew what was given up
      ASSERT_EQ(std::string(views[static_cast<size_t>(i)], 64), pattern(64, i % 100));
      char copy[64];
      auto place = c->catalogue().find("t" + std::to_string(i));
      auto read = place->member->read(*place->snapshot, place->index, copy);
      ASSERT_TRUE(read) << read.error().message;
      ASSERT_EQ(std::string(copy, 64), pattern(64, i % 100));
    }
    for (int i = 0; i < n; i += 10) {
      const std::string fresh = pattern(64, 7);
      auto txn = c->begin({});
      ASSERT_TRUE((*txn)->update("t" + std::to_string(i), u8(fresh)));
      auto done = (*txn)->commit();
      ASSERT_TRUE(done) << done.error().message;
    }
    EXPECT_LE(descriptors(), before + 200);
    const std::string fresh = pattern(64, 8);
    auto dropped = c->begin({});
    for (int i = 0; i < 200; ++i) ASSERT_TRUE((*dropped)->update("t" + std::to_string(i), u8(fresh)));
    dropped->reset();
    EXPECT_LE(descriptors(), before + 200);
  }
  EXPECT_EQ(descriptors(), before);
  setrlimit(RLIMIT_NOFILE, &was);
}

TEST_F(ShardsTest, ReshapesWithoutLoss) {
  put_index(
      R"({"metadata":{"total_size":9100,"total_parameters":9100,"by":"me","n":7},"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
  const std::string folder = dir / "out", file = dir / "joined.safetensors";
  ASSERT_TRUE(store::reshard(os::Env::posix(), index, folder, 4100, {}));
  auto shards = open_at(folder);
  ASSERT_TRUE(shards);
  EXPECT_EQ(shards->catalogue().members(), 2u);  // a and b fit one, c is larger than allowed and alone
  EXPECT_EQ(bytes(*shards, "c"), pattern(5000, 3));
  EXPECT_EQ(shards->catalogue().metadata_find("total_size"), "9100");
  EXPECT_NE(bytes_of(folder + "/model.safetensors.index.json").find("\"total_parameters\": 9100"), std::string::npos);
  EXPECT_EQ(shards->catalogue().metadata_find("by"), "me");
  EXPECT_EQ(verified(folder), Status::ok);
  ASSERT_TRUE(store::join(os::Env::posix(), folder, file, {}));
  auto joined = open_at(file);
  EXPECT_EQ(bytes(*joined, "a"), pattern(4000, 1));
  EXPECT_EQ(joined->catalogue().metadata_find("by"), "me");
  EXPECT_EQ(joined->catalogue().metadata_find("total_size"), std::nullopt);
  EXPECT_EQ(joined->catalogue().metadata_find("total_parameters"), std::nullopt);
  for (const char *read : {"/model-00002-of-00002.safetensors", "/model.safetensors.index.json"})
    EXPECT_EQ(store::join(os::Env::posix(), folder, folder + read, {}).error().status, Status::invalid_argument);
  EXPECT_EQ(verified(folder), Status::ok);
  EXPECT_EQ(store::join(os::Env::posix(), file, file, {}).error().status, Status::invalid_argument);
  EXPECT_EQ(verified(file), Status::ok);

  auto full = store::reshard(os::Env::posix(), file, folder, 4100, {});
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().status, Status::invalid_argument);
  write::SaveOptions cancelled;
  cancelled.progress = [](uint64_t done, uint64_t) { return done < 5000; };
  EXPECT_EQ(store::reshard(os::Env::posix(), file, dir / "none", 4100, cancelled).error().status, Status::cancelled);
  EXPECT_FALSE(std::filesystem::exists(dir / "none"));
}

TEST_F(ShardsTest, AReshardThatCannotSyncLeavesNothingOrAll) {
  const std::string to = dir / "out";
  for (size_t n = 0;; ++n) {
    FaultEnv env(os::Env::posix());
    size_t syncs = 0;
    env.before = [&](Call call) { return call == Call::fsync && syncs++ == n ? -EIO : 0; };
    const auto done = store::reshard(env, shard(1), to, 1000, {});
    if (done) {
      EXPECT_EQ(n, 10u) << "two shards, their list and names, the folder, the index; the list's end need not be synced";
      return;
    }
    if (!std::filesystem::exists(to)) continue;
    EXPECT_TRUE(fails_with(Status::needs_recovery, done)) << n;
    EXPECT_EQ(verified(to), Status::ok) << n;
    std::filesystem::remove_all(to);
  }
}

}  // namespace
}  // namespace st::testing
