// What Env on Linux does beyond its system calls: it counts processors, and knows of forks.
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>

#include "os/env.h"
#include "os/fork.h"
#include "test_files.h"

namespace {

std::atomic<size_t> possible_processors = 0;  // of a machine that is not this one; 0: of this one

}  // namespace

// In the place of the C library's: a kernel that may have many processors, and gives this process the last three.
extern "C" int sched_getaffinity(pid_t process, size_t n,
                                 cpu_set_t *set) noexcept(noexcept(::sched_getaffinity(0, 0, nullptr))) {
  const size_t possible = possible_processors;
  if (possible == 0) {
    const long told = ::syscall(SYS_sched_getaffinity, process, n, set);
    if (told < 0) return -1;
    std::memset(reinterpret_cast<char *>(set) + told, 0, n - static_cast<size_t>(told));
    return 0;
  }
  if (n < possible / CHAR_BIT) return errno = EINVAL, -1;
  std::memset(set, 0, n);
  reinterpret_cast<unsigned char *>(set)[possible / CHAR_BIT - 1] = 7;
  return 0;
}

namespace st::os {
namespace {

// In a process of its own.
template <class Check>
bool holds_in_child(Check check) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(check() ? 0 : 1);
  int status = 1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

TEST(PosixEnv, CountsTheProcessorsOfLargeMachines) {
  EXPECT_GE(Env::posix().cpus(), 1u);
  for (const size_t possible : {8, 1024, 1032, 8192})
    EXPECT_TRUE(holds_in_child([&] {
      possible_processors = possible;
      return Env::posix().cpus() == 3;
    })) << possible;
}

// As a sandbox may refuse that call.
TEST(PosixEnv, CountsAllProcessorsWhereItIsNotToldWhichAreItsOwn) {
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  EXPECT_GE(Env::posix().cpus(), 1u);
  EXPECT_TRUE(holds_in_child([&] {
    possible_processors = SIZE_MAX;
    return Env::posix().cpus() == static_cast<unsigned>(online);
  }));
}

TEST(PosixEnv, TellsWhenAFileWasMadeWhateverIsDoneToIt) {
  Env &env = Env::posix();
  const testing::TempDir dir;
  const std::string path = dir / "f";
  testing::put_bytes(path, "bytes");
  const int64_t birth = env.birth_time(AT_FDCWD, path.c_str());
  testing::put_bytes(path, "other");
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(env.birth_time(AT_FDCWD, path.c_str()), birth);
  const int fd = ::open(path.c_str(), O_RDONLY);
  EXPECT_EQ(env.birth_time(fd, ""), birth);
  ::close(fd);
  EXPECT_EQ(env.birth_time(AT_FDCWD, (dir / "none").c_str()), -ENOENT);
}

// A fork may come before the close, and then a child has a copy of the descriptor.
TEST(Forks, WhatIsAboutToBeClosedHoldsNoLock) {
  testing::TempDir dir;
  const std::string path = dir / "f";
  testing::put_bytes(path, "x");
  EXPECT_TRUE(holds_in_child([&] {
    Forks forks;
    const int closing = ::open(path.c_str(), O_RDWR | O_CLOEXEC), other = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct flock range = {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    range.l_start = 5;
    range.l_len = 1;
    const auto others = [&] { return ::fcntl(other, F_OFD_SETLK, &range); };
    const bool is_held = forks.set_lock(closing, &range) == 0 && others() < 0;
    forks.forget(closing);
    return is_held && others() == 0;
  }));
}

}  // namespace
}  // namespace st::os
