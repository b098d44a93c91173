// Hashes of a tensor's bytes, as deltas record them.
#pragma once

#include "control.h"
#include "format/delta.h"
#include "read/window.h"

namespace st::store {

// Fed with a tensor's bytes in their order. Copies go on by themselves.
class TensorHasher {
 public:
  void add(std::span<const std::byte> bytes);
  OldBytes digest() const { return {all_.digest(), head_.digest()}; }

 private:
  Hasher128 all_;
  Hasher head_;
  uint64_t fed_ = 0;
};

// n bytes at `offset`; `take` sees each piece, and may end it.
Result<OldBytes> hash_piece(read::Window &window, uint64_t offset, uint64_t n,
                            const std::function<Result<void>(std::span<const std::byte>)> &take);

}  // namespace st::store
