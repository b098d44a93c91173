// Sizes that every writer here works in.
#pragma once

#include <cstdint>

namespace st::write {

inline constexpr uint64_t write_chunk_bytes = uint64_t{1} << 20;  // copied or hashed while it is in the cache
inline constexpr uint64_t write_out_bytes = uint64_t{4} << 20;    // so much written, and the disk is told to begin

}  // namespace st::write
