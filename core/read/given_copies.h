// Memory that somebody else keeps alive, whose views may be written: each is a copy, which the first look makes. Reads
// are of the memory itself. There is no mutex, as a thread that holds one may not be in a forked child.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace st::read {

class GivenCopies {
 public:
  // `slots` is how many pieces will be looked at.
  GivenCopies(const std::byte *bytes, size_t slots) : bytes_(bytes), copies_(slots) {}
  ~GivenCopies();
  // The n bytes at `offset`, which are piece `slot`. Any thread.
  const std::byte *view(size_t slot, uint64_t offset, uint64_t n);
  const std::byte *bytes() const { return bytes_; }

 private:
  const std::byte *const bytes_;
  std::vector<std::atomic<std::byte *>> copies_;
};

}  // namespace st::read
