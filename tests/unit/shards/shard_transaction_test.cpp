// Transactions on a sharded checkpoint: what they refuse, plan and wait for. Also
// what becomes of them when others change the index or leave something to recover,
// and when the handle cannot show what was committed.
#include <gmock/gmock.h>

#include <functional>
#include <future>
#include <new>
#include <set>
#include <thread>

#include "base/interrupt.h"
#include "commit_of_nothing.h"
#include "engine/reshape.h"
#include "engine/verify.h"
#include "fault_env.h"
#include "file/replace_file.h"
#include "file/transaction.h"
#include "located.h"
#include "lock_of_file.h"
#include "newfile/names.h"
#include "os/range_lock.h"
#include "os/waited.h"
#include "proportion.h"
#include "read_only_env.h"
#include "shards/shard_transaction.h"
#include "shards/shards.h"
#include "shards_scene.h"
#include "told_progress.h"

namespace st::store {
namespace {

using namespace testing;
using testing::Call;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

class ShardTransactionTest : public testing::ShardsScene {
 protected:
  ShardTransactionTest() {
    put_shards(dir.path());
    put_index(R"("a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors")");
  }
  std::string shard(int i) const { return dir / ("m-" + std::to_string(i) + ".safetensors"); }
  void put_index(const std::string &map) const {
    put_bytes(index, R"({"metadata":{"total_size":9100,"by":"me"},"weight_map":{)" + map + "}}");
  }
  OpenOptions writable() {
    OpenOptions options;
    options.writable = true;
    options.lock_timeout_ms = 0;
    options.log = [this](LogLevel, const std::string &m) {
      logged += m + "\n";
      const testing::LockOfFile free(index);
    };
    return options;
  }
  std::unique_ptr<Shards> open(os::Env &env = os::Env::posix()) {
    auto opened = Shards::open(env, index, writable());
    EXPECT_TRUE(is_ok(opened));
    return opened ? std::move(*opened) : nullptr;
  }
  static std::unique_ptr<AnyTransaction> begin(Shards &shards, TransactionOptions options = {}) {
    options.lock_timeout_ms = 0;
    auto begun = shards.begin(options);
    EXPECT_TRUE(is_ok(begun));
    return begun ? std::move(*begun) : nullptr;
  }
  // By another thread, as it were: into the shard of c.
  Result<void> put_beside(Shards &shards, const std::string &name) const {
    const auto others = begin(shards);
    ST_TRY(others->put(name, u8(ten)));
    return others->commit();
  }
  void commit_unseen(FaultEnv &env, AnyTransaction &t, size_t after);
  std::string all() const { return bytes_of(shard(1)) + "|" + bytes_of(shard(2)) + "|" + bytes_of(index); }
  void expect_sound() const { EXPECT_TRUE(is_ok(verify(os::Env::posix(), index, {}, {}))); }
  // A commit of updates in both shards that dies when it is decided and half done.
  void die_half_way(Shards &shards, FaultEnv &env) {
    auto transaction = begin(shards);
    ASSERT_TRUE(is_ok(transaction->update("a", u8(new_a))));
    ASSERT_TRUE(is_ok(transaction->update("c", u8(new_c))));
    // From when the first shard has its new bytes.
    env.before = [&](Call call) {
      if (call != Call::pwrite) return 0;
      return bytes_of(shard(1)).find(new_a) != std::string::npos ? -EIO : 0;
    };
    EXPECT_TRUE(fails_with(Status::needs_recovery, transaction->commit()));
    env.before = nullptr;
  }
  // In which another writer begins, at the n-th such call, and dies half way.
  void commit_while_another_dies(AnyTransaction &mine, FaultEnv &mine_env, Call when, size_t n,
                                 std::unique_ptr<Shards> other, FaultEnv &other_env) {
    size_t calls = 0;
    mine_env.before = [&](Call call) {
      if (call == when && calls++ == n) die_half_way(*other, other_env), other.reset();
      return 0;
    };
    ASSERT_TRUE(is_ok(mine.commit()));
    mine_env.before = nullptr;
    ASSERT_GT(calls, n);
  }
  void rename_c(os::Env &env) {
    auto c = open(env);
    auto t = begin(*c);
    EXPECT_TRUE(is_ok(t->rename("c", "d")));
    EXPECT_TRUE(is_ok(t->commit()));
  }

