// A disk that takes its time: what is on its way to it is waited for slice by slice, and the call can be stopped
// between any two of them. And what a slice tells that the disk did not take, which no later sync would tell again.
#include <linux/falloc.h>

#include <set>

#include "file/writer.h"
#include "journal/recover.h"
#include "located.h"
#include "newfile/units.h"
#include "sharing_env.h"
#include "store_scene.h"

namespace st::store::slow_disk {
namespace {

using namespace testing;
namespace fs = std::filesystem;

constexpr size_t size = size_t{8} << 20;

class SlowDisk : public SharingEnv {
 public:
  using SharingEnv::SharingEnv;
  int sync_range(int, uint64_t, uint64_t) override { return 0; }
  int wait_range(int fd, uint64_t, uint64_t) override {
    if (unknown) return -ENOSYS;
    waited_ms += slice_ms;
    if (++waits != failing_wait) return 0;
    failed_in_place = is_data(fd);
    return -EIO;
  }
  ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override {
    if (n >= write::write_chunk_bytes / 2) ++reads;
    return SharingEnv::pread(fd, buffer, n, offset);
  }
  int extents(int, struct fiemap *) override { return -EOPNOTSUPP; }
  int fallocate(int fd, int mode, uint64_t offset, uint64_t n) override {
    if (!(mode & FALLOC_FL_UNSHARE_RANGE)) return SharingEnv::fallocate(fd, mode, offset, n);
    ++unshared;
    EXPECT_LE(n, size_t{2} << 20);
    return 0;
  }
  uint64_t monotonic_ms() override { return SharingEnv::monotonic_ms() + waited_ms; }
  int fsync(int) override { return 0; }
  int fdatasync(int) override { return 0; }
  uint64_t slice_ms = 100, waited_ms = 0;
  size_t waits = 0, failing_wait = 0;
  size_t reads = 0;  // of many bytes
  size_t unshared = 0;
  bool unknown = false, failed_in_place = false;
};

// Some way to write 8 MiB.
struct Way {
  const char *name;
  std::string_view journal;  // empty where none is written
  std::function<Result<void>(SlowDisk &, const std::string &path, const std::string &bytes, Progress)> run;
  bool in_place;
};

Result<void> save(os::Env &disk, const std::string &path, const std::string &bytes, size_t tensors, Progress progress) {
  std::vector<write::NewTensor> all;
  const size_t n = bytes.size() / tensors;
  for (size_t i = 0; i < tensors; ++i) all.push_back({std::to_string(i), Dtype::U8, {n}, n, bytes.data() + i * n});
  write::SaveOptions options;
  options.progress = std::move(progress);
  return write::save(disk, path, std::move(all), {}, std::move(options));
}

Result<void> change(os::Env &disk, const std::string &path, const std::string &bytes, bool publish, bool copy,
                    bool metadata, Progress progress) {
  OpenOptions options;
  options.writable = true;
  auto c = DataFile::open(disk, path, std::move(options));
  if (!c) return Failure(std::move(c.error()));
  TransactionOptions change;
  change.progress = std::move(progress);
  change.publish = publish;
  change.copy = copy;
  auto t = Transaction::begin(**c, std::move(change));
  if (!t) return Failure(std::move(t.error()));
  const uint64_t shape[] = {bytes.size()};
  const NewBytes value{static_cast<uint32_t>(Dtype::U8), shape, bytes.data(), bytes.size()};
  if (auto staged = (*t)->update("big", value); !staged) return staged;
  if (metadata)
    if (auto staged = (*t)->set_metadata("k", "v"); !staged) return staged;
  return (*t)->commit();
}

const Way ways[] = {
    {"save", {}, [](auto &e, auto &p, auto &b, auto f) { return save(e, p, b, 1, f); }, false},
    {"save_of_many", {}, [](auto &e, auto &p, auto &b, auto f) { return save(e, p, b, 64, f); }, false},
    {"publish", "redo", [](auto &e, auto &p, auto &b, auto f) { return change(e, p, b, true, false, false, f); },
     false},
    {"publish_of_copies", "redo",
     [](auto &e, auto &p, auto &b, auto f) { return change(e, p, b, true, true, false, f); }, false},
    {"publish_of_noted", "undo",
     [](auto &e, auto &p, auto &b, auto f) { return change(e, p, b, false, false, true, f); }, false},
    {"redo", "redo", [](auto &e, auto &p, auto &b, auto f) { return change(e, p, b, false, false, false, f); }, true},
    {"undo", "undo", [](auto &e, auto &p, auto &b, auto f) { return change(e, p, b, false, false, false, f); }, true},
};

class SlowDiskTest : public ::testing::TestWithParam<size_t> {
 protected:
  SlowDiskTest() {
    disk.journal = way.journal.data();
    put_bytes(path, old);
  }
  size_t files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(dir.path()), {})); }

  const Way &way = ways[GetParam()];
  testing::TempDir dir;
  const std::string path = dir / "model.safetensors";
  static inline const std::string old = testing::file_of({testing::u8_tensor("big", size, 1)});
  static inline const std::string bytes = pattern(size, 2);
  SlowDisk disk{os::Env::posix()};
};

