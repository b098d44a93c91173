// Hashes of a tensor's bytes, as deltas record them.
#pragma once

#include "base/control.h"
#include "delta/tensor_window.h"
#include "format/delta.h"

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

// `take` sees each piece, and may end it. An error is about that tensor.
Result<OldBytes> hash_tensor(TensorWindow &window, const Snapshot &file, const TensorView &t,
                             const std::function<Result<void>(std::span<const std::byte>)> &take);

}  // namespace st::store
