// Blocks that two files share: in pieces, between which a progress is told and may end the call.
#include "newfile/transfer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <vector>

#include "fault_env.h"
#include "test_files.h"

namespace st::write {
namespace {

using namespace testing;

constexpr uint64_t block = 4096, GiB = uint64_t{1} << 30;

// Says that it shares blocks, and notes how many bytes at once.
class Shares : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  int clone_range(int, int, uint64_t from, uint64_t n, uint64_t to) override {
    EXPECT_EQ(from % block + n % block + to % block, 0u);
    if (pieces.size() == declines_after) return -EOPNOTSUPP;
    pieces.push_back(n);
    return 0;
  }
  std::vector<uint64_t> pieces;
  size_t declines_after = SIZE_MAX;
};

class TransferTest : public ::testing::Test {
 protected:
  os::File open(const std::string &name, uint64_t size) {
    put_bytes(dir / name, "");
    std::filesystem::resize_file(dir / name, size);  // a hole
    auto file = os::File::open(shares, AT_FDCWD, dir / name, O_RDWR, 0, dir / name);
    EXPECT_TRUE(is_ok(file));
    return std::move(*file);
  }
  std::function<Result<void>(uint64_t)> note() {
    return [this](uint64_t n) -> Result<void> {
      told.push_back(n);
      return told.size() == ends_after ? Result<void>(fail(Status::cancelled, "the progress ends it")) : Result<void>();
    };
  }

  const TempDir dir;
  Shares shares{os::Env::posix()};
  std::vector<uint64_t> told;
  size_t ends_after = SIZE_MAX;
};

using Sizes = std::vector<uint64_t>;

TEST_F(TransferTest, ManyBlocksAreSharedInPiecesAndAProgressEndsThem) {
  const uint64_t size = 2 * GiB + 3 * block;
  const os::File from = open("from", size + 9), to = open("to", size + 9);
  const auto done = transfer(from, to, {5, 5, size}, block, note());
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(shares.pieces, (Sizes{GiB, GiB, 2 * block}));
  EXPECT_EQ(done->shared, 2 * GiB + 2 * block);
  EXPECT_EQ(done->copied, block);
  EXPECT_EQ(told, (Sizes{block - 5, GiB, GiB, 2 * block, 5})) << "in the order of the bytes";
  shares.pieces.clear();
  told.clear();
  ends_after = 1;
  EXPECT_TRUE(fails_with(Status::cancelled, transfer(from, to, {0, 0, 2 * GiB}, block, note())));
  EXPECT_EQ(shares.pieces, Sizes{GiB});
  for (size_t n = 1; n <= 5; ++n) {
    told.clear();
    ends_after = n;
    EXPECT_TRUE(fails_with(Status::cancelled, transfer(from, to, {5, 5, size}, block, note()))) << n;
    EXPECT_EQ(told.size(), n);
  }
}

TEST_F(TransferTest, WhatTheKernelDoesNotShareIsCopied) {
  const std::string bytes = pattern(3 * block, 7);
  const os::File from = open("from", 0), to = open("to", 4 * block);
  put_bytes(dir / "from", bytes);
  shares.declines_after = 0;
  auto done = transfer(from, to, {100, block + 100, 2 * block}, block, note());
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->shared, 0u);
  EXPECT_EQ(done->copied, 2 * block);
  EXPECT_TRUE(same_bytes(bytes_of(dir / "to").substr(block + 100, 2 * block), bytes.substr(100, 2 * block)));
}

TEST_F(TransferTest, WhereTheKernelDeclinesAmidTheBlocksTheRestIsCopied) {
  const std::string bytes = pattern(block, 7);
  const os::File from = open("from", GiB + block), to = open("to", GiB + block);
  poke(dir / "from", GiB, bytes);
  shares.declines_after = 1;
  auto done = transfer(from, to, {0, 0, GiB + block}, block, note());
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->shared, GiB);
  EXPECT_EQ(done->copied, block);
  std::string got(block, '?');
  ASSERT_TRUE(is_ok(to.read(got.data(), block, GiB)));
  EXPECT_TRUE(same_bytes(got, bytes));
}

}  // namespace
}  // namespace st::write