TEST_P(SlowDiskTest, ACallIsStoppedBetweenAnyTwoSlices) {
  size_t stopped = 0;
  for (size_t slices = 1;; ++slices) {
    disk.waits = 0;
    auto done = way.run(disk, path, bytes, [&](uint64_t now, uint64_t total) {
      EXPECT_LE(now, total);
      return disk.waits < slices;
    });
    if (done) break;
    ++stopped;
    ASSERT_TRUE(fails_with(Status::cancelled, done)) << slices;
    ASSERT_LE(disk.waits, slices + 1);
    ASSERT_TRUE(bytes_of(path) == old) << slices;
    ASSERT_EQ(files(), 1u) << slices;
  }
  EXPECT_GE(stopped, size_t{3});
  EXPECT_TRUE(bytes_of(path).ends_with(bytes));
}

// The same of what is read to be compared, and of blocks that get a copy of their own.
TEST_P(SlowDiskTest, ACallIsStoppedBetweenAnyTwoReads) {
  for (size_t SlowDisk::*steps : {&SlowDisk::reads, &SlowDisk::unshared}) {
    put_bytes(path, old);
    for (size_t most = 1;; ++most) {
      disk.*steps = 0;
      auto done = way.run(disk, path, bytes, [&](uint64_t, uint64_t) { return disk.*steps < most; });
      if (done) break;
      ASSERT_TRUE(fails_with(Status::cancelled, done)) << most;
      ASSERT_LE(disk.*steps, most + 1);
      ASSERT_TRUE(bytes_of(path) == old) << most;
      ASSERT_EQ(files(), 1u) << most;
    }
    EXPECT_TRUE(bytes_of(path).ends_with(bytes));
  }
}

// The kernel tells such a failure once.
TEST_P(SlowDiskTest, WhatASliceTellsIsTheSyncsFailure) {
  size_t failed = 0;
  for (disk.failing_wait = 1;; ++disk.failing_wait) {
    disk.waits = 0;
    auto done = way.run(disk, path, bytes, {});
    if (done) break;
    ++failed;
    ASSERT_TRUE(fails_with(disk.failed_in_place ? Status::needs_recovery : Status::io, done)) << disk.failing_wait;
    if (disk.failed_in_place) {
      ASSERT_TRUE(is_ok(write::recover(testing::located(disk, path), {}, {})));
    }
    ASSERT_TRUE(bytes_of(path) == old);
    ASSERT_EQ(files(), 1u);
  }
  EXPECT_GE(failed, size_t{3});
  EXPECT_EQ(disk.failed_in_place, way.in_place && way.journal == "undo");
  EXPECT_TRUE(bytes_of(path).ends_with(bytes));
}

