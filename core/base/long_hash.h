// How more than a few bytes are hashed: by the widest instructions that this processor has.
#pragma once

#include <cstddef>
#include <cstdint>

// On Windows a compiler may spill wide registers to a stack that is aligned for narrow ones (GCC's bug 54412).
#if defined(__x86_64__) && !defined(_WIN32)
#define ST_HAS_AVX2_HASH
#endif

namespace st {

// `state` is an XXH3_state_t, which is the same for all of them.
struct LongHash {
  uint64_t (*of)(const void *bytes, size_t n, uint64_t seed);
  void (*add)(void *state, const void *bytes, size_t n);         // to an XXH3-64
  void (*add_to_128)(void *state, const void *bytes, size_t n);  // to an XXH3-128
};

extern const LongHash plain_hash;  // by what every processor of this architecture has
#ifdef ST_HAS_AVX2_HASH
extern const LongHash avx2_hash;
#endif

// Chosen once.
const LongHash &long_hash();

}  // namespace st
