// The bytes of one open file as memory: a shared mapping, a private mapping, or
// memory of our own that is filled, tensor by tensor, when first looked at.
// Falls back in that order when the filesystem refuses, and keeps the reason.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "control.h"
#include "os/file.h"
#include "os/filesystem.h"
#include "os/mapping.h"

namespace st::read {

enum class MapMode : uint32_t { automatic = 0, shared = 1, private_copy = 2, none = 3 };

class Content {
 public:
  Content() = default;
  // `size` > 0 bytes of `file`; `slots` is how many pieces will be looked at.
  static Result<Content> open(const os::File &file, size_t size, size_t slots, MapMode wanted,
                              const os::Filesystem &filesystem, const Log &log);
  // Bytes that somebody else keeps alive.
  static Content borrowed(const std::byte *bytes, size_t size);

  // The bytes [offset, offset + n) of the file, which are piece `slot`. Any thread.
  Result<const std::byte *> view(const os::File &file, size_t slot, uint64_t offset, uint64_t n) const;
  // Piece `slot` was changed in the file: let views that can show it, show it.
  Result<void> refresh(const os::File &file, size_t slot, uint64_t offset, uint64_t n) const;

  const std::byte *bytes() const { return bytes_; }  // of borrowed content
  MapMode map() const { return map_; }
  uint32_t fallbacks() const { return fallbacks_; }
  const std::string &reason() const { return reason_; }
  uint64_t bytes_mapped() const { return map_ == MapMode::none ? 0 : size_; }
  uint64_t bytes_resident() const { return map_ == MapMode::none ? 0 : mapping_.resident(); }
  uint64_t bytes_owned() const { return owned_ ? owned_->filled_bytes.load(std::memory_order_relaxed) : 0; }

 private:
  // Memory of our own, a piece at a time, 4096-aligned.
  struct Owned {
    explicit Owned(size_t slots) : pieces(slots) {}
    ~Owned();
    std::mutex mutex;
    std::vector<std::atomic<std::byte *>> pieces;  // null until first looked at
    std::atomic<uint64_t> filled_bytes = 0;
  };

  MapMode map_ = MapMode::none;
  uint32_t fallbacks_ = 0;
  std::string reason_;
  size_t size_ = 0;
  const std::byte *bytes_ = nullptr;
  os::Mapping mapping_;
  std::unique_ptr<Owned> owned_;  // with MapMode::none
};

}  // namespace st::read
