#include "leak_check.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "sanitizers.h"
#ifdef ST_UNDER_ASAN
#include <sanitizer/allocator_interface.h>
#include <sanitizer/lsan_interface.h>
#endif

namespace st::testing {
namespace {

namespace fs = std::filesystem;

// Without the descriptor that looking takes itself, which is closed by the time its link is read.
std::vector<std::string> open_descriptors() {
  std::vector<std::string> numbers, all;
  std::error_code gone;
  for (const auto &entry : fs::directory_iterator("/proc/self/fd", gone)) numbers.push_back(entry.path().filename());
  for (const std::string &number : numbers) {
    const fs::path target = fs::read_symlink("/proc/self/fd/" + number, gone);
    if (!gone) all.push_back("descriptor " + number + ", " + target.string());
  }
  return all;
}

// Only plain files that tests make: programs and libraries may be loaded at any time.
std::vector<std::string> mapped_models() {
  std::vector<std::string> all;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(".safetensors") != std::string::npos) all.push_back("mapping " + line);
  return all;
}

std::vector<std::string> scratch_folders() {
  std::vector<std::string> all;
  std::error_code gone;
  for (const fs::path &where : {fs::temp_directory_path(), fs::path("/dev/shm")})
    for (const auto &entry : fs::directory_iterator(where, gone)) {
      const std::string name = entry.path().filename();
      const bool ours = name.starts_with("libst-unit-") || name.starts_with("libst-arena-");
      // Other programs of this suite run beside this one, and have folders of their own.
      if (ours && name.find("-" + std::to_string(::getpid()) + "-") != std::string::npos)
        all.push_back("folder " + entry.path().string());
    }
  return all;
}

bool has_children() {
  siginfo_t ignored;
  return ::waitid(P_ALL, 0, &ignored, WEXITED | WNOHANG | WNOWAIT) == 0;
}

void append_new(std::string &out, const std::vector<std::string> &before, const std::vector<std::string> &after) {
  std::vector<std::string> more;
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(), std::back_inserter(more));
  for (const std::string &line : more) out += line + "\n";
}

class LeakCheck : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo &) override {
    before_ = Belongings::now();
#ifdef ST_UNDER_ASAN
    allocated_before_ = __sanitizer_get_current_allocated_bytes();
#endif
  }

  void OnTestEnd(const ::testing::TestInfo &) override {
    // A thread that was joined, or a ring's worker, is in /proc for a moment more.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    std::string left = Belongings::now().more_than(before_);
    while (!left.empty() && std::chrono::steady_clock::now() < deadline) {
      ::usleep(1000);
      left = Belongings::now().more_than(before_);
    }
    if (!left.empty()) ADD_FAILURE() << "the test leaves behind:\n" << left;
#ifdef ST_UNDER_ASAN
    // A look at all memory takes longer than most tests, and finds nothing where no more is allocated than before.
    // Should a test free as much of older memory as it leaves, the look at the program's end tells.
    if (__sanitizer_get_current_allocated_bytes() <= allocated_before_) return;
    if (__lsan_do_recoverable_leak_check() != 0) ADD_FAILURE() << "the test leaves memory behind; see above";
#endif
  }

  Belongings before_;
#ifdef ST_UNDER_ASAN
  size_t allocated_before_ = 0;
#endif
};

// GoogleTest keeps the listener, and asks it before its printer at a test's end.
[[maybe_unused]] const bool is_listening = [] {
#ifdef ST_UNDER_TSAN
  std::thread([] {}).join();  // with the first of ours comes one of ThreadSanitizer's own, which stays
#endif
  ::testing::UnitTest::GetInstance()->listeners().Append(new LeakCheck);
  return true;
}();

}  // namespace

Belongings Belongings::now() {
  Belongings has{open_descriptors(), mapped_models(), scratch_folders()};
  for (auto *list : {&has.descriptors, &has.mappings, &has.folders}) std::sort(list->begin(), list->end());
  std::error_code gone;
  has.threads = static_cast<size_t>(std::distance(fs::directory_iterator("/proc/self/task", gone), {}));
  has.children = has_children();
  return has;
}

std::string Belongings::more_than(const Belongings &before) const {
  std::string out;
  append_new(out, before.descriptors, descriptors);
  append_new(out, before.mappings, mappings);
  append_new(out, before.folders, folders);
  if (threads > before.threads) out += std::to_string(threads - before.threads) + " threads\n";
  if (children && !before.children) out += "a child process that nobody waited for\n";
  return out;
}

}  // namespace st::testing
