// Verification: what it finds, and that it only looks.
#include <sys/stat.h>

#include <algorithm>

#include "base/little_endian.h"
#include "engine/verify.h"
#include "store_scene.h"

namespace st::store {
namespace {

using namespace testing;

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

}  // namespace
}  // namespace st::store
