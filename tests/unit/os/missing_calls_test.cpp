// What is told of the system calls that a kernel or a sandbox lacks.
#include "os/missing_calls.h"

#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <regex>

#include "fault_env.h"
#include "test_files.h"

namespace st::os {
namespace {

using testing::Call;
using testing::FaultEnv;

// Answers the calls that may be missing as `answer` says.
class Kernel : public FaultEnv {
 public:
  explicit Kernel(int answer) : FaultEnv(Env::posix()), answer_(answer) {
    const auto missing = [](Call c) {
      return c == Call::fstat_synced || c == Call::random || c == Call::lock || c == Call::copy_range ||
             c == Call::copy_memory || c == Call::madvise || c == Call::mincore || c == Call::sync_range;
    };
    before = [this, missing](Call c) { return missing(c) ? answer_ : 0; };
  }
  int openat_without_links(int, const char *, int) override { return answer_; }
  int openat(int dir, const char *path, int flags, mode_t mode) override {
    return std::string_view(path).starts_with("/proc") ? -ENOENT : FaultEnv::openat(dir, path, flags, mode);
  }

 private:
  const int answer_;
};

std::map<std::string, bool> told(Env &env) {
  std::map<std::string, bool> there;
  for (const OptionalCall &call : optional_calls(env)) there.emplace(call.name, call.there);
  return there;
}

TEST(MissingCallsTest, ThisKernelHasWhatIsOlderThanDebian12) {
  // Many sandboxes forbid the one, and valgrind lacks the other.
  for (const auto &[name, there] : told(Env::posix()))
    EXPECT_TRUE(there || name == "process_vm_readv" || name == "openat2") << name;
}

TEST(MissingCallsTest, AKernelOrASandboxWithoutThemIsTold) {
  for (int error : {-ENOSYS, -EPERM, -EINVAL}) {
    Kernel kernel(error);
    const auto there = told(kernel);
    EXPECT_EQ(there.size(), 10u);
    for (const auto &[name, is] : there) EXPECT_FALSE(is) << name << " and " << error;
  }
}

TEST(MissingCallsTest, NothingStaysOpenOrMapped) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator open("/proc/self/fd"), end;
    return std::distance(open, end);
  };
  const auto before = open_files();
  FaultEnv env{Env::posix()};
  static_cast<void>(told(env));
  static_cast<void>(platform(env));
  const auto made = [&](Call c) { return std::count(env.calls.begin(), env.calls.end(), c); };
  EXPECT_EQ(made(Call::mmap), 1);
  EXPECT_EQ(made(Call::munmap), 1);
  EXPECT_EQ(open_files(), before);
}

TEST(MissingCallsTest, ThePlatformHasANumberWhereProcTellsIt) {
  const auto matches = [](const std::string &said, const char *wanted) {
    return std::regex_match(said, std::regex(wanted));
  };
  EXPECT_TRUE(matches(platform(Env::posix()), "Linux [0-9]\\S* \\w+, .*libc.*")) << platform(Env::posix());
  Kernel without_proc(-ENOSYS);
  EXPECT_TRUE(matches(platform(without_proc), "Linux \\w+, .*libc.*")) << platform(without_proc);
}

}  // namespace
}  // namespace st::os
