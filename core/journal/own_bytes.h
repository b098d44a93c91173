// What a journal wrote past the cache of this kernel, a chunk at a time and up to a bound: so it is read back without
// the server. Bytes that follow each other; what comes elsewhere takes their place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

namespace st::write {

class OwnBytes {
 public:
  void note(const std::byte *bytes, uint64_t n, uint64_t offset) noexcept {
    if (offset >= begin_ && offset + n <= end()) {
      std::copy_n(bytes, n, bytes_.data() + (offset - begin_));
      return;
    }
    const bool follows = offset == end() && end() - begin_ + n <= most;
    if (!follows) forget();
    try {
      bytes_.insert(bytes_.end(), bytes, bytes + n);
      if (!follows) begin_ = offset;
    } catch (const std::bad_alloc &) {
      forget();
    }
  }
  void forget() noexcept {
    begin_ = 0;
    bytes_ = {};
  }

  // Has it these?
  bool read(void *to, uint64_t n, uint64_t offset) const {
    if (offset < begin_ || offset + n > end()) return false;
    std::memcpy(to, bytes_.data() + (offset - begin_), n);
    return true;
  }

 private:
  static constexpr uint64_t most = uint64_t{16} << 20;
  uint64_t end() const { return begin_ + bytes_.size(); }

  uint64_t begin_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace st::write
