#include "delta/compression.h"

#include <new>

#include "base/check.h"
#ifdef ST_ZSTD
#include <zstd.h>
#endif

namespace st::store {

#ifdef ST_ZSTD

// Each is made when it is first needed.
struct Compressor::Contexts {
  struct Free {
    void operator()(ZSTD_CCtx *c) const { ZSTD_freeCCtx(c); }
    void operator()(ZSTD_DCtx *c) const { ZSTD_freeDCtx(c); }
  };
  std::unique_ptr<ZSTD_CCtx, Free> to;
  std::unique_ptr<ZSTD_DCtx, Free> from;
};

bool Compressor::is_there() {
  return true;
}

uint64_t Compressor::compress(void *to, const void *from, uint64_t n) {
  // The bytes hardly repeat: what the highest levels look for is not there.
  constexpr int level = 1;
  if (!contexts_->to) contexts_->to.reset(ZSTD_createCCtx());
  if (!contexts_->to) throw std::bad_alloc();
  ST_ASSERT(bound(n) >= ZSTD_COMPRESSBOUND(n));
  const size_t made = ZSTD_compressCCtx(contexts_->to.get(), to, bound(n), from, n, level);
  if (ZSTD_isError(made)) throw std::bad_alloc();  // nothing else can fail where there is room
  return made;
}

bool Compressor::expand(void *to, uint64_t n, const void *from, uint64_t size) {
  if (!contexts_->from) contexts_->from.reset(ZSTD_createDCtx());
  if (!contexts_->from) throw std::bad_alloc();
  return ZSTD_decompressDCtx(contexts_->from.get(), to, n, from, size) == n;
}

#else

struct Compressor::Contexts {};

bool Compressor::is_there() {
  return false;
}

uint64_t Compressor::compress(void *, const void *, uint64_t) {
  return 0;
}

bool Compressor::expand(void *, uint64_t, const void *, uint64_t) {
  return false;
}

#endif

Compressor::Compressor() : contexts_(std::make_unique<Contexts>()) {}
Compressor::~Compressor() = default;
Compressor::Compressor(Compressor &&) noexcept = default;
Compressor &Compressor::operator=(Compressor &&) noexcept = default;

}  // namespace st::store
