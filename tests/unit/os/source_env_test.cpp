// A source behind the calls of a file.
#include "os/source_env.h"

#include <gtest/gtest.h>
#include <cerrno>
#include <cstring>
#include <future>
#include <thread>

#include "base/interrupt.h"

namespace st::os {
namespace {

class Letters final : public Source {
 public:
  Letters() : Source("letters", 26, 1) {}
  int read(std::span<const Range> ranges) override {
    for (const Range &r : ranges) {
      EXPECT_GT(r.nbytes, 0u);
      EXPECT_LE(r.offset + r.nbytes, 26u);
      for (uint64_t i = 0; i < r.nbytes; ++i) static_cast<char *>(r.to)[i] = static_cast<char>('a' + r.offset + i);
    }
    return 0;
  }
};

class SourceEnvTest : public ::testing::Test {
 protected:
  std::string pread(size_t n, uint64_t offset) {
    std::string out(n, '?');
    const ssize_t got = env.pread(fd, out.data(), n, offset);
    EXPECT_GE(got, 0);
    return out.substr(0, static_cast<size_t>(got));
  }
  SourceEnv env{std::make_unique<Letters>()};
  const int fd = env.openat(AT_FDCWD, "any", O_RDONLY, 0);
};

TEST_F(SourceEnvTest, ReadsEndWhereTheSourceDoes) {
  EXPECT_EQ(pread(3, 0), "abc");
  EXPECT_EQ(pread(10, 20), "uvwxyz");
  EXPECT_EQ(pread(10, 26), "");
  EXPECT_EQ(pread(10, UINT64_MAX), "");
  EXPECT_EQ(pread(0, 3), "");
  char first[2], nothing[1], rest[100];
  const struct iovec parts[] = {{first, 2}, {nothing, 0}, {rest, sizeof rest}};
  EXPECT_EQ(env.preadv(fd, parts, 3, 22), 4);
  EXPECT_EQ(std::string(first, 2) + std::string(rest, 2), "wxyz");
}

TEST_F(SourceEnvTest, IsAPlainFileOfItsSizeThatIsOnlyRead) {
  struct stat s;
  ASSERT_EQ(env.fstat(fd, &s), 0);
  EXPECT_TRUE(S_ISREG(s.st_mode));
  EXPECT_EQ(s.st_size, 26);
  EXPECT_EQ(env.openat(AT_FDCWD, "any", O_RDWR, 0), -EROFS);
  EXPECT_EQ(env.openat(AT_FDCWD, "any", O_RDONLY | O_DIRECTORY, 0), -ENOTDIR);
  EXPECT_EQ(env.openat_without_links(AT_FDCWD, "any", O_RDONLY | O_DIRECT), -EINVAL);
  EXPECT_EQ(env.pwrite(fd, "x", 1, 0), -EROFS);
  void *address = nullptr;
  EXPECT_EQ(env.mmap(26, PROT_READ, MAP_PRIVATE, fd, &address), -ENODEV);
  EXPECT_EQ(env.close(fd), 0);
}

// A source that takes one read at a time, and waits in it.
TEST(SourceWaitTest, OneThatWaitsForItsTurnHearsItsCaller) {
  std::promise<void> is_reading, goes_on;
  class Slow final : public Source {
   public:
    Slow(std::promise<void> &begun, std::promise<void> &end) : Source("slow", 10, 1), begun_(begun), end_(end) {}
    int read(std::span<const Range>) override {
      begun_.set_value();
      end_.get_future().wait();
      return 0;
    }

   private:
    std::promise<void> &begun_, &end_;
  };
  SourceEnv env(std::make_unique<Slow>(is_reading, goes_on));
  const int fd = env.openat(AT_FDCWD, "any", O_RDONLY, 0);
  std::thread first([&] {
    char byte;
    EXPECT_EQ(env.pread(fd, &byte, 1, 0), 1);
  });
  is_reading.get_future().wait();
  {
    const InterruptScope wants_no_more([]() -> Result<void> { return fail(Status::cancelled, "no more"); });
    char byte;
    EXPECT_EQ(env.pread(fd, &byte, 1, 0), -ECANCELED);
  }
  goes_on.set_value();
  first.join();
}

// A descriptor of the kernel's that strays here is not the source.
TEST_F(SourceEnvTest, KnowsItsOwnDescriptor) {
  char byte;
  struct stat s;
  EXPECT_EQ(env.pread(0, &byte, 1, 0), -EBADF);
  EXPECT_EQ(env.fstat(0, &s), -EBADF);
  EXPECT_EQ(env.close(0), -EBADF);
}

}  // namespace
}  // namespace st::os