  const testing::TempDir dir;
  const std::string index = dir / "m.safetensors.index.json";
  const std::string new_a = pattern(4000, 11), new_c = pattern(5000, 13), ten = pattern(10, 17);
  std::string logged;
};

TEST_F(ShardTransactionTest, PartsOfTensorsInSeveralShardsChangeTogether) {
  auto c = open();
  auto t = begin(*c);
  const Range first[] = {{0, 10, 1}};
  const int64_t rows[] = {4999, 0, 70, 0, 100, 130, 160, 190, 220, 250};
  const std::string new_b = pattern(100, 5);
  ASSERT_TRUE(is_ok(t->update("b", u8(new_b))));
  ASSERT_TRUE(is_ok(t->update_slice("a", {first}, u8(ten))));
  ASSERT_TRUE(is_ok(t->update_slice("c", {{}, rows}, u8(ten))));
  EXPECT_TRUE(fails_with(Status::not_found, t->update_slice("z", {first}, u8(ten))));
  const auto refused = t->update_slice("c", {first}, u8(new_c));
  EXPECT_TRUE(fails_with(Status::shape_mismatch, refused));
  EXPECT_EQ(refused.error().shard, 1u);
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(same_bytes(bytes(*c, "a"), pattern(4000, 1).replace(0, 10, ten)));
  std::string wanted = pattern(5000, 3);
  for (size_t i = 0; i < std::size(rows); ++i) wanted[static_cast<size_t>(rows[i])] = ten[i];
  EXPECT_TRUE(same_bytes(bytes(*c, "c"), wanted));
  expect_sound();
}

// total_size counts bytes, total_parameters elements; every kind of change moves them.
TEST_F(ShardTransactionTest, TheTotalsFollowEveryChange) {
  const uint64_t shape[] = {3, 5};
  const std::string f32(60, 'f');
  const NewBytes value{static_cast<uint32_t>(Dtype::F32), shape, f32.data(), f32.size()};
  using Step = std::function<Result<void>(AnyTransaction &)>;
  struct {
    const char *what;
    Step step;
    const char *size, *parameters;
  } const cases[] = {
      {"put", [&](AnyTransaction &t) { return t.put("new", value); }, "9160", "9115"},
      {"a tensor of another form", [&](AnyTransaction &t) { return t.put("c", value); }, "4160", "4115"},
      {"delete", [](AnyTransaction &t) { return t.remove("a"); }, "5100", "5100"},
      {"delete of all that a shard holds", [](AnyTransaction &t) { return t.remove("c"); }, "4100", "4100"},
      {"rename", [](AnyTransaction &t) { return t.rename("a", "z"); }, "9100", "9100"},
      {"update", [&](AnyTransaction &t) { return t.update("c", u8(new_c)); }, "9100", "9100"},
      {"from one shard to another",
       [&](AnyTransaction &t) {
         if (auto ok = t.remove("a"); !ok) return ok;
         if (auto ok = t.remove("c"); !ok) return ok;
         return t.put("a", value);
       },
       "160", "115"},
  };
  for (const bool new_names : {false, true})
    for (const auto &[what, step, size, parameters] : cases) {
      SCOPED_TRACE(text(what, new_names ? ", under new names" : ""));
      const testing::TempDir folder;
      const std::string path = folder / "m.safetensors.index.json";
      fs::copy(shard(1), folder / "m-1.safetensors");
      fs::copy(shard(2), folder / "m-2.safetensors");
      put_bytes(path, R"({"metadata":{"total_parameters":9100,"total_size":9100},"weight_map":)"
                      R"({"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
      auto c = Shards::open(os::Env::posix(), path, writable());
      ASSERT_TRUE(is_ok(c));
      TransactionOptions options;
      options.new_names = new_names;
      auto t = begin(**c, options);
      ASSERT_TRUE(is_ok(step(*t)));
      ASSERT_TRUE(is_ok(t->commit()));
      EXPECT_EQ((*c)->catalogue().metadata_find(total_size_key), size);
      EXPECT_EQ((*c)->catalogue().metadata_find(total_parameters_key), parameters);
    }
}

TEST_F(ShardTransactionTest, AnIndexWithoutTotalsGetsNone) {
  put_bytes(index, R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->remove("a")));
  EXPECT_TRUE(fails_with(Status::invalid_argument, t->set_metadata("total_parameters", "1")));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(bytes_of(index).find("total"), std::string::npos);
}

TEST_F(ShardTransactionTest, TheMetadataOfAModelWithoutTensorsAreThoseOfItsIndex) {
  put_index("");
  auto c = open();
  auto t = begin(*c);
  const std::pair<std::string_view, std::string_view> good[] = {{"by", "you"}, {"new", "1"}},
                                                      total[] = {{"total_size", "7"}};
  ASSERT_TRUE(is_ok(t->replace_metadata(good)));
  EXPECT_TRUE(fails_with(Status::invalid_argument, begin(*c)->replace_metadata(total)));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(c->catalogue().metadata_find("by"), "you");
  EXPECT_EQ(c->catalogue().metadata_find("new"), "1");
}

TEST_F(ShardTransactionTest, RefusesWhatItCannotDoAndGoesOn) {
  auto c = open();
  auto t = begin(*c);
  EXPECT_TRUE(fails_with(Status::not_found, t->update("z", u8(ten))));
  EXPECT_TRUE(fails_with(Status::not_found, t->remove("z")));
  EXPECT_TRUE(fails_with(Status::not_found, t->update_ranges("z", {}, {})));
  EXPECT_TRUE(fails_with(Status::not_found, t->publishes("z")));
  EXPECT_TRUE(fails_with(Status::not_found, t->may_remake("z")));
  EXPECT_TRUE(fails_with(Status::not_found, t->remake("z", {}, 0)));
  EXPECT_TRUE(fails_with(Status::not_found, t->rename("z", "y")));
  EXPECT_TRUE(fails_with(Status::shape_mismatch, t->update("a", u8(ten))));
  EXPECT_TRUE(fails_with(Status::invalid_argument, t->put("__metadata__", u8(ten))));
  EXPECT_TRUE(fails_with(Status::invalid_argument, t->rename("a", "__metadata__")));
  EXPECT_TRUE(fails_with(Status::invalid_argument, t->rename("z", "__metadata__")));  // as in a file
  EXPECT_TRUE(fails_with(Status::not_found, t->set_metadata("z", std::nullopt)));
  ASSERT_TRUE(is_ok(t->set_metadata("by", std::nullopt)));
  EXPECT_TRUE(fails_with(Status::not_found, t->set_metadata("by", std::nullopt)));
  ASSERT_TRUE(is_ok(t->set_metadata("k", "v")));
  ASSERT_TRUE(is_ok(t->set_metadata("k", std::nullopt)));
  ASSERT_TRUE(is_ok(t->set_metadata("by", "you")));
  ASSERT_TRUE(is_ok(t->rename("a", "a")));
  ASSERT_TRUE(is_ok(t->remove("b")));
  EXPECT_TRUE(fails_with(Status::not_found, t->remove("b")));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(c->catalogue().size(), 2u);
  EXPECT_EQ(c->catalogue().metadata_find("by"), "you");
  expect_sound();
  for (const auto &after : {t->commit(), t->put("x", u8(ten)), t->update("a", u8(new_a)), t->remove("a")})
    EXPECT_TRUE(fails_with(Status::txn_failed, after));
}

TEST_F(ShardTransactionTest, ACommitThatRunsOutOfMemoryOnceAllIsLockedIsItsLast) {
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
  ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
  t->before_change([](auto) -> Result<void> { throw std::bad_alloc(); });
  EXPECT_THROW(static_cast<void>(t->commit()), std::bad_alloc);
  EXPECT_TRUE(fails_with(Status::txn_failed, t->commit()));
}

TEST_F(ShardTransactionTest, ACommitOfNothingAsksAllTheSame) {
  auto c = open();
  testing::expect_that_a_commit_of_nothing_asks([&] { return begin(*c); });
}

TEST_F(ShardTransactionTest, NeedsAHandleForWriting) {
  auto opened = Shards::open(os::Env::posix(), index, {});
  ASSERT_TRUE(is_ok(opened));
  EXPECT_TRUE(fails_with(Status::read_only, (*opened)->begin({})));
}

TEST_F(ShardTransactionTest, AnIndexWithoutShardsTakesNoTensor) {
  put_index("");
  auto c = open();
  auto t = begin(*c);
  EXPECT_TRUE(fails_with(Status::unsupported, t->put("x", u8(ten))));
}

TEST_F(ShardTransactionTest, OfNothingChangesNothing) {
  const std::string before = all();
  auto c = open();
  ASSERT_TRUE(is_ok(begin(*c)->commit()));
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->set_metadata("by", "me")));  // as it is
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(c->catalogue().metadata_find("by"), "me");
  t.reset();
  c.reset();
  EXPECT_TRUE(same_bytes(all(), before));
}

TEST_F(ShardTransactionTest, PlansTheSumOfItsShards) {
  auto c = open();
  auto nothing = begin(*c);
  EXPECT_EQ(nothing->plan()->kind, CommitPlan::nothing);
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
  const auto one = t->plan();
  ASSERT_TRUE(is_ok(one));
  EXPECT_EQ(one->kind, CommitPlan::patch);
  ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
  const auto two = t->plan();
  ASSERT_TRUE(is_ok(two));
  EXPECT_EQ(two->kind, CommitPlan::patch);
  EXPECT_THAT(two->how, HasSubstr("2 shards"));
  EXPECT_GT(two->cost.written, one->cost.written + 2 * 5000u);
  EXPECT_EQ(two->file_size, fs::file_size(shard(1)) + fs::file_size(shard(2)));
  ASSERT_TRUE(is_ok(t->remove("b")));
  const auto all_of_it = t->plan();
  ASSERT_TRUE(is_ok(all_of_it));
  EXPECT_EQ(all_of_it->kind, CommitPlan::publish);
  EXPECT_THAT(all_of_it->how, HasSubstr("and the index"));
  auto metadata = begin(*c);
  ASSERT_TRUE(is_ok(metadata->set_metadata("k", "v")));
  EXPECT_EQ(metadata->plan()->kind, CommitPlan::publish);
}

TEST_F(ShardTransactionTest, WhatTheIndexSaysAlreadyIsNoChange) {
  auto c = open();
  const auto set = [&](const std::string &by, bool new_names, const std::function<void(const CommitPlan &)> &expect) {
    TransactionOptions options;
    options.new_names = new_names;
    auto t = begin(*c, options);
    ASSERT_TRUE(is_ok(t->set_metadata("by", by)));
    const auto plan = t->plan();
    ASSERT_TRUE(is_ok(plan));
    expect(*plan);
    ASSERT_TRUE(is_ok(t->commit()));
    EXPECT_TRUE(fails_with(Status::txn_failed, t->commit()));
    EXPECT_EQ(c->catalogue().metadata_find("by"), by);
  };
  const auto is_publish = [](const CommitPlan &plan) { EXPECT_EQ(plan.kind, CommitPlan::publish); };
  const auto is_nothing = [](const CommitPlan &plan) {
    EXPECT_EQ(plan.kind, CommitPlan::nothing) << plan.how;
    EXPECT_EQ(plan.cost.written, 0u);
    EXPECT_EQ(plan.space_needed, 0u);
    EXPECT_LT(plan.space_free, UINT64_MAX);
  };
  set("you", false, is_publish);
  const auto stands = testing::located(os::Env::posix(), index);
  struct stat before, after;
  ASSERT_EQ(stands.stat(&before), 0);
  for (const bool new_names : {false, true}) set("you", new_names, is_nothing);
  ASSERT_EQ(stands.stat(&after), 0);
  EXPECT_TRUE(os::same_inode(before, after));
  EXPECT_FALSE(fs::exists(index + ".st-journal"));
  expect_sound();
}

TEST_F(ShardTransactionTest, WhatIsGoneOrCannotBeReadIsNamed) {
  auto shards = open();
  auto t = begin(*shards);
  ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
  fs::rename(shard(2), dir / "elsewhere");
  auto gone = t->plan();
  ASSERT_FALSE(gone);
  EXPECT_THAT(gone.error().message, HasSubstr("m-2.safetensors"));
  EXPECT_EQ(gone.error().shard, 1u);
  fs::rename(dir / "elsewhere", shard(2));
  const std::string before = all();
  put_bytes(index, "{");  // so nobody can say whether it names that shard
  auto unknown = t->commit();
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("m.safetensors.index.json"));
  put_index(R"("a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors")");
  EXPECT_EQ(all(), before);
  EXPECT_TRUE(fails_with(Status::txn_failed, t->plan()));
}

