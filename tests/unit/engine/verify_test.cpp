// Verification: what it finds, and that it only looks.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/little_endian.h"
#include "clock_env.h"
#include "engine/verify.h"
#include "os/range_lock.h"
#include "shards/shards.h"
#include "shards_scene.h"
#include "store_scene.h"
#include "told_progress.h"

namespace st::store {
namespace {

using namespace testing;
using ::testing::HasSubstr;

class VerifyTest : public testing::StoreScene {
 protected:
  Result<void> check() { return check(env); }
  Result<void> check(os::Env &with, const Control &control = {}) {
    found.clear();
    return verify(with, path, control, [this](const Finding &f) {
      found.push_back(f);
      return found.size() < most;
    });
  }
  std::vector<Finding> found;
  size_t most = SIZE_MAX;
};

TEST_F(VerifyTest, AGoodFileIsToldInOneSentence) {
  ASSERT_TRUE(is_ok(check()));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::info);
  EXPECT_EQ(found[0].status, Status::ok);
  EXPECT_NE(found[0].message.find("3 tensors"), std::string::npos);
  EXPECT_NE(found[0].message.find("17007"), std::string::npos);
  EXPECT_TRUE(is_ok(verify(env, path, {}, nullptr)));  // nobody need listen
}

TEST_F(VerifyTest, EveryBrokenRuleIsItsStatus) {
  const std::pair<std::string, Status> broken[] = {
      {"", Status::header_too_small},
      {testing::raw_file("{]", ""), Status::header_json},
      {old.substr(0, old.size() - 1), Status::truncated},
      {old + "x", Status::trailing_data},
      {testing::raw_file(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", "x"), Status::size_mismatch},
  };
  for (const auto &[bytes, status] : broken) {
    put_bytes(path, bytes);
    EXPECT_TRUE(fails_with(status, check()));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].severity, Severity::error);
    EXPECT_EQ(found[0].status, status);
  }
  put_bytes(path, old + "x");
  check();
  EXPECT_EQ(found[0].offset, old.size());
}

TEST_F(VerifyTest, WhatIsNoFileIsSaid) {
  std::filesystem::remove(path);
  EXPECT_TRUE(fails_with(Status::no_file, check()));
  std::filesystem::create_directory(path);
  EXPECT_TRUE(fails_with(Status::not_regular, check()));
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(fails_with(Status::not_regular, check()));
}

TEST_F(VerifyTest, UnalignedTensorsAreAWarning) {
  put_bytes(path, testing::file_of({testing::u8_tensor("a", 3, 1),
                                    {"f", Dtype::F32, {2}, "12345678"},
                                    {"g", Dtype::F64, {1}, "12345678"}}));
  ASSERT_TRUE(is_ok(check()));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].severity, Severity::warning);
  EXPECT_EQ(found[0].status, Status::ok);
  EXPECT_NE(found[0].message.find("2 tensors"), std::string::npos);
  EXPECT_EQ(found[0].offset, bytes_of(path).size() - 16);
}

TEST_F(VerifyTest, AJournalThatWaitsIsAnErrorAndStays) {
  const std::string journal = leave({{a_at, new_a}}, true);
  EXPECT_TRUE(fails_with(Status::needs_recovery, check()));
  EXPECT_EQ(found[0].severity, Severity::error);
  EXPECT_TRUE(std::filesystem::exists(journal));
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  ASSERT_TRUE(is_ok(recover()));
  EXPECT_TRUE(is_ok(check()));
}

TEST_F(VerifyTest, AJournalAtWorkOrUncommittedIsNone) {
  const std::string journal = leave({{a_at, new_a}}, false);
  EXPECT_TRUE(is_ok(check()));
  EXPECT_TRUE(std::filesystem::exists(journal));
  auto live = make_journal({{b_at, new_b}}, true);
  EXPECT_TRUE(is_ok(check()));
}

