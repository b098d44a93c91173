// The check that runs after every test sees what it should, or its silence would mean nothing.
#include "leak_check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <optional>
#include <thread>

#include "test_files.h"

namespace st {
namespace {

using namespace testing;

bool tells(const Belongings &before, std::string_view what) {
  return Belongings::now().more_than(before).find(what) != std::string::npos;
}

TEST(LeakCheck, TellsOfAnOpenDescriptorByItsFile) {
  const Belongings before = Belongings::now();
  const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_TRUE(tells(before, "/dev/null"));
  ::close(fd);
  EXPECT_EQ(Belongings::now().more_than(before), "");
}

TEST(LeakCheck, TellsOfAMappingOfAModel) {
  const TempDir dir;
  const std::string path = dir / "model.safetensors";
  testing::put_bytes(path, "bytes");
  const Belongings before = Belongings::now();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void *address = ::mmap(nullptr, 5, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  EXPECT_TRUE(tells(before, "mapping "));
  ::munmap(address, 5);
  EXPECT_EQ(Belongings::now().more_than(before), "");
}

TEST(LeakCheck, TellsOfAScratchFolder) {
  const Belongings before = Belongings::now();
  std::optional<TempDir> dir(std::in_place);
  EXPECT_TRUE(tells(before, dir->path()));
  dir.reset();
  EXPECT_EQ(Belongings::now().more_than(before), "");
}

TEST(LeakCheck, TellsOfAThread) {
  const Belongings before = Belongings::now();
  std::atomic<bool> may_end = false;
  std::thread thread([&] { may_end.wait(false); });
  EXPECT_TRUE(tells(before, "1 threads"));
  may_end = true;
  may_end.notify_one();
  thread.join();
}

TEST(LeakCheck, TellsOfAChildThatNobodyWaitedFor) {
  const Belongings before = Belongings::now();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  EXPECT_TRUE(tells(before, "child process"));
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(Belongings::now().more_than(before), "");
}

}  // namespace
}  // namespace st