TEST_F(ShardTransactionTest, CompactMakesEveryShardAnew) {
  const std::string old_index = bytes_of(index);
  put_bytes(shard(1), file_of(std::vector{u8_tensor("b", 100, 2), u8_tensor("a", 4000, 1)}, {}, 3000));
  const auto size = fs::file_size(shard(1));
  auto c = open();
  TransactionOptions options;
  options.layout = write::Layout::canonical;
  ASSERT_TRUE(is_ok(c->compact(options)));
  EXPECT_LT(fs::file_size(shard(1)), size);
  EXPECT_EQ(bytes_of(index), old_index);
  EXPECT_EQ(bytes(*c, "a"), pattern(4000, 1));
  EXPECT_EQ(bytes(*c, "c"), pattern(5000, 3));
  expect_sound();
}

TEST_F(ShardTransactionTest, WaitsNoLongerThanItMayAndCanBeTriedAgain) {
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
  auto file = os::File::open(os::Env::posix(), AT_FDCWD, shard(2), O_RDWR, 0, shard(2));
  auto lock = os::RangeLock::acquire(*file, {{0, 0, true}}, {});
  ASSERT_TRUE(is_ok(lock));
  const auto busy = t->commit();
  EXPECT_TRUE(fails_with(Status::busy, busy));
  EXPECT_EQ(busy.error().shard, 1u);
  lock->release();
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(bytes(*c, "c"), new_c);
  TransactionOptions for_ever;
  for_ever.lock_timeout_ms = -1;
  auto begun = c->begin(for_ever);
  ASSERT_TRUE(is_ok(begun));
  ASSERT_TRUE(is_ok((*begun)->remove("c")));
  ASSERT_TRUE(is_ok((*begun)->commit()));
}

TEST_F(ShardTransactionTest, ShardsOfAnotherFolderAreNotChangedTogether) {
  const testing::TempDir elsewhere;
  fs::rename(shard(2), elsewhere / "blob");
  fs::create_symlink(elsewhere / "blob", shard(2));
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
  ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
  const std::string before = all();
  EXPECT_TRUE(fails_with(Status::unsupported, t->commit()));
  t.reset();
  EXPECT_TRUE(same_bytes(all(), before));
  auto alone = begin(*c);
  ASSERT_TRUE(is_ok(alone->update("c", u8(new_c))));
  ASSERT_TRUE(is_ok(alone->commit()));
  EXPECT_EQ(bytes(*c, "c"), new_c);
}

// Some files lie on mounts of their own, as /proc tells it.
class Mounts : public FaultEnv {
 public:
  explicit Mounts(const std::string &mounted) : FaultEnv(os::Env::posix()) {
    EXPECT_EQ(FaultEnv::fstatat(AT_FDCWD, mounted.c_str(), &mounted_, 0), 0);
    put_bytes(dir_ / "folder's", "pos:\t0\nmnt_id:\t41\n");
    put_bytes(dir_ / "own", "pos:\t0\nmnt_id:\t42\n");
  }
  int openat(int dir, const char *path, int flags, mode_t mode) override {
    constexpr std::string_view of_descriptor = "/proc/self/fdinfo/";
    made_a_file |= std::string_view(path).find(write::undecided_infix) != std::string_view::npos;
    if (!std::string_view(path).starts_with(of_descriptor)) return FaultEnv::openat(dir, path, flags, mode);
    if (scarce > 0) return --scarce, -EMFILE;
    struct stat s;
    EXPECT_EQ(FaultEnv::fstat(std::stoi(path + of_descriptor.size()), &s), 0);
    const std::string told = dir_ / (s.st_ino == mounted_.st_ino ? "own" : "folder's");
    return FaultEnv::openat(AT_FDCWD, told.c_str(), O_RDONLY, 0);
  }
  size_t scarce = 0;  // so often /proc tells nothing, as there are no descriptors
  bool made_a_file = false;

 private:
  const TempDir dir_;
  struct stat mounted_;
};

TEST_F(ShardTransactionTest, WhatIsMountedByItselfIsRefusedBeforeAnythingHasChanged) {
  const std::string fresh_a = pattern(4000, 81), fresh_c = pattern(5000, 82), longer = pattern(60, 83);
  for (const std::string &mounted : {shard(1), shard(2), index}) {
    Mounts env(mounted);
    const std::string before = all();
    const auto names = names_in(dir.path());
    auto c = open(env);
    auto t = begin(*c);
    ASSERT_TRUE(is_ok(t->remove("b")));
    ASSERT_TRUE(is_ok(t->put("c", u8(longer))));
    const auto refused = t->commit();
    ASSERT_TRUE(fails_with(Status::unsupported, refused));
    EXPECT_THAT(refused.error().message, HasSubstr(in_quotes(mounted) + " is mounted there by itself"));
    EXPECT_FALSE(env.made_a_file) << mounted;
    EXPECT_EQ(all(), before);
    // What patches takes nobody's place.
    auto again = begin(*c);
    ASSERT_TRUE(is_ok(again->update("a", u8(fresh_a))));
    ASSERT_TRUE(is_ok(again->update("c", u8(fresh_c))));
    EXPECT_TRUE(is_ok(again->commit()));
    EXPECT_EQ(bytes(*c, "a") + bytes(*c, "c"), fresh_a + fresh_c);
    t.reset();
    again.reset();
    c.reset();
    EXPECT_EQ(names_in(dir.path()), names);
    expect_sound();
  }
}

// Else the rename would fail, when all is decided.
TEST_F(ShardTransactionTest, WhatIsMountedByItselfIsAskedWithTheRoomThatTheHandleHas) {
  for (const bool has_room : {true, false}) {
    Mounts env(shard(2));
    const std::string before = all();
    auto c = open(env);
    EXPECT_FALSE(bytes(*c, "a").empty());
    auto t = begin(*c);
    ASSERT_TRUE(is_ok(t->remove("b")));
    const std::string new_c = pattern(60, 83);
    ASSERT_TRUE(is_ok(t->put("c", u8(new_c))));
    env.scarce = has_room ? 1 : SIZE_MAX;
    const auto refused = t->commit();
    ASSERT_TRUE(fails_with(has_room ? Status::unsupported : Status::io, refused));
    EXPECT_EQ(refused.error().os_errno, has_room ? 0 : EMFILE);
    EXPECT_EQ(all(), before);
  }
}

// Each of them is committed by itself, and a second compact would begin with the first again.
TEST_F(ShardTransactionTest, TheCompactOfEachShardHasItsOwnTimeToWait) {
  ClockEnv env(os::Env::posix());
  std::vector<os::File> files;
  files.reserve(2);
  std::vector<os::RangeLock> held;
  for (const int i : {1, 2}) {
    auto file = os::File::open(os::Env::posix(), AT_FDCWD, shard(i), O_RDWR, 0, shard(i));
    ASSERT_TRUE(is_ok(file));
    files.push_back(std::move(*file));
    auto lock = os::RangeLock::acquire(files.back(), {os::whole_file(true)}, {});
    ASSERT_TRUE(is_ok(lock));
    held.push_back(std::move(*lock));
  }
  uint64_t until = 700'000;
  env.on_sleep = [&] {
    if (env.now_us < until || held.empty()) return;
    held.erase(held.begin());
    until = env.now_us + 700'000;
  };
  auto c = open(env);
  TransactionOptions options;
  options.lock_timeout_ms = 1000;
  const os::WaitedByCall call(os::WaitedByCall::anew);
  EXPECT_TRUE(is_ok(c->compact(options)));
  EXPECT_TRUE(held.empty());
  EXPECT_GE(env.now_us, 1'400'000u);
}

TEST_F(ShardTransactionTest, AnIndexThatFitsNoMoreIsLeftAlone) {
  for (const std::string changed :
       {R"("b":"m-1.safetensors","c":"m-2.safetensors")",
        R"("a":"m-2.safetensors","b":"m-1.safetensors","c":"m-2.safetensors")",
        R"("a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors","x":"m-2.safetensors")"}) {
    put_index(R"("a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors")");
    auto c = open();
    auto t = begin(*c);
    ASSERT_TRUE(is_ok(t->remove("b")));
    ASSERT_TRUE(is_ok(t->put("x", u8(ten))));  // in the same shard
    put_index(changed);
    const std::string before = all();
    EXPECT_TRUE(fails_with(Status::file_changed, t->commit())) << changed;
    t.reset();
    EXPECT_TRUE(same_bytes(all(), before));
  }
}