TEST_F(VerifyTest, EveryByteIsReadAndOnlyRead) {
  class Meter : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override {
      const ssize_t got = FaultEnv::pread(fd, buffer, n, offset);
      if (got > 0) bytes += static_cast<uint64_t>(got);
      return got;
    }
    uint64_t bytes = 0;
  } meter(env);
  ASSERT_TRUE(is_ok(check(meter)));
  const uint64_t header = load_u64le(old.data());
  const uint64_t data = old.size() - sizeof header - header;
  EXPECT_GE(meter.bytes, data + std::min<uint64_t>(old.size(), 16384));  // what is read at first may have data in it
  for (testing::Call call : meter.calls)
    EXPECT_TRUE(call != testing::Call::pwrite && call != testing::Call::mkdirat && call != testing::Call::unlinkat);
}

TEST_F(VerifyTest, ABadBlockIsFound) {
  FaultEnv faulty(env);
  int reads = 0;
  faulty.before = [&](testing::Call call) { return call == testing::Call::pread && ++reads == 2 ? -EIO : 0; };
  EXPECT_TRUE(fails_with(Status::io, check(faulty)));
  EXPECT_EQ(found.back().status, Status::io);
  EXPECT_NE(found.back().offset, no_offset);
}

TEST_F(VerifyTest, TheListenerMayStopIt) {
  most = 1;
  EXPECT_TRUE(fails_with(Status::cancelled, check()));
  const Control cancel([](uint64_t, uint64_t) { return false; }, nullptr);
  EXPECT_TRUE(fails_with(Status::cancelled, check(env, cancel)));
}

TEST_F(VerifyTest, ProgressGoesFromTheFirstByteToTheLast) {
  put_bytes(path, file_of(std::vector{u8_tensor("a", 9 << 20, 1)}));
  ToldProgress told;
  ASSERT_TRUE(is_ok(check(env, {told.progress(), nullptr})));
  told.expect_one_count(9 << 20);
}

