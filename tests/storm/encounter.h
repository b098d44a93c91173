// What the tests of encounters share: workers that are threads or processes and
// go step by step, a file to fight over, and locks as another worker holds them.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <st/st.h>
#include <sys/types.h>

#include <functional>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tensor_file.h"

namespace st::testing {

// In a worker: ends it, and fails its test.
#define DEMAND(condition)                                                               \
  do {                                                                                  \
    if (!(condition))                                                                   \
      throw std::runtime_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) + \
                               ": " #condition "; last error: " + st_last_error());     \
  } while (false)
#define DEMAND_OK(call) DEMAND((call) == ST_OK)

#define EXPECT_OK(call) EXPECT_EQ((call), ST_OK) << st_last_error()
#define ASSERT_OK(call) ASSERT_EQ((call), ST_OK) << st_last_error()

// One end of a talk in single letters. Nobody waits for ever: hear() gives up
// after five minutes, with 0, which is what a killed peer says too.
class Line {
 public:
  Line(int in, int out) : in_(in), out_(out) {}
  void tell(char letter);
  char hear();

 private:
  int in_, out_;
};

class Worker {
 public:
  enum Kind { thread, process };
  // Begins at once. `work` talks to the test through its line.
  Worker(Kind kind, std::function<void(Line &)> work);
  ~Worker();  // joins, or kills what was not joined
  Worker(const Worker &) = delete;

  void tell(char letter) { line_.tell(letter); }
  char hear() { return line_.hear(); }
  pid_t pid() const { return pid_; }
  // Whether it ended well, by itself.
  bool join();
  void kill();  // a process: SIGKILL, and gone when this returns

 private:
  Line line_{-1, -1};
  int fds_[4];
  pid_t pid_ = -1;
  std::thread thread_;
  std::string failure_;  // of a thread
  bool joined_ = false;
};

// A folder with one file, gone with the test. In memory where there is such a
// filesystem: the tests are about waiting, not about the disk.
class Arena : public ::testing::Test {
 protected:
  Arena() : Arena({4099, 65537, 509, 300007, 8, 4096, 20011, 1048583}) {}
  explicit Arena(std::vector<uint64_t> sizes, bool on_disk = false);
  ~Arena() override;

  FileHandle open(uint32_t flags = ST_OPEN_READ_WRITE, int32_t lock_timeout_ms = ST_TIMEOUT_DEFAULT) const;
  st_status update(st_file *file, uint32_t tensor, uint64_t version) const;
  // Staged, with the bytes copied.
  st_txn *begin(st_file *file, std::vector<uint32_t> tensors, uint64_t version,
                int32_t lock_timeout_ms = ST_TIMEOUT_DEFAULT) const;
  // A commit of `tensors` that stops with its locks held: says 'i' (inside), waits for
  // 'g', says 'd' (done).
  void commit_stopping(Line &line, std::vector<uint32_t> tensors, uint64_t version) const;

  using Versions = std::vector<std::optional<uint64_t>>;
  Versions versions() const { return layout_.versions_in(path_); }  // past libst
  std::vector<std::string> journals() const;
  bool journal_folder_exists() const { return std::filesystem::exists(path_ + ".st-journal"); }

  const Layout layout_;
  std::string folder_, path_;
};

// A range of the file locked by hand, on a description of its own.
class Hold {
 public:
  Hold(const std::string &path, uint64_t begin, uint64_t length, short type = F_WRLCK);  // had() tells whether
  Hold(const std::string &path, const Layout &layout, uint32_t tensor)
      : Hold(path, layout.offset(tensor), layout.size(tensor)) {}
  ~Hold() { release(); }
  Hold(const Hold &) = delete;
  bool had() const { return had_; }
  void release();

 private:
  int fd_;
  bool had_;
};

st_error_info last_error();

bool has_open(pid_t process, const std::string &path);

// Waits until it holds; five minutes at most.
bool eventually(const std::function<bool()> &condition);

}  // namespace st::testing
