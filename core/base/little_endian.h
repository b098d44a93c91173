// Numbers as the bytes of files have them, on any host.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace st {

inline uint64_t load_u64le(const void *bytes) {
  uint64_t value;
  std::memcpy(&value, bytes, sizeof value);
  if constexpr (std::endian::native == std::endian::big) value = __builtin_bswap64(value);
  return value;
}

inline void store_u64le(void *bytes, uint64_t value) {
  auto *b = static_cast<unsigned char *>(bytes);
  for (int i = 0; i < 8; ++i, value >>= 8) b[i] = static_cast<unsigned char>(value);
}

}  // namespace st
