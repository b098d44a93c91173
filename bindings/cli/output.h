// What a command writes, buffered, with every write checked: a full disk or a
// reader that left is an exit code, never silence.
#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "system.h"

namespace stctl {

// Standard output could not be written. A reader that left (EPIPE) knows why, so
// main.cpp says nothing about it.
struct OutputFailure {
  int os_errno;
};

class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}
  virtual ~Output() = default;
  Output(const Output &) = delete;
  Output &operator=(const Output &) = delete;

  void write(std::string_view bytes);
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args &&...args) {
    write(fmt::format(format, std::forward<Args>(args)...));
  }
  void flush();
  void close();  // flush, and see what the filesystem says at last

  // Drops what no reader has seen. False if some has been written already.
  bool discard();

 protected:
  [[noreturn]] virtual void fail(int err) { throw OutputFailure{err}; }
  // write(2), for a file or a pipe that may be full for ever.
  virtual ssize_t write_some(const char *bytes, size_t n);
  int fd_;

 private:
  void write_through(const char *bytes, size_t n);
  std::string buffer_;
  bool written_ = false;
};

// A file to be created or replaced: written beside it without a name, or else under another, and
// named by commit(), so that a failure leaves no half file. What is no plain file (/dev/null, a pipe)
// is written to directly, and so is what a descriptor has open (/dev/stdout). Its folder is found once.
class OutputFile : public Output {
 public:
  explicit OutputFile(const std::string &path);
  ~OutputFile() override;
  void commit();
  bool goes_to_terminal() const;
  bool goes_to(int fd) const;  // to the same file, pipe or device

 private:
  bool create(bool replaces);
  void drop();
  void sync();
  [[noreturn]] void fail(int err) override;
  ssize_t write_some(const char *bytes, size_t n) override;
  std::string path_;       // as given
  Entry target_;           // of what find_target() has
  bool is_new_ = false;    // else written directly
  std::string temporary_;  // "" while a new one has no name, and once it is committed
};

// One line on standard error: "stctl: …". There is nobody to tell if that fails.
void say(std::string_view sentence);

// Does what is written to `path` go to an open descriptor, a pipe or a device, and not to a new file of that name? "-"
// is standard output. Failure if it goes to what can't be written, as a descriptor of another process has it.
bool is_stream(const std::string &path);

// Where a file of that name is written: links at its end are followed, also one that leads to nothing yet.
std::string target_of(const std::string &path);

// True if both paths name the same existing file.
bool same_file(const std::string &a, const std::string &b);

}  // namespace stctl
