// XXH3-64, from the header-only form of xxhash: of one piece of memory, of one
// under a seed, and of a stream.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <cstdint>

namespace st {

inline uint64_t hash64(const void *bytes, size_t n) {
  return XXH3_64bits(bytes, n);
}
inline uint64_t hash64(const void *bytes, size_t n, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, n, seed);
}

class Hasher {
 public:
  Hasher() { XXH3_64bits_reset(&state_); }
  void add(const void *bytes, size_t n) { XXH3_64bits_update(&state_, bytes, n); }
  uint64_t digest() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

}  // namespace st
