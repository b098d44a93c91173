// XXH3-64, by xxhash: of one piece of memory, of one under a seed, and of a stream. XXH3-128, of a stream, where two
// files must not be taken for each other.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <cstdint>

#include "base/long_hash.h"

namespace st {

inline uint64_t hash64(const void *bytes, size_t n, uint64_t seed = 0) {
  constexpr size_t brief = 240;  // XXH3 takes so much, and less, without wide instructions
  return n <= brief ? XXH3_64bits_withSeed(bytes, n, seed) : long_hash().of(bytes, n, seed);
}

class Hasher {
 public:
  Hasher() { XXH3_64bits_reset(&state_); }
  void add(const void *bytes, size_t n) { long_hash().add(&state_, bytes, n); }
  uint64_t digest() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

struct Hash128 {
  uint64_t high = 0, low = 0;
  bool operator==(const Hash128 &) const = default;
};

// Copies go on by themselves from where they were made.
class Hasher128 {
 public:
  Hasher128() { XXH3_128bits_reset(&state_); }
  void add(const void *bytes, size_t n) { long_hash().add_to_128(&state_, bytes, n); }
  Hash128 digest() const {
    const XXH128_hash_t h = XXH3_128bits_digest(&state_);
    return {h.high64, h.low64};
  }

 private:
  XXH3_state_t state_;
};

}  // namespace st
