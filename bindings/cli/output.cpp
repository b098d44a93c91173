#include "output.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "failure.h"
#include "interrupt.h"
#include "system.h"
#include "text.h"

namespace stctl {
namespace {

constexpr size_t buffer_bytes = 64 * 1024;
constexpr size_t longest_name = 255;

// A number of the process would be that of another, where each container counts its own. A long name is cut, between
// two characters.
std::string temporary_for(const Entry &target) {
  const std::string &name = target.name;
  const std::string end = fmt::format(".{:08x}.part", std::random_device()());
  size_t stay = std::min(name.size(), longest_name - end.size());
  while (stay < name.size() && stay > 0 && (name[stay] & 0xc0) == 0x80) --stay;
  return name.substr(0, stay) + end;
}

}  // namespace

void Output::write(std::string_view bytes) {
  if (buffer_.size() + bytes.size() > buffer_bytes) flush();
  if (bytes.size() >= buffer_bytes) {
    write_through(bytes.data(), bytes.size());
  } else {
    buffer_ += bytes;
  }
}

void Output::flush() {
  write_through(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void Output::write_through(const char *bytes, size_t n) {
  while (n > 0) {
    const ssize_t done = write_some(bytes, n);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail(errno);
    written_ = true;
    bytes += done;
    n -= static_cast<size_t>(done);
  }
}

ssize_t Output::write_some(const char *bytes, size_t n) {
  const Blocking guard;
  return ::write(fd_, bytes, n);
}

void Output::close() {
  flush();
  const int fd = fd_;
  fd_ = -1;
  // Linux has closed it even after EINTR.
  if (::close(fd) != 0 && errno != EINTR) fail(errno);
}

bool Output::discard() {
  buffer_.clear();
  return !written_;
}

OutputFile::OutputFile(const std::string &path) : Output(-1), path_(path) {
  Target target;
  if (!find_target(path, &target)) fail(errno);
  fd_ = target.fd;
  if (fd_ >= 0) return;
  struct stat st = {};
  const bool exists = stat(path.c_str(), &st) == 0;
  if (exists && !S_ISREG(st.st_mode)) {
    const Blocking guard;  // a pipe is waited for until somebody reads it
    fd_ = open_to_write(path);
    if (fd_ < 0) fail(errno);
    return;
  }
  is_new_ = true;
  if (!find_entry(target.path, &target_)) fail(errno);
  if (create(exists)) return;
  const int err = errno;  // no destructor runs for what a constructor left
  drop();
  fail(err);
}

bool OutputFile::create(bool replaces) {
  fd_ = create_unnamed(target_);
  if (fd_ < 0) {
    const std::string name = temporary_for(target_);
    fd_ = create_file(target_, name);
    if (fd_ < 0) return false;
    temporary_ = name;
  }
  return !replaces || hand_on_rights(target_.path + target_.name, fd_) == 0;
}

void OutputFile::drop() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) remove_file(target_, temporary_);
  close_entry(&target_);
}

OutputFile::~OutputFile() {
  drop();
}

// Else a crash of the system could leave an empty file under the name.
void OutputFile::sync() {
  while (sync_file(fd_) != 0) {
    if (errno != EINTR) fail(errno);
    throw_if_interrupted();
  }
}

void OutputFile::commit() {
  flush();
  if (is_new_) sync();
  if (is_new_ && temporary_.empty()) {  // which no name was given yet
    std::string name = target_.name;    // if nothing has it: then a kill leaves no other
    if (name_file(fd_, target_, name) != 0) {
      if (errno != EEXIST) fail(errno);
      name = temporary_for(target_);
      if (name_file(fd_, target_, name) != 0) fail(errno);
    }
    temporary_ = name;
  }
  close();
  if (!is_new_) return;
  if (temporary_ != target_.name && rename_over(target_, temporary_, target_.name) != 0) fail(errno);
  temporary_.clear();
}

bool OutputFile::goes_to_terminal() const {
  return is_terminal(fd_);
}

bool OutputFile::goes_to(int fd) const {
  struct stat mine = {}, other = {};
  return fstat(fd_, &mine) == 0 && fstat(fd, &other) == 0 && mine.st_dev == other.st_dev && mine.st_ino == other.st_ino;
}

ssize_t OutputFile::write_some(const char *bytes, size_t n) {
  if (!is_new_) return Output::write_some(bytes, n);
  throw_if_interrupted();  // and so to the destructor, which removes the temporary file
  return ::write(fd_, bytes, n);
}

void OutputFile::fail(int err) {
  if (goes_to(STDOUT_FILENO)) throw OutputFailure{err};
  const Failure failure = Failure::of_errno(err, "write", path_);
  throw is_new_ ? failure.with_nothing_changed() : failure;
}

void say(std::string_view sentence) {
  const std::string line = fmt::format("stctl: {}\n", harmless(sentence));
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

bool is_stream(const std::string &path) {
  if (path == "-") return true;
  Target target;
  if (!find_target(path, &target)) throw Failure::of_errno(errno, "write", path);
  if (target.fd >= 0) {
    ::close(target.fd);
    return true;
  }
  struct stat st = {};
  return stat(path.c_str(), &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode));
}

std::string target_of(const std::string &path) {
  Target target;
  if (!find_target(path, &target)) throw Failure::of_errno(errno, "write", path);
  if (target.fd >= 0) ::close(target.fd);
  return target.fd >= 0 ? path : target.path;
}

bool same_file(const std::string &a, const std::string &b) {
  std::error_code none;
  return std::filesystem::equivalent(a, b, none);
}

}  // namespace stctl
