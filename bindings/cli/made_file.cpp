#include "made_file.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "failure.h"
#include "interrupt.h"
#include "system.h"

namespace stctl {
namespace {

// One by a name of its own, which waits for its reader when it is opened. Not standard output.
bool is_named_pipe(const std::string &path) {
  Target target;
  if (!find_target(path, &target)) return false;
  if (target.fd >= 0) {
    close(target.fd);
    return false;
  }
  struct stat s = {}, standard = {};
  if (stat(path.c_str(), &s) != 0 || !S_ISFIFO(s.st_mode)) return false;
  return fstat(STDOUT_FILENO, &standard) != 0 || s.st_dev != standard.st_dev || s.st_ino != standard.st_ino;
}

}  // namespace

TemporaryFile::TemporaryFile() {
  if (!make_temporary_folder(&folder_)) throw Failure::of_errno(errno, "make a folder", folder_);
  path_ = folder_ + "/made.safetensors";
}

TemporaryFile::~TemporaryFile() {
  remove();
}

void TemporaryFile::remove() const {
  unlink(path_.c_str());
  remove_folder(folder_);
}

void TemporaryFile::copy_to(const std::function<Output &()> &opened) const {
  const int fd = open_to_read(path_);
  if (fd < 0) throw Failure::of_errno(errno, "open", path_);
  const struct Closed {
    int fd;
    ~Closed() { close(fd); }
  } closed{fd};
  remove();  // a signal while the other end of a pipe is waited for ends the process
  Output &out = opened();
  std::vector<char> block(1 << 20);
  for (;;) {
    throw_if_interrupted();
    const ssize_t n = read(fd, block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Failure::of_errno(errno, "read", path_);
    if (n == 0) return;
    out.write({block.data(), static_cast<size_t>(n)});
  }
}

MadeFile::MadeFile(Session &session, const std::string &output, const char *what) : session_(session), path_(output) {
  const bool standard = output == "-";
  if (!stctl::is_stream(output)) {
    path_ = target_of(output);
    return;
  }
  if (!standard && !is_named_pipe(output)) stream_.emplace(output);
  is_standard_output_ = standard || (stream_ && stream_->goes_to(STDOUT_FILENO));
  if (is_standard_output_ && session.json) {
    throw UsageFailure(fmt::format("--json and {} can't both be standard output: give the name of a file", what));
  }
  if (standard ? is_terminal(STDOUT_FILENO) : stream_ && stream_->goes_to_terminal()) {
    throw UsageFailure(fmt::format("{} is not for a terminal: give the name of a file, or a pipe", what));
  }
  temporary_.emplace();
}

void MadeFile::pass_on() {
  if (!temporary_) return;
  temporary_->copy_to([this]() -> Output & {
    if (!stream_ && path_ != "-") stream_.emplace(path_);
    return stream_ ? *stream_ : session_.out;
  });
  if (stream_) stream_->commit();
}

}  // namespace stctl
