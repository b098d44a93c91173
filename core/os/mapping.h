// A mapping of a file, unmapped when it dies. Read-only, or copy-on-write: its bytes may be written, and never reach
// the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "os/file.h"

namespace st::os {

enum class MapKind { shared, private_copy, copy_on_write };

class Mapping {
 public:
  Mapping() = default;
  // ENOMEM also if this machine has no addresses for so many bytes.
  static Result<Mapping> of_file(const File &file, uint64_t nbytes, MapKind kind);
  ~Mapping();
  Mapping(Mapping &&other) noexcept { swap(other); }
  Mapping &operator=(Mapping &&other) noexcept {
    Mapping(std::move(other)).swap(*this);
    return *this;
  }

  const std::byte *data() const { return data_; }
  size_t size() const { return size_; }
  // Bytes in memory now, in whole pages; 0 where the system does not tell. Linux says that all are, if this process may
  // not change the file.
  uint64_t resident() const { return resident(0, size_); }
  uint64_t resident(size_t offset, size_t n) const;
  // Bring pages into memory, and into the mapping, in order. A file that was
  // truncated meanwhile is status file_changed.
  Result<void> populate(size_t offset, size_t n) const;
  // The same of a copy-on-write mapping, whose pages become this process's own. They show what befalls the file no
  // more, but for a truncation.
  Result<void> own(const File &file, size_t offset, size_t n) const;
  // Bytes of pages that were written: 0 where the system does not tell.
  uint64_t private_dirty() const;
  // Forget cached pages of a private mapping, so that they are read anew.
  void drop(size_t offset, size_t n) const;

 private:
  void swap(Mapping &other) noexcept {
    std::swap(env_, other.env_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(kind_, other.kind_);
  }

  Env *env_ = nullptr;
  std::byte *data_ = nullptr;
  size_t size_ = 0;
  MapKind kind_ = MapKind::shared;
};

}  // namespace st::os