TEST_F(ShardTransactionTest, OfTwoThatRemoveAKeyTheSecondIsTold) {
  auto first = open(), second = open();
  auto setting = begin(*first);
  ASSERT_TRUE(is_ok(setting->set_metadata("origin", "here")));
  ASSERT_TRUE(is_ok(setting->commit()));
  ASSERT_TRUE(is_ok(second->refresh()));
  auto removing = begin(*first), late = begin(*second);
  ASSERT_TRUE(is_ok(removing->set_metadata("origin", std::nullopt)));
  ASSERT_TRUE(is_ok(late->set_metadata("origin", std::nullopt)));
  ASSERT_TRUE(is_ok(removing->commit()));
  EXPECT_TRUE(fails_with(Status::file_changed, late->commit()));
}

TEST_F(ShardTransactionTest, FinishesFirstWhatAnotherWriterLeft) {
  auto mine = open();
  auto t = begin(*mine);
  ASSERT_TRUE(is_ok(t->put("x", u8(ten))));
  FaultEnv env(os::Env::posix());
  auto other = open(env);
  ASSERT_NO_FATAL_FAILURE(die_half_way(*other, env));
  EXPECT_TRUE(fails_with(Status::poisoned, other->begin({})));
  other.reset();
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(bytes(*mine, "x"), ten);
  ASSERT_TRUE(is_ok(mine->refresh()));
  EXPECT_EQ(bytes(*mine, "a"), new_a);
  EXPECT_EQ(bytes(*mine, "c"), new_c);
  expect_sound();
}

// The shard with its new bytes is removed, and the same is saved anew.
TEST_F(ShardTransactionTest, AShardThatIsSavedAnewIsLeftAloneByWhatAnotherWriterLeft) {
  const std::string half = bytes_of(shard(1)).replace(bytes_of(shard(1)).size() - 4100, 2000, new_a, 0, 2000);
  FaultEnv env(os::Env::posix());
  auto other = open(env);
  ASSERT_NO_FATAL_FAILURE(die_half_way(*other, env));
  other.reset();
  fs::remove(shard(1));
  const auto target = write::find_destination(os::Env::posix(), shard(1)).value();
  auto made = write::TemporaryFile::create(target.at, 0666).value();
  ASSERT_TRUE(is_ok(made->file().write(half.data(), half.size(), 0)));
  ASSERT_TRUE(is_ok(write::replace_file(target.at, made, write::mode_of_new, 0, {}, {})));
  made.reset();
  EXPECT_TRUE(testing::names_in(index + ".st-journal").at(0).ends_with(".bad")) << "its shard was gone";
  EXPECT_TRUE(open());
  EXPECT_TRUE(same_bytes(bytes_of(shard(1)), half));
}

// All of a checkpoint is removed but for its journals, and one of the same names is made.
TEST_F(ShardTransactionTest, AReshardMeetsNoJournalOfTheCheckpointBefore) {
  const std::string one = dir / "one.safetensors", folder = dir / "out",
                    made = folder + "/model.safetensors.index.json";
  put_bytes(one, file_of(std::vector{u8_tensor("a", 4000, 1), u8_tensor("c", 5000, 3)}));
  const auto reshard = [&] { return store::reshard(os::Env::posix(), one, folder, 5000, {}); };
  ASSERT_TRUE(is_ok(reshard()));
  const auto files = [&] {
    return std::vector{made, folder + "/model-00001-of-00002.safetensors",
                       folder + "/model-00002-of-00002.safetensors"};
  };
  {
    FaultEnv env(os::Env::posix());
    auto shards = Shards::open(env, made, writable()).value();
    auto t = begin(*shards);
    ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
    ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
    env.before = [&](Call call) {
      return call == Call::pwrite && bytes_of(files()[1]).find(new_a) != std::string::npos ? -EIO : 0;
    };
    EXPECT_TRUE(fails_with(Status::needs_recovery, t->commit()));
  }
  for (const std::string &name : files()) {
    EXPECT_TRUE(fs::exists(name + ".st-journal"));
    fs::remove(name);
  }
  ASSERT_TRUE(is_ok(reshard()));
  for (const std::string &name : files())
    for (const std::string &journal : testing::names_in(name + ".st-journal"))
      EXPECT_TRUE(journal.ends_with(".bad")) << name << ": " << journal;
  auto shards = Shards::open(os::Env::posix(), made, writable());
  ASSERT_TRUE(is_ok(shards));
  EXPECT_TRUE(same_bytes(bytes(**shards, "a"), pattern(4000, 1)));
  EXPECT_TRUE(same_bytes(bytes(**shards, "c"), pattern(5000, 3)));
}

// The kernel takes a dying writer's locks one after the other: those of his journals may be the last.
struct Dying {
  explicit Dying(const std::string &folder) {
    const std::string path = folder + "/" + testing::names_in(folder).at(0);
    file = os::File::open(os::Env::posix(), AT_FDCWD, path, O_RDWR, 0, path).value();
    lock = os::RangeLock::acquire(file, {{0, 0, true}}, {}).value();
  }
  os::File file;
  os::RangeLock lock;  // of file: dies first
};

TEST_F(ShardTransactionTest, FinishesFirstWhatADyingWriterLeft) {
  auto mine = open();
  FaultEnv env(os::Env::posix());
  auto other = open(env);
  ASSERT_NO_FATAL_FAILURE(die_half_way(*other, env));
  other.reset();
  const std::string folder = index + ".st-journal";
  const Dying dying(folder);
  auto t = begin(*mine);
  ASSERT_TRUE(is_ok(t->set_metadata("by", "you")));
  ASSERT_TRUE(is_ok(t->commit()));
  ASSERT_TRUE(is_ok(mine->refresh()));
  EXPECT_EQ(bytes(*mine, "a"), new_a);
  EXPECT_EQ(bytes(*mine, "c"), new_c);
  EXPECT_FALSE(fs::exists(folder));
}

// Both have the index, shared, and one dies when the other has come to the shards: what he left needs the index alone.
TEST_F(ShardTransactionTest, FinishesFirstWhatAnotherWriterLeftMeanwhile) {
  FaultEnv mine_env(os::Env::posix()), other_env(os::Env::posix());
  auto mine = open(mine_env), other = open(other_env);
  const std::string my_b = pattern(100, 19), my_c = pattern(5000, 23);
  auto t = begin(*mine);
  ASSERT_TRUE(is_ok(t->update("b", u8(my_b))));
  ASSERT_TRUE(is_ok(t->update("c", u8(my_c))));
  ASSERT_NO_FATAL_FAILURE(commit_while_another_dies(*t, mine_env, Call::lock, 1, std::move(other), other_env));
  EXPECT_EQ(bytes(*mine, "a"), new_a);
  EXPECT_EQ(bytes(*mine, "b"), my_b);
  EXPECT_EQ(bytes(*mine, "c"), my_c);
  expect_sound();
}

// The same when the other shards no tensor with it, and dies before the handle looks at what it has made.
TEST_F(ShardTransactionTest, HoldsNothingWhenItShowsWhatItMade) {
  put_bytes(shard(2), file_of(std::vector{u8_tensor("c", 5000, 3), u8_tensor("d", 40, 4)}));
  put_index(R"("a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors","d":"m-2.safetensors")");
  const std::string first_b = pattern(100, 19), my_b = pattern(100, 29), my_d = pattern(40, 31);
  FaultEnv mine_env(os::Env::posix()), other_env(os::Env::posix());
  auto mine = open(mine_env), other = open(other_env);
  EXPECT_EQ(bytes(*mine, "b"), pattern(100, 2));
  {
    auto alone = DataFile::open(os::Env::posix(), shard(1), writable());
    ASSERT_TRUE(is_ok(alone));
    TransactionOptions publish;
    publish.publish = true;
    auto t = Transaction::begin(**alone, publish);
    ASSERT_TRUE(is_ok(t));
    ASSERT_TRUE(is_ok((*t)->update("b", u8(first_b))));
    ASSERT_TRUE(is_ok((*t)->commit()));
  }
  auto t = begin(*mine);
  ASSERT_TRUE(is_ok(t->update("b", u8(my_b))));
  ASSERT_TRUE(is_ok(t->update("d", u8(my_d))));
  ASSERT_NO_FATAL_FAILURE(commit_while_another_dies(*t, mine_env, Call::fdatasync, 0, std::move(other), other_env));
  EXPECT_THAT(logged, ::testing::Not(HasSubstr("cannot show it")));
  EXPECT_EQ(bytes(*mine, "a"), new_a);
  EXPECT_EQ(bytes(*mine, "b"), my_b);
  EXPECT_EQ(bytes(*mine, "d"), my_d);
}

