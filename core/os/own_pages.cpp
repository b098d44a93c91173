#include "os/own_pages.h"

#include <atomic>
#include <cerrno>

#include "os/file.h"
#include "os/process.h"

namespace st::os {
namespace {

// A write of what is there, which loses none of another thread's. If that one writes meanwhile, the page is there too.
// An "or" with zero would not do: clang makes no write of it.
void touch(std::byte *from, size_t n) {
  for (size_t at = 0; at < n; at += page_size()) {
    const std::atomic_ref byte(*reinterpret_cast<unsigned char *>(from + at));
    unsigned char now = byte.load(std::memory_order_relaxed);
    byte.compare_exchange_strong(now, now, std::memory_order_relaxed);
  }
}

}  // namespace

int own_pages(Env &env, std::byte *from, size_t n) {
  const int r = repeat_interrupted([&] { return env.madvise(from, n, MADV_POPULATE_WRITE); });
  if (r != -EINVAL) return r;
  touch(from, n);  // Linux before 5.14
  return 0;
}

}  // namespace st::os
