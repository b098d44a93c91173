// Bytes that a delta will hold, before their number is known: in a temporary file beside it, from which they are
// copied.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/hash.h"
#include "newfile/temporary_file.h"

namespace st::store {

class Spilled {
 public:
  struct Part {
    uint64_t begin = 0, size = 0;
    Hash128 hash = {};
  };

  // The file is made when something is added.
  Spilled(os::Env &env, const std::string &beside) : env_(env), beside_(beside) {}
  // A part that was begun and not ended is dropped.
  void begin_part();
  uint64_t part_size() const { return size_; }
  Result<void> add(std::span<const std::byte> bytes);
  Part end_part();
  const os::File &file() const { return made_->file(); }

 private:
  os::Env &env_;
  const std::string &beside_;
  std::unique_ptr<write::TemporaryFile> made_;
  uint64_t begin_ = 0, size_ = 0;  // of the part
  Hasher128 hasher_;
};

}  // namespace st::store