TEST_F(ShardTransactionTest, MakesItsFolderAgainIfTheLastToLeaveRemovedIt) {
  FaultEnv env(os::Env::posix());
  auto mine = open(env);
  auto t = begin(*mine);
  ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
  ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
  size_t removed = 0;
  env.before = [&](Call call) {
    std::error_code ignored;
    if (call == Call::openat && removed < 2)
      removed += fs::is_empty(index + ".st-journal", ignored) && !ignored && fs::remove(index + ".st-journal", ignored);
    return 0;
  };
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(removed, 2u);
  EXPECT_EQ(bytes(*mine, "c"), new_c);
}

// As on one file: threads that share a handle need not know of each other's commits.
TEST_F(ShardTransactionTest, ATransactionThatStagedNothingFollowsItsHandle) {
  using Change = std::function<Result<void>(AnyTransaction &)>;
  const Change changes[] = {
      [this](AnyTransaction &t) { return t.update("c", u8(new_c)); },
      [this](AnyTransaction &t) { return t.update_slice("c", {}, u8(new_c)); },
      [this](AnyTransaction &t) { return t.put("c", u8(new_c)); },
      [this](AnyTransaction &t) { return t.put("y", u8(ten)); },
      [](AnyTransaction &t) { return t.rename("c", "z"); },
      [](AnyTransaction &t) { return t.remove("z"); },
  };
  auto mine = open();
  int n = 0;
  for (const Change &change : changes) {
    SCOPED_TRACE(n);
    auto t = begin(*mine);
    ASSERT_TRUE(is_ok(put_beside(*mine, text("x", n++))));
    ASSERT_TRUE(is_ok(change(*t)));
    ASSERT_TRUE(is_ok(t->commit()));
    expect_sound();
  }
  EXPECT_TRUE(fails_with(Status::not_found, begin(*mine)->remove("c")));
  EXPECT_EQ(bytes(*mine, "y"), ten);
  EXPECT_EQ(bytes(*mine, "x5"), ten);
}

// The first change brings it to what the handle shows, also if that change alone could be made of what was shown
// before.
TEST_F(ShardTransactionTest, ATransactionFollowsItsHandleUpToItsFirstChange) {
  using Change = std::function<Result<void>(AnyTransaction &)>;
  const std::pair<std::string_view, std::string_view> by_them[] = {{"by", "them"}};
  const Change changes[] = {
      [this](AnyTransaction &t) { return t.update("a", u8(new_a)); },
      [](AnyTransaction &t) { return t.set_metadata("by", "you"); },
      [&](AnyTransaction &t) { return t.replace_metadata(by_them); },
  };
  auto mine = open();
  int n = 0;
  for (const Change &change : changes) {
    SCOPED_TRACE(n);
    auto t = begin(*mine);
    ASSERT_TRUE(is_ok(put_beside(*mine, text("x", n++))));
    ASSERT_TRUE(is_ok(change(*t)));
    ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
    ASSERT_TRUE(is_ok(t->commit()));
    expect_sound();
  }
}

TEST_F(ShardTransactionTest, ARefusedChangeKeepsNoTransactionFromItsHandle) {
  auto mine = open();
  auto t = begin(*mine);
  EXPECT_TRUE(fails_with(Status::shape_mismatch, t->update("c", u8(ten))));
  EXPECT_TRUE(fails_with(Status::shape_mismatch, t->update("a", u8(ten))));
  auto others = begin(*mine);
  ASSERT_TRUE(is_ok(others->put("x", u8(ten))));
  ASSERT_TRUE(is_ok(others->remove("b")));
  ASSERT_TRUE(is_ok(others->commit()));
  EXPECT_TRUE(fails_with(Status::not_found, t->remove("b")));
  ASSERT_TRUE(is_ok(t->rename("x", "y")));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(bytes(*mine, "y"), ten);
  expect_sound();
}

// Shards that have no new names yet are not refused as a shard is that was replaced.
TEST_F(ShardTransactionTest, ATransactionThatStagedNothingFollowsItsHandleToNewNames) {
  FaultEnv env(os::Env::posix());
  auto mine = open(env);
  TransactionOptions new_names;
  new_names.new_names = true;
  auto t = begin(*mine);
  auto others = begin(*mine, new_names);
  ASSERT_TRUE(is_ok(others->put("x", u8(ten))));
  std::vector<std::unique_ptr<AnyTransaction>> amid;
  const std::string before = bytes_of(index);
  bool is_amid = false;
  env.before = [&](Call call) {
    if (is_amid || call != Call::fsync || bytes_of(index) == before) return 0;
    is_amid = true;
    amid.push_back(begin(*mine));
    EXPECT_TRUE(is_ok(amid.back()->update("c", u8(new_c))));
    is_amid = false;
    return 0;
  };
  ASSERT_TRUE(is_ok(others->commit()));
  env.before = nullptr;
  EXPECT_GT(amid.size(), 0u);
  ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
  ASSERT_TRUE(is_ok(t->commit()));
  for (const auto &each : amid) EXPECT_TRUE(is_ok(each->commit()));
  EXPECT_EQ(bytes(*mine, "c"), new_c);
  expect_sound();
}

// Also while the other commit has shown its shards and not yet the index; and though a refresh came in before that.
TEST_F(ShardTransactionTest, ATransactionThatBeginsAmidACommitFollowsItsHandle) {
  FaultEnv env(os::Env::posix());
  auto mine = open(env);
  for (const bool refreshes : {false, true}) {
    SCOPED_TRACE(refreshes);
    auto t = begin(*mine);
    ASSERT_TRUE(is_ok(t->put(text("x", refreshes), u8(ten))));
    const std::string before = bytes_of(index);
    size_t calls = 0;
    bool is_amid = false, is_refreshed = !refreshes;
    env.before = [&](Call call) {
      if (is_amid || bytes_of(index) == before) return 0;
      is_amid = true;
      if (!is_refreshed && (call == Call::fsync || call == Call::fdatasync)) {
        is_refreshed = true;
        EXPECT_TRUE(is_ok(mine->refresh()));
      }
      if (call == Call::openat) {
        EXPECT_TRUE(is_ok(begin(*mine)->update("c", u8(new_c)))) << "call " << calls;
        ++calls;
      }
      is_amid = false;
      return 0;
    };
    EXPECT_TRUE(is_ok(t->commit()));
    env.before = nullptr;
    EXPECT_GT(calls, 0u);
    EXPECT_TRUE(is_refreshed);
    expect_sound();
  }
}

// A transaction that fails may have followed its shards to new files, which the handle does not show.
TEST_F(ShardTransactionTest, AHandleThatFollowedInVainIsToldToRefresh) {
  FaultEnv env(os::Env::posix());
  auto mine = open(env), other = open();
  auto t = begin(*mine);
  ASSERT_TRUE(is_ok(t->put("x", u8(ten))));
  auto renaming = begin(*other);
  ASSERT_TRUE(is_ok(renaming->rename("c", "d")));
  ASSERT_TRUE(is_ok(renaming->commit()));
  env.before = [](Call call) { return call == Call::pwrite ? -EIO : 0; };
  EXPECT_TRUE(fails_with(Status::io, t->commit()));
  env.before = nullptr;
  t = begin(*mine);
  EXPECT_TRUE(fails_with(Status::file_changed, t->rename("c", "e")));
  EXPECT_TRUE(fails_with(Status::file_changed, t->update_slice("c", {}, u8(new_c))));
  ASSERT_TRUE(is_ok(mine->refresh()));
  t = begin(*mine);
  ASSERT_TRUE(is_ok(t->rename("d", "e")));
  ASSERT_TRUE(is_ok(t->commit()));
  expect_sound();
}

// A file that comes after the one that a commit made may have its inode.
TEST_F(ShardTransactionTest, AnIndexIsNotTakenForItsOwnByItsNumber) {
  auto mine = open();
  auto t = begin(*mine);
  ASSERT_TRUE(is_ok(t->set_metadata("by", "you")));
  ASSERT_TRUE(is_ok(t->commit()));
  put_index(R"("c":"m-2.safetensors")");  // over it
  EXPECT_TRUE(fails_with(Status::file_changed, mine->catalogue().find("a")));
}

