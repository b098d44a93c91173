// The checksums that stores give of whole objects and that can be joined: from those of parts follows that of the
// whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace st::remote {

enum class Crc {
  crc32c,     // of RFC 3720: Google's stores, S3
  crc64nvme,  // of the NVM Express specification: S3
  crc32,      // of ISO/IEC 3309, as zip and gzip have it: S3
};
inline constexpr Crc all_crcs[] = {Crc::crc32c, Crc::crc64nvme, Crc::crc32};

// `before`: that of what comes before them.
uint64_t crc_of(Crc kind, std::span<const std::byte> bytes, uint64_t before = 0);

// The CRC of two parts, the first before the second, which has so many bytes.
uint64_t joined(Crc kind, uint64_t first, uint64_t second, uint64_t second_bytes);

}  // namespace st::remote
