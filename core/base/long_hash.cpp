#include "base/long_hash.h"

#include <atomic>

#include "base/hash_functions.h"

#ifdef ST_HAS_AVX2_HASH
#include <cpuid.h>
#endif

namespace st {
namespace {

// The processor must have it, and the system must keep the wide registers: Intel's manual, volume 1, 14.7.1. Compilers
// have a function for this question, which zig's library lacks.
#ifdef ST_HAS_AVX2_HASH
bool has_avx2() {
  constexpr unsigned kept_by_system = 1u << 27, avx = 1u << 28, avx2 = 1u << 5, both_halves = 6;
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (kept_by_system | avx)) != (kept_by_system | avx)) return false;
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & both_halves) == both_halves && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & avx2) != 0;
}
#endif

}  // namespace

const LongHash plain_hash = {of, add, add_to_128};

const LongHash &long_hash() {
#ifdef ST_HAS_AVX2_HASH
  // Two threads may both choose, and choose the same. A lock could be held where a process forks.
  static std::atomic<const LongHash *> chosen = nullptr;
  const LongHash *widest = chosen.load(std::memory_order_relaxed);
  if (!widest) chosen.store(widest = has_avx2() ? &avx2_hash : &plain_hash, std::memory_order_relaxed);
  return *widest;
#else
  return plain_hash;
#endif
}

}  // namespace st