// A handle's own commit changes a shard while a reader of an older state opens this shard for the first time.
TEST_F(ShardTransactionTest, AShardThatChangesWhileItIsFirstOpenedIsFoundAsItWas) {
  FaultEnv env(os::Env::posix());
  auto mine = open(env);
  const Catalogue before = mine->catalogue();
  bool begun = false;
  env.before = [&](Call call) {
    if (call != Call::openat || std::exchange(begun, true)) return 0;
    auto t = begin(*mine);
    EXPECT_TRUE(is_ok(t->rename("c", "d")));
    EXPECT_TRUE(is_ok(t->commit()));
    return 0;
  };
  auto place = before.find("c");
  ASSERT_TRUE(is_ok(place));
  EXPECT_TRUE(begun);
  EXPECT_EQ(place->tensor().nbytes, 5000u);
  EXPECT_EQ(bytes(*mine, "d"), pattern(5000, 3));
  EXPECT_TRUE(fails_with(Status::not_found, mine->catalogue().find("c")));
}

// A second commit on the same handle, at whatever moment of the first: both are shown afterwards.
TEST_F(ShardTransactionTest, OfTwoCommitsOnOneHandleBothAreShown) {
  size_t in_between = 0;
  bool begun = true;
  for (size_t n = 0; begun; ++n) {
    put_bytes(shard(2), file_of(std::vector{u8_tensor("c", 5000, 3)}));
    put_index(R"("a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors")");
    FaultEnv env(os::Env::posix());
    auto mine = open(env);
    auto t = begin(*mine);
    ASSERT_TRUE(is_ok(t->set_metadata("by", "you")));
    const auto rename = [&] {
      auto second = begin(*mine);
      EXPECT_TRUE(is_ok(second->rename("c", "d")));
      return second->commit();
    };
    size_t calls = 0;
    bool done = begun = false;
    env.before = [&](Call call) {
      if (begun || (call != Call::openat && call != Call::list) || calls++ != n) return 0;
      begun = true;
      done = rename().has_value();
      return 0;
    };
    ASSERT_TRUE(is_ok(t->commit())) << n;
    env.before = nullptr;
    in_between += done;
    EXPECT_TRUE(done || is_ok(rename())) << n;
    EXPECT_EQ(mine->catalogue().metadata_find("by"), "you") << n;
    EXPECT_TRUE(same_bytes(bytes(*mine, "d"), pattern(5000, 3))) << n;
    EXPECT_TRUE(fails_with(Status::not_found, mine->catalogue().find("c"))) << n;
  }
  EXPECT_GT(in_between, 2u);
}

// The index that a commit is about to replace is its own of before.
TEST_F(ShardTransactionTest, AnOlderStateOpensItsShardsWhileTheNextIndexTakesItsPlace) {
  FaultEnv env(os::Env::posix());
  auto mine = open(env);
  const Catalogue before = mine->catalogue();
  bool looked = false;
  for (const char *who : {"you", "them"}) {
    auto t = begin(*mine);
    ASSERT_TRUE(is_ok(t->set_metadata("by", who)));
    if (*who == 't')
      env.before = [&](Call call) {
        if (call != Call::renameat || std::exchange(looked, true)) return 0;
        EXPECT_TRUE(is_ok(before.find("c")));
        return 0;
      };
    ASSERT_TRUE(is_ok(t->commit()));
  }
  EXPECT_TRUE(looked);
}

// Once a file has its new name, the want of descriptors stops nothing.
TEST_F(ShardTransactionTest, NothingIsOpenedAfterTheFirstRename) {
  for (const bool new_names : {false, true}) {
    FaultEnv env(os::Env::posix());
    auto c = open(env);
    TransactionOptions options;
    options.new_names = new_names;
    auto t = begin(*c, options);
    ASSERT_TRUE(is_ok(t->put(new_names ? "y" : "x", u8(ten))));
    ASSERT_TRUE(is_ok(t->set_metadata("by", "you")));
    bool renamed = false;
    env.before = [&](Call call) {
      renamed |= call == Call::renameat;
      return call == Call::openat && renamed ? -EMFILE : 0;
    };
    EXPECT_TRUE(is_ok(t->commit())) << new_names;
    EXPECT_TRUE(renamed);
    env.before = {};
    t.reset(), c.reset();
    EXPECT_EQ(bytes(*open(), new_names ? "y" : "x"), ten);
  }
}

// Another writer, in its own thread. It stops before the n-th rename of its commit until it may go on, or must die.
class AtRename {
 public:
  AtRename(std::function<void(FaultEnv &)> commit, size_t n) {
    env_.before = [this, n](Call call) {
      if (call != Call::renameat || renames_++ != n) return 0;
      there_.set_value();
      return on_.get_future().get();
    };
    thread_ = std::thread([this, commit = std::move(commit)] { commit(env_); });
    there_.get_future().wait();
  }
  void end(int answer) { on_.set_value(answer), thread_.join(); }

 private:
  FaultEnv env_{os::Env::posix()};
  size_t renames_ = 0;
  std::promise<void> there_;
  std::promise<int> on_;
  std::thread thread_;
};

// The shard has its new names, and the index has not: what is wrong is not that they disagree.
TEST_F(ShardTransactionTest, AShardOfADeadWriterIsFinishedBeforeItIsBlamed) {
  FaultEnv env(os::Env::posix());
  auto reader = open(env);
  auto commit = [&](FaultEnv &his) {
    auto other = open(his);
    auto t = begin(*other);
    EXPECT_TRUE(is_ok(t->put("x", u8(ten))));
    EXPECT_TRUE(fails_with(Status::needs_recovery, t->commit()));
  };
  AtRename writer(commit, 1);
  EXPECT_TRUE(fails_with(Status::busy, reader->catalogue().find("c")));  // it waits no time
  bool dead = false;
  env.before = [&](Call call) {
    if (call == Call::lock && !std::exchange(dead, true)) writer.end(-EIO);
    return 0;
  };
  EXPECT_TRUE(fails_with(Status::file_changed, reader->catalogue().find("c")));
  env.before = nullptr;
  ASSERT_TRUE(is_ok(reader->refresh()));
  EXPECT_EQ(bytes(*reader, "x"), ten);
}

TEST_F(ShardTransactionTest, AShardOfADyingWriterIsFinishedBeforeItIsBlamed) {
  auto reader = open();
  FaultEnv env(os::Env::posix());
  auto other = open(env);
  auto t = begin(*other);
  ASSERT_TRUE(is_ok(t->put("x", u8(ten))));
  size_t renames = 0;
  env.before = [&](Call call) { return call == Call::renameat && renames++ == 1 ? -EIO : 0; };
  EXPECT_TRUE(fails_with(Status::needs_recovery, t->commit()));
  t.reset(), other.reset();
  const Dying super(index + ".st-journal"), part(shard(2) + ".st-journal");
  EXPECT_TRUE(fails_with(Status::file_changed, reader->catalogue().find("c")));
}

// Files of another user, as their stat says; and nobody may give files away.
class Others : public FaultEnv {
 public:
  explicit Others(const std::vector<std::string> &theirs) : FaultEnv(os::Env::posix()) {
    for (const std::string &path : theirs) {
      struct stat s;
      EXPECT_EQ(::stat(path.c_str(), &s), 0);
      theirs_.insert(s.st_ino);
    }
  }

  int fstat(int fd, struct stat *out) override {
    const int r = FaultEnv::fstat(fd, out);
    if (r == 0 && theirs_.contains(out->st_ino)) out->st_uid += 1;
    return r;
  }
  int fchown(int, uid_t, gid_t) override { return -EPERM; }

 private:
  std::set<ino_t> theirs_;
};

// Recovery gives them their places, and knows nothing of that.
TEST_F(ShardTransactionTest, OfFilesThatAreLeftToRecoveryItIsToldWhoseTheyWillBe) {
  for (const size_t fails_at : {0, 1, 2}) {
    logged.clear();
    Others env({shard(2), index});
    auto shards = open(env);
    auto t = begin(*shards);
    ASSERT_TRUE(is_ok(t->put(text("x", fails_at), u8(ten))));
    size_t renames = 0;
    env.before = [&](Call call) { return call == Call::renameat && renames++ == fails_at ? -EIO : 0; };
    const bool is_done = t->commit().has_value();
    EXPECT_EQ(is_done, fails_at == 2) << "a shard that gains alone has one new file, and the index another";
    for (const std::string &path : {shard(2), index}) {
      const std::string told = text("the new ", in_quotes(path), " will belong to user ");
      EXPECT_THAT(logged, HasSubstr(told));
      EXPECT_EQ(logged.find(told), logged.rfind(told)) << logged;
    }
    t.reset(), shards.reset();
    EXPECT_EQ(bytes(*open(), text("x", fails_at)), ten);
  }
}