class VerifyShards : public testing::ShardsScene {
 protected:
  VerifyShards() { put_all("9100", "9100"); }
  // By these totals.
  void put_all(const std::string &bytes, const std::string &elements) const {
    put_shards(dir.path());
    put_bytes(index, R"({"metadata":{"total_size":)" + bytes + R"(,"total_parameters":)" + elements +
                         R"(},"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
  }
  Result<void> check(os::Env &with, const Control &control = {}) {
    found.clear();
    return verify(with, index, control, [this](const Finding &f) {
      if (f.severity != Severity::info) found += f.message + "\n";
      return true;
    });
  }
  // Another process does that.
  static void commit(const std::string &path, const TransactionOptions &options,
                     const std::function<Result<void>(AnyTransaction &)> &stage) {
    OpenOptions writable;
    writable.writable = true;
    auto c = Shards::open(os::Env::posix(), path, writable);
    ASSERT_TRUE(is_ok(c));
    auto t = (*c)->begin(options);
    ASSERT_TRUE(is_ok(t));
    ASSERT_TRUE(is_ok(stage(**t)));
    ASSERT_TRUE(is_ok((*t)->commit()));
  }
  void put_step(const TransactionOptions &options) const {
    commit(index, options, [this](AnyTransaction &t) { return t.put("step", u8(four_bytes)); });
  }
  static TransactionOptions new_names() {
    TransactionOptions options;
    options.new_names = true;
    options.shard_grace_s = 0;
    return options;
  }

  const testing::TempDir dir;
  const std::string index = dir / "m.safetensors.index.json", four_bytes = "4 by";
  std::string found;
};

TEST_F(VerifyShards, BothTotalsAreComparedWithWhatTheShardsHold) {
  ASSERT_TRUE(is_ok(check(os::Env::posix())));
  EXPECT_EQ(found, "");
  put_all("0", "1");
  ASSERT_TRUE(is_ok(check(os::Env::posix())));
  EXPECT_EQ(found,
            "the index says a total_size of 0 bytes, but the shards hold 9100\n"
            "the index says a total_parameters of 1 elements, but the shards hold 9100\n");
}

// A commit before each system call that looks for a file, or asks about one.
TEST_F(VerifyShards, ACommitMeanwhileIsNoFault) {
  const TransactionOptions in_place;
  for (const auto &options : {in_place, new_names()}) {
    bool came = true;
    for (int n = 0; came; ++n) {
      for (const std::string &name : names_in(dir.path())) std::filesystem::remove_all(dir / name);
      put_all("9100", "9100");
      FaultEnv env(os::Env::posix());
      came = false;
      int calls = 0;
      env.before = [&](Call call) {
        const bool looks = call == Call::openat || call == Call::fstatat || call == Call::list || call == Call::pread;
        if (looks && calls++ == n) came = true, put_step(options);
        return 0;
      };
      ASSERT_TRUE(is_ok(check(env))) << "call " << n << (options.new_names ? " under new names" : "");
      ASSERT_EQ(found, "");
    }
  }
}

TEST_F(VerifyShards, ACommitWhileBytesAreReadIsNoFault) {
  for (const auto &options : {TransactionOptions(), new_names()}) {
    bool came = false;
    const Control control(
        [&](uint64_t done, uint64_t) {
          if (done != 0 && !std::exchange(came, true)) put_step(options);
          return true;
        },
        nullptr);
    ASSERT_TRUE(is_ok(check(os::Env::posix(), control)));
    EXPECT_TRUE(came);
  }
}

TEST_F(VerifyShards, WhatIsReplacedAllTheTimeIsNotJudged) {
  FaultEnv env(os::Env::posix());
  int steps = 0;
  env.before = [&](Call call) {
    if (call != Call::pread) return 0;
    commit(index, {}, [&](AnyTransaction &t) { return t.put("step " + std::to_string(++steps), u8(four_bytes)); });
    return 0;
  };
  const auto checked = check(env);
  EXPECT_TRUE(fails_with(Status::file_changed, checked));
  EXPECT_THAT(checked.error().message, HasSubstr("is replaced all the time"));
}

TEST_F(VerifyShards, WhatGoesBeforeItIsReadIsNotJudged) {
  bool forth = true;
  const auto rename_all = [&](AnyTransaction &t) -> Result<void> {
    ST_TRY(t.rename(forth ? "a" : "x", forth ? "x" : "a"));
    return t.rename(forth ? "c" : "y", forth ? "y" : "c");
  };
  uint64_t read = 0;
  const Control control(
      [&](uint64_t done, uint64_t) {
        // The second commit removes what the first has replaced.
        for (int i = 0; done > read && i < 2; ++i, forth = !forth) commit(index, new_names(), rename_all);
        read = done;
        return true;
      },
      nullptr);
  const auto checked = check(os::Env::posix(), control);
  EXPECT_TRUE(fails_with(Status::file_changed, checked));
  EXPECT_THAT(checked.error().message, HasSubstr("is replaced all the time"));
}

TEST_F(VerifyShards, WhatWasReadIsNotReadAgainWhereAnotherShardGoes) {
  bool came = false;
  const Control control(
      [&](uint64_t done, uint64_t) {
        if (done == 0 || std::exchange(came, true)) return true;
        commit(index, new_names(), [](AnyTransaction &t) { return t.rename("c", "y"); });
        commit(index, new_names(), [](AnyTransaction &t) { return t.rename("y", "c"); });
        return true;
      },
      nullptr);
  std::string all;
  ASSERT_TRUE(is_ok(verify(os::Env::posix(), index, control, [&](const Finding &f) {
    all += f.message + "\n";
    return true;
  })));
  EXPECT_TRUE(came);
  const size_t first = all.find("2 tensors, 4100 bytes");
  ASSERT_NE(first, std::string::npos) << all;
  EXPECT_EQ(all.find("2 tensors, 4100 bytes", first + 1), std::string::npos) << all;
}

TEST_F(VerifyShards, AFileThatCannotBeReadIsToldBesideTheOthers) {
  put_bytes(dir / "m-1.safetensors", "no header");
  std::filesystem::remove(dir / "m-2.safetensors");
  std::filesystem::create_directory(dir / "m-2.safetensors");
  EXPECT_TRUE(fails_with(Status::header_too_large, check(os::Env::posix())));
  EXPECT_THAT(found, HasSubstr("m-2.safetensors' is no plain file"));
  std::filesystem::remove(dir / "m-2.safetensors");
  std::filesystem::create_symlink("nowhere", dir / "m-2.safetensors");
  EXPECT_TRUE(fails_with(Status::header_too_large, check(os::Env::posix())));
  EXPECT_THAT(found, HasSubstr("m-2.safetensors', which the index names, is not there"));
}

TEST_F(VerifyShards, AWaitForACommitMayBeCancelled) {
  std::filesystem::remove(dir / "m-2.safetensors");
  auto held = os::File::open(os::Env::posix(), AT_FDCWD, index, O_RDWR, 0, index);
  ASSERT_TRUE(is_ok(held));
  auto lock = os::RangeLock::acquire(*held, {os::whole_file(true)}, {});
  ASSERT_TRUE(is_ok(lock));
  FaultEnv env(os::Env::posix());
  bool waits = false;
  env.before = [&](Call call) {
    waits |= call == Call::lock;
    return 0;
  };
  EXPECT_TRUE(fails_with(Status::cancelled, check(env, {[&](uint64_t, uint64_t) { return !waits; }, nullptr})));
  EXPECT_TRUE(waits);
  EXPECT_TRUE(fails_with(Status::cancelled, check(env, {[](uint64_t, uint64_t) { return false; }, nullptr})));
  EXPECT_EQ(found, "");
}

// As long as writers may be at work, nothing is told of shards that disagree.
TEST_F(VerifyShards, WhatKeepsFromWaitingForACommitIsTold) {
  std::filesystem::remove(dir / "m-2.safetensors");
  const std::pair<int, Status> expected[] = {
      {-EIO, Status::io}, {-ENOMEM, Status::nomem}, {-ENOLCK, Status::shard_missing}, {-EPERM, Status::shard_missing}};
  for (const auto &[answer, status] : expected) {
    FaultEnv env(os::Env::posix());
    env.before = [answer = answer](Call call) { return call == Call::lock ? answer : 0; };
    EXPECT_TRUE(fails_with(status, check(env))) << answer;
  }
}

// A shard that disagrees is told, then read; then the next one goes, for good.
TEST_F(VerifyShards, WhatWasToldIsNotToldAgainWhereAnotherShardGoes) {
  put_bytes(dir / "m-1.safetensors", file_of(std::vector{u8_tensor("a", 4000, 1), u8_tensor("d", 100, 2)}));
  bool came = false;
  uint64_t before = 0;
  const Control control(
      [&](uint64_t done, uint64_t total) {
        if (done != 0 && !std::exchange(came, true)) std::filesystem::remove(dir / "m-2.safetensors");
        EXPECT_LE(done, total);
        EXPECT_GE(done, std::exchange(before, done));
        return true;
      },
      nullptr);
  EXPECT_TRUE(fails_with(Status::shard_tensor, check(os::Env::posix(), control)));
  EXPECT_TRUE(came);
  EXPECT_GT(before, 4100u);
  EXPECT_EQ(found, "'" + dir / "m-1.safetensors" + "' holds tensor 'd', which the index does not name\n" +
                       "by the index tensor 'b' is in '" + dir / "m-1.safetensors" + "', but it is not\n" + "shard '" +
                       dir / "m-2.safetensors" +
                       "', which the index names, is not there; fetch it, or the checkpoint, again\n");
}

// Another program has a lease on the index, until the call is asked whether to go on.
class LeasedIndex : public ClockEnv {
 public:
  LeasedIndex() : ClockEnv(os::Env::posix()) {
    before_open = [this](std::string_view name, int) {
      const bool is_index = name.ends_with("m.safetensors.index.json");
      opened += is_index;
      return is_index && leased ? -EAGAIN : 0;
    };
  }
  bool leased = false;
  size_t opened = 0;
};

TEST_F(VerifyShards, TheCountOfBytesBelowDeltasMayBeCancelled) {
  LeasedIndex env;
  env.leased = true;
  const Control control([&](uint64_t, uint64_t) { return !std::exchange(env.leased, false); }, nullptr);
  EXPECT_TRUE(fails_with(Status::cancelled, verify_layers(env, index, {}, control, {})));
  EXPECT_FALSE(env.leased);
}

TEST_F(VerifyShards, BytesBelowDeltasAreCountedForTheProgressAlone) {
  LeasedIndex silent, told;
  ASSERT_TRUE(is_ok(verify_layers(silent, index, {}, {}, {})));
  ASSERT_TRUE(is_ok(verify_layers(told, index, {}, {[](uint64_t, uint64_t) { return true; }, nullptr}, {})));
  EXPECT_EQ(silent.opened + 1, told.opened);
}

TEST_F(VerifyShards, AnIndexThatGoesMeanwhileIsMissed) {
  std::filesystem::remove(dir / "m-2.safetensors");
  FaultEnv env(os::Env::posix());
  env.before = [&](Call call) {
    if (call == Call::lock) std::filesystem::remove(index);
    return 0;
  };
  EXPECT_TRUE(fails_with(Status::no_file, check(env)));
}

TEST_F(VerifyShards, WhatDisagreesWithAnIndexThatStandsIsToldOnce) {
  put_bytes(dir / "m-2.safetensors", file_of(std::vector{u8_tensor("d", 5000, 3)}));
  EXPECT_TRUE(fails_with(Status::shard_tensor, check(os::Env::posix())));
  EXPECT_EQ(found, "'" + dir / "m-2.safetensors" + "' holds tensor 'd', which the index does not name\n" +
                       "by the index tensor 'c' is in '" + dir / "m-2.safetensors" + "', but it is not\n");
  std::filesystem::remove(dir / "m-2.safetensors");
  EXPECT_TRUE(fails_with(Status::shard_missing, check(os::Env::posix())));
  EXPECT_EQ(found, "shard '" + dir / "m-2.safetensors" +
                       "', which the index names, is not there; fetch it, or the checkpoint, again\n");
}

// As an open says it, whichever of the two the index names.
TEST_F(VerifyShards, ATensorInTwoShardsIsTold) {
  const auto in_both = [this](const char *name, const char *first, const char *second) {
    return "tensor '" + std::string(name) + "' is in '" + dir / first + "' and in '" + dir / second +
           "'; one of them would be hidden\n";
  };
  put_bytes(dir / "m-2.safetensors", file_of(std::vector{u8_tensor("c", 4900, 3), u8_tensor("b", 100, 2)}));
  EXPECT_TRUE(fails_with(Status::shard_duplicate, check(os::Env::posix())));
  EXPECT_EQ(found, in_both("b", "m-2.safetensors", "m-1.safetensors"));
  put_shards(dir.path());
  put_bytes(dir / "m-1.safetensors",
            file_of(std::vector{u8_tensor("a", 3900, 1), u8_tensor("b", 100, 2), u8_tensor("c", 100, 3)}));
  EXPECT_TRUE(fails_with(Status::shard_duplicate, check(os::Env::posix())));
  EXPECT_EQ(found, in_both("c", "m-1.safetensors", "m-2.safetensors"));
}

TEST_F(VerifyShards, ProgressGoesFromTheFirstByteOfAllShardsToTheLast) {
  put_bytes(dir / "m-1.safetensors", file_of(std::vector{u8_tensor("a", 9 << 20, 1), u8_tensor("b", 100, 2)}));
  ToldProgress told;
  ASSERT_TRUE(is_ok(check(os::Env::posix(), {told.progress(), nullptr})));
  told.expect_one_count((9 << 20) + 5100);
}

}  // namespace
}  // namespace st::store
