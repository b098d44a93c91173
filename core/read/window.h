// A file looked at in sequence, through one block of memory that moves along
// with the looks: so comparing or hashing any file takes the same memory. With
// pread, so that a file truncated meanwhile is an error. One thread.
#pragma once

#include <memory>
#include <span>

#include "os/file.h"

namespace st::read {

class Window {
 public:
  // `ahead`: all up to byte `end` of the file will be looked at, so whole blocks are read.
  Window(const os::File &file, uint64_t end, bool ahead);

  // Some bytes from `offset` on, at least one and at most n; n > 0, and they end before the file does.
  Result<std::span<const std::byte>> at(uint64_t offset, uint64_t n);

 private:
  const os::File &file_;
  const uint64_t end_;
  const bool ahead_;
  const uint64_t block_bytes_;  // as measured at the beginning: a source measures on
  std::unique_ptr<std::byte[]> block_;
  uint64_t begin_ = 0, have_ = 0;
};

}  // namespace st::read
