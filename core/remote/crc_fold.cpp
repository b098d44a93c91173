#include "remote/crc_fold.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define ST_TARGET __attribute__((target("pclmul")))
#elif defined(__aarch64__) && defined(__linux__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define ST_TARGET
#endif

namespace st::remote {

#ifdef ST_TARGET

namespace {

using Block = uint64_t __attribute__((vector_size(16)));

#ifdef __x86_64__
ST_TARGET inline Block products(Block a, Block b) {
  const auto x = reinterpret_cast<__m128i>(a), y = reinterpret_cast<__m128i>(b);
  return reinterpret_cast<Block>(_mm_clmulepi64_si128(x, y, 0x00)) ^
         reinterpret_cast<Block>(_mm_clmulepi64_si128(x, y, 0x11));
}
#else
inline Block products(Block a, Block b) {
  Block low, high;
  asm(".arch_extension aes\n\tpmull %0.1q, %1.1d, %2.1d" : "=w"(low) : "w"(a), "w"(b));
  asm(".arch_extension aes\n\tpmull2 %0.1q, %1.2d, %2.2d" : "=w"(high) : "w"(a), "w"(b));
  return low ^ high;
}
#endif

inline Block load(const std::byte *from) {
  Block out;
  std::memcpy(&out, from, sizeof out);
  return out;
}

}  // namespace

bool can_fold() {
#ifdef __x86_64__
  static const bool can = __builtin_cpu_supports("pclmul");
#else
  static const bool can = (getauxval(AT_HWCAP) & HWCAP_PMULL) != 0;
#endif
  return can;
}

ST_TARGET void fold(std::span<const std::byte> bytes, uint64_t crc, FoldBy by_512_bits, FoldBy by_128_bits,
                    std::byte *block) {
  const Block far = {by_512_bits.earlier, by_512_bits.later}, near = {by_128_bits.earlier, by_128_bits.later};
  Block sum[4];
  for (size_t k = 0; k < 4; ++k) sum[k] = load(bytes.data() + 16 * k);
  sum[0] ^= Block{crc, 0};
  for (size_t i = 64; i < bytes.size(); i += 64)
    for (size_t k = 0; k < 4; ++k) sum[k] = products(sum[k], far) ^ load(bytes.data() + i + 16 * k);
  for (size_t k = 1; k < 4; ++k) sum[k] ^= products(sum[k - 1], near);
  std::memcpy(block, &sum[3], sizeof sum[3]);
}

#else

bool can_fold() {
  return false;
}

void fold(std::span<const std::byte>, uint64_t, FoldBy, FoldBy, std::byte *) {}

#endif

}  // namespace st::remote
