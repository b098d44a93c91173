// Mappings: the two kinds of a file, and memory without one.
#include <cstring>
#include <future>

#include "fault_env.h"
#include "os/mapping.h"
#include "os/writable_mappings.h"
#include "test_files.h"

namespace st::os {
namespace {

using testing::Call;
using namespace testing;

class MappingTest : public ::testing::Test {
 protected:
  MappingTest() {
    testing::put_bytes(path, bytes);
    auto opened = File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
    EXPECT_TRUE(is_ok(opened));
    file = std::move(*opened);
  }
  long calls_of(Call call) const { return std::count(env.calls.begin(), env.calls.end(), call); }

  TempDir dir;
  const std::string path = dir / "f", bytes = testing::pattern(20000, 1);
  FaultEnv env{Env::posix()};
  File file;
};

TEST_F(MappingTest, EveryKindShowsTheBytes) {
  for (MapKind kind : {MapKind::shared, MapKind::private_copy, MapKind::copy_on_write}) {
    auto m = Mapping::of_file(file, bytes.size(), kind);
    ASSERT_TRUE(is_ok(m));
    EXPECT_EQ(std::memcmp(m->data(), bytes.data(), bytes.size()), 0);
    EXPECT_EQ(m->size(), bytes.size());
    EXPECT_GT(m->resident(), 0u);
    EXPECT_LE(m->resident(), bytes.size());
  }
}

TEST_F(MappingTest, ASharedOneShowsWhatOthersWriteInPlace) {
  auto m = Mapping::of_file(file, bytes.size(), MapKind::shared);
  ASSERT_TRUE(is_ok(m));
  testing::poke(path, 12345, "NEW");
  EXPECT_EQ(std::memcmp(m->data() + 12345, "NEW", 3), 0);
}

TEST_F(MappingTest, APrivateOneShowsItOnceDropped) {
  auto m = Mapping::of_file(file, bytes.size(), MapKind::private_copy);
  ASSERT_TRUE(is_ok(m));
  ASSERT_EQ(std::memcmp(m->data(), bytes.data(), bytes.size()), 0);
  testing::poke(path, 12345, "NEW");
  m->drop(12345, 3);
  EXPECT_EQ(std::memcmp(m->data() + 12345, "NEW", 3), 0);
  EXPECT_EQ(std::memcmp(m->data(), bytes.data(), 12345), 0);
  m->drop(0, 0);
}

TEST_F(MappingTest, WhatIsWrittenCopyOnWriteIsCountedAndNotInTheFile) {
  auto m = Mapping::of_file(file, bytes.size(), MapKind::copy_on_write);
  ASSERT_TRUE(is_ok(m));
  EXPECT_EQ(m->private_dirty(), 0u);
  const_cast<std::byte *>(m->data())[8192] = std::byte{1};
  EXPECT_EQ(m->private_dirty(), 4096u);
  EXPECT_TRUE(testing::same_bytes(testing::bytes_of(path), bytes));
  env.before = [](Call call) { return call == Call::openat ? -EACCES : 0; };
  EXPECT_EQ(m->private_dirty(), 0u);  // not told
}

// Where that is much it takes long. The list of such mappings is free meanwhile, also for a fork.
TEST_F(MappingTest, OthersComeAndGoWhileBytesUnderChangeBecomeItsOwn) {
  BytesUnderChange change(file);
  ASSERT_TRUE(is_ok(change.keep(0, bytes.size())));
  std::future<bool> others;
  bool in_time = false;
  env.before = [&](Call call) {
    if (call != Call::madvise) return 0;
    others = std::async(std::launch::async, [&] {
      auto same = File::open(Env::posix(), AT_FDCWD, path, O_RDONLY, 0, path);
      return same && Mapping::of_file(*same, bytes.size(), MapKind::copy_on_write).has_value();
    });
    in_time = others.wait_for(std::chrono::seconds(60)) == std::future_status::ready;  // else it hangs
    return 0;
  };
  ASSERT_TRUE(is_ok(Mapping::of_file(file, bytes.size(), MapKind::copy_on_write)));
  ASSERT_TRUE(others.valid());
  EXPECT_TRUE(in_time);
  EXPECT_TRUE(others.get());
}

TEST_F(MappingTest, OneThatCannotOwnBytesUnderChangeIsForgotten) {
  BytesUnderChange change(file);
  ASSERT_TRUE(is_ok(change.keep(0, 1)));
  env.before = [](Call call) { return call == Call::madvise ? -ENOMEM : 0; };
  ASSERT_TRUE(fails_with(Status::nomem, Mapping::of_file(file, bytes.size(), MapKind::copy_on_write)));
  EXPECT_TRUE(is_ok(change.keep(1, 1)));
  EXPECT_EQ(calls_of(Call::madvise), 1);
}

TEST_F(MappingTest, IsUnmappedOnce) {
  {
    auto m = Mapping::of_file(file, bytes.size(), MapKind::shared);
    Mapping moved = std::move(*m);
    Mapping other;
    other = std::move(moved);
    EXPECT_EQ(std::memcmp(other.data(), bytes.data(), bytes.size()), 0);
    EXPECT_EQ(m->data(), nullptr);
  }
  EXPECT_EQ(calls_of(Call::munmap), 1);
}

TEST_F(MappingTest, OutlivesItsDescriptor) {
  auto m = Mapping::of_file(file, bytes.size(), MapKind::shared);
  file.close();
  EXPECT_EQ(std::memcmp(m->data(), bytes.data(), bytes.size()), 0);
}

TEST_F(MappingTest, RefusalsKeepTheErrno) {
  env.before = [](Call call) { return call == Call::mmap ? -ENODEV : 0; };
  auto m = Mapping::of_file(file, bytes.size(), MapKind::shared);
  ASSERT_TRUE(fails_with(Status::io, m));
  EXPECT_EQ(m.error().os_errno, ENODEV);
}

TEST_F(MappingTest, WithoutMincoreNothingCountsAsResident) {
  auto m = Mapping::of_file(file, bytes.size(), MapKind::shared);
  env.before = [](Call call) { return call == Call::mincore ? -ENOSYS : 0; };
  EXPECT_EQ(m->resident(), 0u);
  EXPECT_EQ(Mapping().resident(), 0u);
}

}  // namespace
}  // namespace st::os
