// The functions of a LongHash, by what this is compiled for.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace st {
namespace {

uint64_t of(const void *bytes, size_t n, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, n, seed);
}
void add(void *state, const void *bytes, size_t n) {
  XXH3_64bits_update(static_cast<XXH3_state_t *>(state), bytes, n);
}
void add_to_128(void *state, const void *bytes, size_t n) {
  XXH3_128bits_update(static_cast<XXH3_state_t *>(state), bytes, n);
}

}  // namespace
}  // namespace st
