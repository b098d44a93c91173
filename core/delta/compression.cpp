#include "delta/compression.h"

#include <zstd.h>

#include <new>

#include "base/check.h"

namespace st::store {

// Each is made when it is first needed.
struct Compressor::Contexts {
  struct Free {
    void operator()(ZSTD_CCtx *c) const { ZSTD_freeCCtx(c); }
    void operator()(ZSTD_DCtx *c) const { ZSTD_freeDCtx(c); }
  };
  std::unique_ptr<ZSTD_CCtx, Free> to;
  std::unique_ptr<ZSTD_DCtx, Free> from;
};

const char *Compressor::version() {
  return ZSTD_versionString();
}

uint64_t Compressor::compress(void *to, const void *from, uint64_t n) {
  if (!contexts_->to) {
    contexts_->to.reset(ZSTD_createCCtx());
    if (!contexts_->to) throw std::bad_alloc();
    // The bytes hardly repeat but by chance, and the entropy coder packs short matches better: it is to find only long
    // ones, with the smallest table.
    ZSTD_CCtx_setParameter(contexts_->to.get(), ZSTD_c_compressionLevel, 1);
    ZSTD_CCtx_setParameter(contexts_->to.get(), ZSTD_c_minMatch, 7);
    ZSTD_CCtx_setParameter(contexts_->to.get(), ZSTD_c_hashLog, 6);
  }
  ST_ASSERT(bound(n) >= ZSTD_COMPRESSBOUND(n));
  const size_t made = ZSTD_compress2(contexts_->to.get(), to, bound(n), from, n);
  if (ZSTD_isError(made)) throw std::bad_alloc();  // nothing else can fail where there is room
  return made;
}

bool Compressor::expand(void *to, uint64_t n, const void *from, uint64_t size) {
  if (!contexts_->from) contexts_->from.reset(ZSTD_createDCtx());
  if (!contexts_->from) throw std::bad_alloc();
  return ZSTD_decompressDCtx(contexts_->from.get(), to, n, from, size) == n;
}

Compressor::Compressor() : contexts_(std::make_unique<Contexts>()) {}
Compressor::~Compressor() = default;
Compressor::Compressor(Compressor &&) noexcept = default;
Compressor &Compressor::operator=(Compressor &&) noexcept = default;

}  // namespace st::store
