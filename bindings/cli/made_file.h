// A safetensors file that libst makes for a command, under the name that was given. That may be no name of a file, but
// standard output, a descriptor, a pipe or a device. Then the file is made in a folder of our own first: its bytes are
// made in no order, which a stream cannot take. So a call that fails has written nothing there.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "output.h"
#include "session.h"

namespace stctl {

// A folder of our own under $TMPDIR. It and the one file in it go with this object; or before it is copied, where a
// file that is open can go.
class TemporaryFile {
 public:
  TemporaryFile();
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile &) = delete;
  TemporaryFile &operator=(const TemporaryFile &) = delete;

  const std::string &path() const { return path_; }
  void copy_to(const std::function<Output &()> &opened) const;  // once

 private:
  void remove() const;
  std::string folder_, path_;
};

class MadeFile {
 public:
  // "-" is standard output. UsageFailure if that is a terminal, or is to have JSON; `what` is what is made: "a delta".
  // Failure if it can't be written.
  MadeFile(Session &session, const std::string &output, const char *what);
  const std::string &path() const { return temporary_ ? temporary_->path() : path_; }
  // Call it when libst has made the file, while a signal is polite. Passes the bytes on, if they go elsewhere.
  void pass_on();
  bool is_stream() const { return temporary_.has_value(); }
  // Then nothing else may be written there.
  bool is_standard_output() const { return is_standard_output_; }

 private:
  Session &session_;
  std::string path_;  // of a new file: as target_of() has it
  bool is_standard_output_ = false;
  std::optional<TemporaryFile> temporary_;
  std::optional<OutputFile> stream_;  // none: standard output itself, or a pipe that is opened when all is made
};

}  // namespace stctl
