#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "test_files.h"

namespace st {
namespace {

// All lengths around which XXH3 changes its ways, and some that are long.
std::vector<size_t> lengths() {
  std::vector<size_t> all{4095, 4096, 4097, 65536 + 13, 1000003};
  for (size_t n = 0; n <= 1100; ++n) all.push_back(n);
  return all;
}

// By this source alone, which is compiled for every processor.
uint64_t expected(const void *bytes, size_t n, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, n, seed);
}

class Hashing : public ::testing::TestWithParam<const LongHash *> {
 protected:
  void SetUp() override {
#ifdef ST_HAS_AVX2_HASH
    const bool is_had = __builtin_cpu_supports("avx2");
    EXPECT_EQ(&long_hash(), is_had ? &avx2_hash : &plain_hash);
    if (GetParam() == &avx2_hash && !is_had) GTEST_SKIP() << "this processor has no AVX2";
#endif
  }
  const std::string bytes = testing::pattern(1000100, 1);
};

std::vector<const LongHash *> all_kinds() {
  return {
      &plain_hash,
#ifdef ST_HAS_AVX2_HASH
      &avx2_hash,
#endif
  };
}

TEST_P(Hashing, GivesWhatXxhashGives) {
  for (const size_t n : lengths())
    for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, UINT64_MAX})
      for (const size_t at : {0, 1, 8}) {
        ASSERT_EQ(GetParam()->of(&bytes[at], n, seed), expected(&bytes[at], n, seed)) << n << " bytes, seed " << seed;
        ASSERT_EQ(hash64(&bytes[at], n, seed), expected(&bytes[at], n, seed)) << n << " bytes, seed " << seed;
      }
}

TEST_P(Hashing, OfAStreamGivesTheSameHoweverItIsCut) {
  for (const size_t n : lengths())
    for (const size_t part : {1, 7, 64, 255, 256, 257, 1024, 5000}) {
      if (n / part > 5000) continue;
      XXH3_state_t state, state128;
      XXH3_64bits_reset(&state), XXH3_128bits_reset(&state128);
      Hasher hasher;
      Hasher128 hasher128;
      for (size_t at = 0; at < n; at += part) {
        const size_t length = std::min(part, n - at);
        GetParam()->add(&state, &bytes[at], length);
        GetParam()->add_to_128(&state128, &bytes[at], length);
        hasher.add(&bytes[at], length);
        hasher128.add(&bytes[at], length);
      }
      const XXH128_hash_t wanted = XXH3_128bits(bytes.data(), n);
      ASSERT_EQ(XXH3_64bits_digest(&state), expected(bytes.data(), n, 0)) << n << " bytes in parts of " << part;
      ASSERT_EQ(hasher.digest(), expected(bytes.data(), n, 0)) << n << " bytes in parts of " << part;
      ASSERT_TRUE(XXH128_isEqual(XXH3_128bits_digest(&state128), wanted)) << n << " bytes in parts of " << part;
      ASSERT_TRUE(hasher128.digest() == (Hash128{wanted.high64, wanted.low64})) << n << " bytes in parts of " << part;
    }
}

INSTANTIATE_TEST_SUITE_P(, Hashing, ::testing::ValuesIn(all_kinds()),
                         [](const auto &it) { return it.param == &plain_hash ? "Plain" : "Avx2"; });

}  // namespace
}  // namespace st
