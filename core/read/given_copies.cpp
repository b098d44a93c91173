#include "read/given_copies.h"

#include <cstring>
#include <memory>

namespace st::read {

GivenCopies::~GivenCopies() {
  for (const auto &copy : copies_) delete[] copy.load(std::memory_order_relaxed);
}

const std::byte *GivenCopies::view(size_t slot, uint64_t offset, uint64_t n) {
  std::byte *there = copies_[slot].load(std::memory_order_acquire);
  if (there) return there;
  auto made = std::make_unique_for_overwrite<std::byte[]>(n);
  std::memcpy(made.get(), bytes_ + offset, n);
  // Two threads may look first: the copy of one counts.
  return copies_[slot].compare_exchange_strong(there, made.get(), std::memory_order_acq_rel) ? made.release() : there;
}

}  // namespace st::read
