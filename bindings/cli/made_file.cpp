#include "made_file.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "failure.h"
#include "interrupt.h"
#include "system.h"

namespace stctl {

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

void TemporaryFile::copy_to(Output &out) const {
  const int fd = open_to_read(path_);
  if (fd < 0) throw Failure::of_errno(errno, "open", path_);
  const struct Closed {
    int fd;
    ~Closed() { close(fd); }
  } closed{fd};
  remove();  // a signal while `out` is full ends the process
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
  if (!stctl::is_stream(output)) return;
  if (!standard) stream_.emplace(output);
  is_standard_output_ = standard || stream_->goes_to(STDOUT_FILENO);
  if (is_standard_output_ && session.json) {
    throw UsageFailure(fmt::format("--json and {} can't both be standard output: give the name of a file", what));
  }
  if (standard ? is_terminal(STDOUT_FILENO) : stream_->goes_to_terminal()) {
    throw UsageFailure(fmt::format("{} is not for a terminal: give the name of a file, or a pipe", what));
  }
  temporary_.emplace();
}

void MadeFile::pass_on() {
  if (!temporary_) return;
  temporary_->copy_to(stream_ ? *stream_ : session_.out);
  if (stream_) stream_->commit();
}

}  // namespace stctl