// Some filesystems know no such call.
TEST_P(SlowDiskTest, WithoutSlicesTheSyncDoesItAll) {
  disk.unknown = true;
  ASSERT_TRUE(is_ok(way.run(disk, path, bytes, {})));
  EXPECT_TRUE(bytes_of(path).ends_with(bytes));
}

TEST_P(SlowDiskTest, AHandleGoesOnAfterACallThatWasStopped) {
  if (!way.in_place) return;
  OpenOptions options;
  options.writable = true;
  auto c = DataFile::open(disk, path, std::move(options));
  ASSERT_TRUE(is_ok(c));
  const uint64_t shape[] = {size};
  const NewBytes value{static_cast<uint32_t>(Dtype::U8), shape, bytes.data(), size};
  for (const bool stops : {true, false}) {
    bool committing = false;
    TransactionOptions change;
    if (stops) change.progress = [&](uint64_t, uint64_t) { return !committing || disk.waits < 3; };
    auto t = Transaction::begin(**c, std::move(change));
    ASSERT_TRUE(is_ok(t) && is_ok((*t)->update("big", value)));
    disk.waits = 0;
    committing = true;
    auto done = (*t)->commit();
    if (stops)
      ASSERT_TRUE(fails_with(Status::cancelled, done));
    else
      ASSERT_TRUE(is_ok(done));
  }
  EXPECT_TRUE(bytes_of(path).ends_with(bytes));
}

// What comes to be in it is not known, and its syncs will not tell.
TEST_P(SlowDiskTest, AJournalThatLostASliceIsNotUsedAgain) {
  if (way.journal != "redo" || !way.in_place) return;
  OpenOptions options;
  options.writable = true;
  auto c = DataFile::open(disk, path, std::move(options));
  ASSERT_TRUE(is_ok(c));
  const uint64_t shape[] = {size};
  const NewBytes value{static_cast<uint32_t>(Dtype::U8), shape, bytes.data(), size};
  std::set<fs::path> journals;
  for (const bool loses : {true, false, false}) {
    disk.waits = 0;
    disk.failing_wait = loses ? 1 : 0;
    auto t = Transaction::begin(**c, {});
    ASSERT_TRUE(is_ok(t));
    EXPECT_EQ((*t)->update("big", value).has_value(), !loses);
    for (const auto &entry : fs::directory_iterator(path + ".st-journal")) journals.insert(entry.path().filename());
    if (!loses) {
      EXPECT_TRUE(is_ok((*t)->commit()));
    }
  }
  EXPECT_EQ(journals.size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(All, SlowDiskTest, ::testing::Range(size_t{0}, std::size(ways)),
                         [](const auto &p) { return ways[p.param].name; });

TEST(SaveTest, TheWaitForAFileThatSomebodyChangesCanBeStopped) {
  const testing::TempDir dir;
  const std::string path = dir / "model.safetensors", old = testing::file_of({testing::u8_tensor("big", 100, 1)});
  put_bytes(path, old);
  testing::FaultEnv disk{os::Env::posix()};
  auto file = os::File::open(disk, AT_FDCWD, path, O_RDWR, 0, path);
  ASSERT_TRUE(is_ok(file));
  auto lock = os::RangeLock::acquire(*file, {os::whole_file(false)}, {});
  ASSERT_TRUE(is_ok(lock));
  const std::string bytes = pattern(100, 2);
  std::vector<write::NewTensor> all{{"big", Dtype::U8, {100}, 100, bytes.data()}};
  write::SaveOptions options;
  options.lock_timeout_ms = -1;
  size_t asked = 0;
  options.progress = [&](uint64_t, uint64_t) { return ++asked < 5; };
  EXPECT_TRUE(fails_with(Status::cancelled, write::save(disk, path, std::move(all), {}, std::move(options))));
  EXPECT_TRUE(bytes_of(path) == old);
}

}  // namespace
}  // namespace st::store::slow_disk
