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

Block pair(FoldBy by) {
  return Block{by.earlier, by.later};
}

// Four blocks stand in a row.
struct Row {
  Block at[4];
};

#ifdef __x86_64__
#define ST_WIDE __attribute__((target("avx512f,vpclmulqdq")))
constexpr size_t rows = 4, wide = rows * sizeof(Row);

const bool has_wide_products = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");

ST_WIDE inline __m512i four_times(FoldBy by) {
  const auto later = static_cast<int64_t>(by.later), earlier = static_cast<int64_t>(by.earlier);
  return _mm512_set_epi64(later, earlier, later, earlier, later, earlier, later, earlier);
}

// a, moved on to b.
ST_WIDE inline __m512i folded(__m512i a, __m512i by, __m512i b) {
  constexpr int of_all_three = 0x96;  // exclusive or
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, by, 0x00), _mm512_clmulepi64_epi128(a, by, 0x11), b,
                                   of_all_three);
}

// The remainder of a multiple of `wide` bytes, in a row.
ST_WIDE Row fold_wide(std::span<const std::byte> bytes, uint64_t crc, const Folds &folds) {
  const __m512i far = four_times(folds.by_2048_bits), near = four_times(folds.by_512_bits);
  __m512i sum[rows];
  for (size_t k = 0; k < rows; ++k) sum[k] = _mm512_loadu_si512(bytes.data() + k * sizeof(Row));
  sum[0] = _mm512_xor_si512(sum[0], _mm512_zextsi128_si512(_mm_set_epi64x(0, static_cast<int64_t>(crc))));
  for (size_t i = wide; i < bytes.size(); i += wide)
    for (size_t k = 0; k < rows; ++k)
      sum[k] = folded(sum[k], far, _mm512_loadu_si512(bytes.data() + i + k * sizeof(Row)));
  for (size_t k = 1; k < rows; ++k) sum[k] = folded(sum[k - 1], near, sum[k]);
  Row out;
  std::memcpy(&out, &sum[rows - 1], sizeof out);
  return out;
}
#endif

#ifdef __x86_64__
const bool has_products = __builtin_cpu_supports("pclmul");
#else
const bool has_products = (getauxval(AT_HWCAP) & HWCAP_PMULL) != 0;
#endif

}  // namespace

// It is known since the library was loaded: a fork amid a first look would leave a child that waits for it for ever.
bool can_fold() {
  return has_products;
}

ST_TARGET void fold(std::span<const std::byte> bytes, uint64_t crc, const Folds &folds, std::byte *block) {
  const Block far = pair(folds.by_512_bits), near = pair(folds.by_128_bits);
  Row sum;
  size_t i = sizeof sum;
#ifdef ST_WIDE
  if (bytes.size() >= wide && has_wide_products) {
    i = bytes.size() / wide * wide;
    sum = fold_wide(bytes.first(i), crc, folds);
  } else
#endif
  {
    for (size_t k = 0; k < 4; ++k) sum.at[k] = load(bytes.data() + 16 * k);
    sum.at[0] ^= Block{crc, 0};
  }
  for (; i < bytes.size(); i += sizeof sum)
    for (size_t k = 0; k < 4; ++k) sum.at[k] = products(sum.at[k], far) ^ load(bytes.data() + i + 16 * k);
  for (size_t k = 1; k < 4; ++k) sum.at[k] ^= products(sum.at[k - 1], near);
  std::memcpy(block, &sum.at[3], sizeof sum.at[3]);
}

#else

bool can_fold() {
  return false;
}

void fold(std::span<const std::byte>, uint64_t, const Folds &, std::byte *) {}

#endif

}  // namespace st::remote