// The index is new, and the shard still has what it is to lose.
TEST_F(ShardTransactionTest, AShardOfALivingWriterIsLookedAtAgain) {
  FaultEnv env(os::Env::posix());
  AtRename writer([this](FaultEnv &his) { rename_c(his); }, 2);
  auto reader = open(env);
  EXPECT_TRUE(fails_with(Status::busy, reader->catalogue().find("d")));
  bool done = false;
  env.before = [&](Call call) {
    if (call == Call::lock && !std::exchange(done, true)) writer.end(0);
    return 0;
  };
  EXPECT_EQ(bytes(*reader, "d"), pattern(5000, 3));
}

TEST_F(ShardTransactionTest, ALivingWriterIsAwaitedByWhoMayOnlyRead) {
  AtRename writer([this](FaultEnv &his) { rename_c(his); }, 2);
  testing::ReadOnlyEnv env(os::Env::posix());
  env.error = EACCES;
  OpenOptions options;
  options.lock_timeout_ms = 0;
  auto reader = Shards::open(env, index, options);
  const bool waited = reader && fails_with(Status::busy, (*reader)->catalogue().find("d"));
  writer.end(0);
  ASSERT_TRUE(is_ok(reader));
  EXPECT_TRUE(waited);
  EXPECT_EQ(bytes(**reader, "d"), pattern(5000, 3));
}

// Somebody has just begun, and decided nothing yet.
TEST_F(ShardTransactionTest, AnEmptySuperJournalIsInNobodysWay) {
  auto c = open();
  fs::create_directory(index + ".st-journal");
  fs::permissions(index + ".st-journal", fs::perms::owner_all);
  put_bytes(index + ".st-journal/0123456789abcdef", "");
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->put("x", u8(ten))));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(bytes(*c, "x"), ten);
}

TEST_F(ShardTransactionTest, WhatIsCommittedIsShownLaterIfTheHandleCannotShowItNow) {
  for (size_t n = 0; logged.empty(); ++n) {
    put_bytes(shard(2), file_of(std::vector{u8_tensor("c", 5000, 3)}));
    put_index(R"("a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors")");
    FaultEnv env(os::Env::posix());
    auto c = open(env);
    auto t = begin(*c);
    ASSERT_TRUE(is_ok(t->put("x", u8(ten))));
    size_t calls = 0;
    bool hit = false;
    env.before = [&](Call call) { return call == Call::list && calls++ == n ? hit = true, -EIO : 0; };
    const auto done = t->commit();
    env.before = nullptr;
    ASSERT_TRUE(hit) << "the handle showed it each time";
    if (!logged.empty()) {
      ASSERT_TRUE(is_ok(done));
      EXPECT_EQ(bytes(*c, "x"), ten);
    }
  }
  EXPECT_THAT(logged, HasSubstr("the change is committed, but the handle cannot show it"));
}

// The commit is done, but its handle cannot show it yet: after so many renames no folder can be listed.
void ShardTransactionTest::commit_unseen(FaultEnv &env, AnyTransaction &t, size_t after) {
  size_t renames = 0;
  env.before = [&](Call call) {
    renames += call == Call::renameat;
    return call == Call::list && renames >= after ? -EIO : 0;
  };
  ASSERT_TRUE(is_ok(t.commit()));
  env.before = nullptr;
  ASSERT_THAT(std::exchange(logged, {}), HasSubstr("the handle cannot show it yet"));
}

// A look is no call that its caller can end. The callback of the handle would be asked beside another call, and that of
// the call that looks would end what it has not begun.
TEST_F(ShardTransactionTest, WhatIsShownLaterAsksNobodyWhetherToGoOn) {
  FaultEnv env(os::Env::posix());
  OpenOptions options = writable();
  options.map = read::MapMode::none;  // a refresh reads anew, and may ask before each tensor
  bool begun = false;
  size_t asked = 0, outer_asked = 0;
  options.progress = [&](uint64_t, uint64_t) { return !begun || ++asked == 0; };
  auto c = *Shards::open(env, index, options);
  ASSERT_TRUE(is_ok(c->load(c->catalogue(), std::nullopt, false, false, {})));
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->set_metadata("by", "you")));
  ASSERT_NO_FATAL_FAILURE(commit_unseen(env, *t, 1));
  auto other = open();
  auto its = begin(*other);
  ASSERT_TRUE(is_ok(its->rename("b", "d")));
  ASSERT_TRUE(is_ok(its->commit()));
  begun = true;
  const InterruptScope outer([&]() -> Result<void> {
    ++outer_asked;
    return fail(Status::cancelled, "the call that looks");
  });
  EXPECT_TRUE(c->catalogue().find("d"));
  EXPECT_EQ(asked, 0u);
  EXPECT_EQ(outer_asked, 0u);
  EXPECT_TRUE(fails_with(Status::cancelled, c->refresh()));
  EXPECT_EQ(asked, 1u);
  EXPECT_EQ(outer_asked, 0u);
}

// Somebody else is amid one of the shards. A call that only looks does not wait, however long a change or a refresh
// may.
TEST_F(ShardTransactionTest, WhatCannotBeShownYetKeepsNoLookWaiting) {
  for (const bool several : {true, false}) {
    SCOPED_TRACE(several ? "several shards are to be recovered" : "one shard is to be recovered");
    put_shards(dir.path());
    put_index(R"("a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors")");
    ClockEnv env(os::Env::posix());
    FaultEnv others_env(os::Env::posix());
    OpenOptions options = writable();
    options.lock_timeout_ms = 10000;
    auto c = *Shards::open(env, index, options);
    bytes(*c, "a"), bytes(*c, "c");
    auto t = begin(*c);
    ASSERT_TRUE(is_ok(t->put("x", u8(ten))));
    ASSERT_NO_FATAL_FAILURE(commit_unseen(env, *t, 2));
    {
      auto other = open(others_env);
      auto its = begin(*other);
      ASSERT_TRUE(is_ok(its->set_metadata("by", "you")));
      ASSERT_TRUE(is_ok(its->commit()));
      if (several) {
        ASSERT_NO_FATAL_FAILURE(die_half_way(*other, others_env));
      } else {
        its = begin(*other);
        ASSERT_TRUE(is_ok(its->update("a", u8(new_a))));
        others_env.before = [&](Call call) {
          return call == Call::pwrite && bytes_of(shard(1)).find(new_a) != std::string::npos ? -EIO : 0;
        };
        static_cast<void>(its->commit());
      }
    }
    {
      const auto file = *os::File::open(os::Env::posix(), AT_FDCWD, shard(1), O_RDWR, 0, shard(1));
      const auto locked = os::RangeLock::acquire(file, {os::whole_file(true)}, {});
      ASSERT_TRUE(is_ok(locked));
      env.calls.clear();
      EXPECT_FALSE(c->catalogue().find("x"));
      EXPECT_GT(std::count(env.calls.begin(), env.calls.end(), Call::lock), 0) << "it met nothing to recover";
      EXPECT_EQ(env.sleeps, 0u);
    }
    EXPECT_EQ(bytes(*c, "x"), ten);
    EXPECT_TRUE(same_bytes(bytes(*c, "a"), new_a));
  }
}

TEST_F(ShardTransactionTest, WhatCannotBeRecoveredStopsTheNextCommit) {
  auto mine = open();
  auto t = begin(*mine);
  ASSERT_TRUE(is_ok(t->put("x", u8(ten))));
  FaultEnv env(os::Env::posix());
  auto other = open(env);
  ASSERT_NO_FATAL_FAILURE(die_half_way(*other, env));
  other.reset();
  for (const auto &entry : fs::directory_iterator(index + ".st-journal")) testing::poke(entry.path().string(), 0, "?");
  EXPECT_TRUE(fails_with(Status::journal, t->commit()));
  t.reset();
  EXPECT_EQ(bytes_of(index).find("\"x\""), std::string::npos);
}

TEST_F(ShardTransactionTest, AnIndexThatNobodyCouldReadIsNotWritten) {
  auto c = open();
  const std::string before = bytes_of(index);
  for (const bool new_names : {false, true}) {
    TransactionOptions options;
    options.new_names = new_names;
    auto t = begin(*c, options);
    EXPECT_TRUE(fails_with(Status::header_utf8, t->set_metadata("k\xff", "v")));
    ASSERT_TRUE(is_ok(t->commit()));
    EXPECT_TRUE(same_bytes(bytes_of(index), before));
  }
  ASSERT_TRUE(is_ok(begin(*c)->commit()));
}

