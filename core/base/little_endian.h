// Numbers as the bytes of files have them, on any host.
#pragma once

#include <cstdint>

namespace st {

inline uint64_t load_u64le(const void *bytes) {
  uint64_t value = 0;
  const auto *b = static_cast<const unsigned char *>(bytes);
  for (int i = 7; i >= 0; --i) value = value << 8 | b[i];
  return value;
}

inline void store_u64le(void *bytes, uint64_t value) {
  auto *b = static_cast<unsigned char *>(bytes);
  for (int i = 0; i < 8; ++i, value >>= 8) b[i] = static_cast<unsigned char>(value);
}

}  // namespace st
