// zstd, behind few calls. One thread.
#pragma once

#include <cstdint>
#include <memory>

namespace st::store {

class Compressor {
 public:
  static const char *version();  // of zstd

  Compressor();
  ~Compressor();
  Compressor(Compressor &&) noexcept;
  Compressor &operator=(Compressor &&) noexcept;

  // The most that n bytes take.
  static uint64_t bound(uint64_t n) { return n + (n >> 8) + 128; }
  // To `to`, which has room for bound(n). Answers how many bytes it took.
  uint64_t compress(void *to, const void *from, uint64_t n);
  // False: these `size` bytes are not what compress() made of n bytes.
  bool expand(void *to, uint64_t n, const void *from, uint64_t size);

 private:
  struct Contexts;
  std::unique_ptr<Contexts> contexts_;
};

}  // namespace st::store
