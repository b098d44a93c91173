// A compact of shards: the room that it takes, what a failure leaves, and what it tells of its progress.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <set>
#include <utility>

#include "engine/verify.h"
#include "fault_env.h"
#include "located.h"
#include "shards/shards.h"
#include "shards_scene.h"
#include "told_progress.h"

namespace st::store {
namespace {

using namespace testing;
using ::testing::HasSubstr;

// Knows which of its plain files are open.
class OpenFilesEnv : public testing::FaultEnv {
 public:
  OpenFilesEnv() : FaultEnv(os::Env::posix()) {}
  int openat(int at, const char *path, int flags, mode_t mode) override {
    const int fd = FaultEnv::openat(at, path, flags, mode);
    struct stat s;
    if (fd >= 0 && FaultEnv::fstat(fd, &s) == 0 && S_ISREG(s.st_mode)) open_.insert(fd);
    return fd;
  }
  int close(int fd) override {
    open_.erase(fd);
    return FaultEnv::close(fd);
  }
  // Those whose blocks are free once they are closed.
  size_t open_without_name() {
    size_t n = 0;
    for (const int fd : open_) {
      struct stat s;
      if (FaultEnv::fstat(fd, &s) == 0 && s.st_nlink == 0) ++n;
    }
    return n;
  }

 private:
  std::set<int> open_;
};

class CompactTest : public testing::ShardsScene {
 protected:
  static constexpr int shards = 5;
  static constexpr size_t bytes = 3 << 20;

  CompactTest() {
    std::string map;
    for (int i = 0; i < shards; ++i) {
      const std::string tensor(1, static_cast<char>('a' + i));
      put_bytes(shard(i), file_of(std::vector{u8_tensor(tensor, bytes, static_cast<unsigned>(i))}, {}, 3000));
      map += (i ? R"(,")" : R"(")") + tensor + R"(":"m-)" + std::to_string(i) + R"(.safetensors")";
    }
    put_bytes(index, R"({"weight_map":{)" + map + "}}");
  }
  std::string shard(int i) const { return dir / ("m-" + std::to_string(i) + ".safetensors"); }
  std::unique_ptr<Shards> open() {
    OpenOptions options;
    options.writable = true;
    options.lock_timeout_ms = 0;
    options.map = read::MapMode::none;
    auto opened = Shards::open(env, index, options);
    EXPECT_TRUE(is_ok(opened));
    return opened ? std::move(*opened) : nullptr;
  }
  static TransactionOptions canonical(Progress progress = {}) {
    TransactionOptions options;
    options.lock_timeout_ms = 0;
    options.layout = write::Layout::canonical;
    options.progress = std::move(progress);
    return options;
  }
  std::vector<ino_t> inodes() const {
    std::vector<ino_t> all;
    for (int i = 0; i < shards; ++i) {
      struct stat s = {};
      EXPECT_EQ(located(os::Env::posix(), shard(i)).stat(&s), 0);
      all.push_back(s.st_ino);
    }
    return all;
  }
  void expect_whole() { EXPECT_TRUE(is_ok(verify(os::Env::posix(), index, {}, {}))); }

