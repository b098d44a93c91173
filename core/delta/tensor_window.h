// Tensors of one file or of several looked at one after the other, through one
// block of memory: the window on a file moves along in it, and gives way to that
// on another. One thread.
#pragma once

#include <optional>

#include "file/snapshot.h"
#include "read/window.h"

namespace st::store {

class TensorWindow {
 public:
  // `ahead`: all of a file will be looked at, in its order.
  explicit TensorWindow(bool ahead) : ahead_(ahead) {}

  // Some bytes of tensor t, at least one, after the first `done` of them, of which there are more; at most n.
  // What was answered before is gone.
  Result<std::span<const std::byte>> at(const Snapshot &file, const TensorView &t, uint64_t done, uint64_t n) {
    if (file_ != &file) {
      window_.reset();
      file_ = nullptr;
      ST_TRY(auto reach, file.here());
      reach_.emplace(std::move(reach));
      window_.emplace(reach_->file, file.file_size(), ahead_);
      file_ = &file;
    }
    return window_->at(file.file_offset(t) + done, n);
  }

 private:
  const bool ahead_;
  const Snapshot *file_ = nullptr;
  std::optional<Access> reach_;  // to it
  std::optional<read::Window> window_;
};

}  // namespace st::store