TEST_F(ShardTransactionTest, ManyKeysOfMetadataTakeWorkInProportion) {
  auto c = open();
  const auto cost_of = [&](size_t n) {
    auto t = begin(*c);
    return testing::thread_ns_of([&] {
      for (size_t i = 0; i < n; ++i) EXPECT_TRUE(is_ok(t->set_metadata(text("key ", i), "v")));
      for (size_t i = 0; i < n; ++i) EXPECT_TRUE(is_ok(t->set_metadata(text("key ", i), std::nullopt)));
    });
  };
  testing::expect_in_proportion(cost_of);
}

TEST_F(ShardTransactionTest, AChildGoesOnWithWhatItsParentShows) {
  FaultEnv env(os::Env::posix());
  auto c = open(env);
  ASSERT_EQ(bytes(*c, "c").size(), 5000u);
  env.forks = 1;
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
  ASSERT_TRUE(is_ok(t->rename("c", "d")));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(same_bytes(bytes(*c, "a"), new_a));
  EXPECT_EQ(bytes(*c, "d").size(), 5000u);
  ASSERT_TRUE(is_ok(c->refresh()));
  EXPECT_TRUE(same_bytes(bytes(*c, "a"), new_a));
  t.reset();
  c.reset();
  expect_sound();
}

// By its journal an open for writing finds the new index of one that died.
TEST_F(ShardTransactionTest, AFailedCommitRemovesItsNewIndexBeforeItsJournal) {
  FaultEnv env(os::Env::posix());
  auto c = open(env);
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
  ASSERT_TRUE(is_ok(t->rename("b", "x")));
  const std::string before = all(), journals = index + ".st-journal",
                    prefix = "." + fs::path(index).filename().string() + ".st-new-";
  bool was_made = false;
  env.before = [&](Call call) {
    bool is_made = false;
    for (const auto &entry : fs::directory_iterator(dir.path()))
      is_made |= entry.path().filename().string().starts_with(prefix);
    was_made |= is_made;
    EXPECT_TRUE(!is_made || (fs::exists(journals) && !fs::is_empty(journals)));
    return was_made && call == Call::fdatasync ? -EIO : 0;
  };
  const auto failed = t->commit();
  env.before = nullptr;
  EXPECT_TRUE(fails_with(Status::io, failed));
  EXPECT_TRUE(was_made);
  EXPECT_TRUE(same_bytes(all(), before));
}

TEST_F(ShardTransactionTest, AFailureOfOneShardNamesIt) {
  FaultEnv env(os::Env::posix());
  auto c = open(env);
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
  const std::string before = all();
  env.before = [](Call call) { return call == Call::pwrite ? -EIO : 0; };
  const auto failed = t->commit();
  env.before = nullptr;
  EXPECT_TRUE(fails_with(Status::io, failed));
  EXPECT_EQ(failed.error().shard, 1u);
  EXPECT_TRUE(fails_with(Status::txn_failed, t->commit()));
  EXPECT_TRUE(same_bytes(all(), before));
  env.before = [](Call call) { return call == Call::renameat ? -EIO : 0; };
  const auto not_compacted = c->compact({});
  env.before = nullptr;
  EXPECT_TRUE(fails_with(Status::io, not_compacted));
  EXPECT_EQ(not_compacted.error().shard, 0u);
  EXPECT_TRUE(same_bytes(all(), before));
}

// Also if nothing is staged in it.
TEST_F(ShardTransactionTest, AShardThatTookNoPartOfATensorEndsTheWholeTransaction) {
  FaultEnv env(os::Env::posix());
  auto c = open(env);
  const std::string before = all();
  ASSERT_EQ(bytes(*c, "c").size(), 5000u);
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
  env.before = [](Call call) { return call == Call::openat ? -EIO : 0; };
  const Range first[] = {{0, 10, 1}};
  EXPECT_TRUE(fails_with(Status::io, t->update_slice("c", {first}, u8(ten))));
  env.before = nullptr;
  EXPECT_TRUE(fails_with(Status::txn_failed, t->set_metadata("k", "v")));
  const auto planned = t->plan();
  EXPECT_TRUE(fails_with(Status::txn_failed, planned));
  const auto committed = t->commit();
  EXPECT_TRUE(fails_with(Status::txn_failed, committed));
  EXPECT_EQ(committed.error().shard, 1u);
  EXPECT_TRUE(same_bytes(all(), before));
}

// A handle of shards settles nothing, so nothing waits in a shard.
TEST_F(ShardTransactionTest, NoShardIsSyncedLater) {
  FaultEnv env(os::Env::posix());
  auto shards = open(env);
  const auto syncs_of_a_commit = [&](bool later) {
    env.calls.clear();
    TransactionOptions options;
    options.journal_only = later;
    auto transaction = begin(*shards, options);
    EXPECT_TRUE(is_ok(transaction->update("a", u8(new_a))));
    EXPECT_TRUE(is_ok(transaction->commit()));
    return std::count(env.calls.begin(), env.calls.end(), Call::fdatasync);
  };
  syncs_of_a_commit(false);  // makes the journal
  const auto wanted = syncs_of_a_commit(false);
  EXPECT_EQ(syncs_of_a_commit(true), wanted);
  EXPECT_EQ(syncs_of_a_commit(true), wanted);
}

// Patches are staged and their old bytes read; a shard that both gains and loses tensors is written twice.
TEST_F(ShardTransactionTest, ProgressIsOneCountOverAllShards) {
  const std::string large_a = pattern(9 << 20, 1), large_c = pattern(7 << 20, 3);
  put_bytes(shard(1), file_of(std::vector{u8_tensor("a", large_a.size(), 4), u8_tensor("b", 100, 2)}));
  put_bytes(shard(2), file_of(std::vector{u8_tensor("c", large_c.size(), 5)}));
  using Stage = std::function<Result<void>(AnyTransaction &)>;
  const Stage patches = [&](AnyTransaction &t) -> Result<void> {
    ST_TRY(t.update("a", u8(large_a)));
    return t.update("c", u8(large_c));
  };
  const Stage gains_and_losses = [&](AnyTransaction &t) -> Result<void> {
    ST_TRY(t.rename("a", "x"));
    return t.rename("c", "y");
  };
  const Stage a_publish_and_a_patch = [&](AnyTransaction &t) -> Result<void> {
    ST_TRY(t.update("x", u8(large_a)));
    return t.put("z", u8(large_c));
  };
  for (const Stage &stage : {patches, gains_and_losses, a_publish_and_a_patch}) {
    ToldProgress told;
    TransactionOptions options;
    options.progress = told.progress();
    auto c = open();
    auto t = begin(*c, options);
    ASSERT_TRUE(is_ok(stage(*t)));
    told.forget();
    ASSERT_TRUE(is_ok(t->commit()));
    told.expect_one_count(large_a.size() + large_c.size());
  }
  expect_sound();
}

TEST_F(ShardTransactionTest, APlanOfNothingTellsWhatIsFreeBesideTheIndex) {
  auto c = open();
  auto t = begin(*c);
  const auto plan = t->plan();
  ASSERT_TRUE(is_ok(plan));
  EXPECT_LT(plan->space_free, UINT64_MAX);
  std::filesystem::remove(index);
  EXPECT_TRUE(fails_with(Status::no_file, t->plan()));
}

TEST_F(ShardTransactionTest, ACancelWhenAllIsPreparedChangesNothing) {
  const std::string before = all();
  TransactionOptions options;
  options.progress = [](uint64_t done, uint64_t total) { return done < total || total == 0; };
  auto c = open();
  auto t = begin(*c, options);
  ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
  ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
  EXPECT_TRUE(fails_with(Status::cancelled, t->commit()));
  EXPECT_TRUE(same_bytes(all(), before));
}

// A signal would end the process.
TEST_F(ShardTransactionTest, AnIndexThatIsLongerThanTheProcessMayWriteIsNotBegun) {
  class Limited : public testing::FaultEnv {
   public:
    Limited() : FaultEnv(os::Env::posix()) {}
    uint64_t largest_file() override { return 20'000; }
    ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
      EXPECT_LE(offset + n, largest_file());
      return FaultEnv::pwrite(fd, buffer, n, offset);
    }
  } env;
  const std::string before = all();
  auto c = open(env);
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->set_metadata("notes", std::string(30'000, 'n'))));
  const auto refused = t->commit();
  EXPECT_TRUE(fails_with(Status::io, refused));
  EXPECT_EQ(refused.error().os_errno, EFBIG);
  EXPECT_THAT(refused.error().message, HasSubstr("RLIMIT_FSIZE"));
  EXPECT_TRUE(same_bytes(all(), before));
}

}  // namespace
}  // namespace st::store
