// XXH3 by AVX2, which takes half the time. All that stands below the pragma is compiled for processors that have it. So
// this is a source of its own, and includes nothing there whose functions the linker could take for those of other
// sources: what xxhash includes, stands above.
#include "base/long_hash.h"

#ifdef ST_HAS_AVX2_HASH
#include <assert.h>
#include <immintrin.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif

#define XXH_VECTOR 2  // XXH_AVX2
#include "base/hash_functions.h"

namespace st {

const LongHash avx2_hash = {of, add, add_to_128};

}  // namespace st

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