  const testing::TempDir dir;
  const std::string index = dir / "m.safetensors.index.json";
  OpenFilesEnv env;
};

TEST_F(CompactTest, KeepsNoFileThatItHasReplaced) {
  for (const bool new_names : {false, true}) {
    auto c = open();
    size_t most = 0;
    auto options = canonical([&](uint64_t, uint64_t) {
      most = std::max(most, env.open_without_name());
      return true;
    });
    options.new_names = new_names;
    options.shard_grace_s = 0;
    ASSERT_TRUE(is_ok(c->compact(options)));
    EXPECT_LE(most, 1u);
    EXPECT_EQ(env.open_without_name(), 0u);
    expect_whole();
  }
}

TEST_F(CompactTest, WhatIsDoneBeforeAStopStaysAndIsTold) {
  const std::pair<Status, std::string> stops[] = {{Status::cancelled, "cancelled"},
                                                  {Status::interrupted, "interrupted"}};
  for (const auto &[status, word] : stops) {
    const auto before = inodes();
    auto c = open();
    const auto stopped = c->compact(canonical([&, status = status](uint64_t, uint64_t) {
      if (inodes()[1] == before[1]) return true;
      if (status == Status::interrupted) c->interrupt();
      return status == Status::interrupted;
    }));
    EXPECT_TRUE(fails_with(status, stopped));
    EXPECT_EQ(stopped.error().message,
              "the call was " + word + " at shard 3 of 5; the shards before it are done, and stay so");
    for (int i = 0; i < shards; ++i) EXPECT_EQ(inodes()[i] != before[i], i < 2) << i;
    expect_whole();
  }
}

TEST_F(CompactTest, AFailureOfTheFirstShardHasChangedNothing) {
  const auto before = inodes();
  const auto cancelled = open()->compact(canonical([](uint64_t, uint64_t) { return false; }));
  EXPECT_TRUE(fails_with(Status::cancelled, cancelled));
  EXPECT_TRUE(cancelled.error().message.ends_with("nothing was changed")) << cancelled.error().message;
  EXPECT_EQ(inodes(), before);
}

TEST_F(CompactTest, AShardThatTheIndexNamesNoMoreEndsIt) {
  auto c = open();
  bool replaced = false;
  const auto changed = c->compact(canonical([&](uint64_t, uint64_t) {
    if (!std::exchange(replaced, true)) {
      std::filesystem::rename(shard(4), dir / "n.safetensors");
      std::string text = bytes_of(index);
      replace_by(index, text.replace(text.find("m-4"), 3, "n"));
    }
    return true;
  }));
  EXPECT_TRUE(fails_with(Status::file_changed, changed));
  EXPECT_THAT(changed.error().message, HasSubstr("names 'm-4.safetensors' no more"));
  expect_whole();
}

TEST_F(CompactTest, NeedsAHandleForWriting) {
  auto c = Shards::open(env, index, {});
  ASSERT_TRUE(is_ok(c));
  EXPECT_TRUE(fails_with(Status::read_only, (*c)->compact(canonical())));
}

TEST_F(CompactTest, AShardThatIsGoneIsNamed) {
  auto c = open();
  std::filesystem::remove(shard(1));
  const auto gone = c->compact(canonical());
  EXPECT_TRUE(fails_with(Status::shard_missing, gone));
  EXPECT_EQ(gone.error().shard, 1u);
  EXPECT_TRUE(
      gone.error().message.ends_with(" (this is about shard 2 of 5 alone; the shards before it are done, and stay so)"))
      << gone.error().message;
}

TEST_F(CompactTest, AShardThatGoesBeforeItsTurnIsNamed) {
  for (const bool new_names : {false, true}) {
    auto c = open();
    bool removed = false;
    auto options = canonical([&](uint64_t, uint64_t) {
      if (!std::exchange(removed, true)) std::filesystem::rename(shard(3), dir / "aside");
      return true;
    });
    options.new_names = new_names;
    const auto gone = c->compact(options);
    EXPECT_TRUE(fails_with(Status::shard_missing, gone));
    EXPECT_EQ(gone.error().shard, 3u);
    EXPECT_THAT(gone.error().message, HasSubstr(in_quotes(shard(3))));
    std::filesystem::rename(dir / "aside", shard(3));
  }
}

TEST_F(CompactTest, AShardThatIsBrokenBeforeItsTurnIsNamed) {
  bool broken = false;
  const auto done = open()->compact(canonical([&](uint64_t, uint64_t) {
    if (!std::exchange(broken, true)) std::filesystem::resize_file(shard(3), 50);
    return true;
  }));
  EXPECT_TRUE(fails_with(Status::header_truncated, done));
  EXPECT_THAT(done.error().message, HasSubstr(in_quotes(shard(3))));
}

TEST_F(CompactTest, ProgressGoesFromTheFirstByteOfAllShardsToTheLast) {
  for (const bool new_names : {false, true}) {
    ToldProgress told;
    auto options = canonical(told.progress());
    options.new_names = new_names;
    ASSERT_TRUE(is_ok(open()->compact(options)));
    told.expect_one_count(size_t{shards} * bytes);
  }
}

}  // namespace
}  // namespace st::store
