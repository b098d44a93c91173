#include "os/writable_mappings.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "base/round.h"
#include "os/process.h"
#include "os/whole_over_fork.h"

namespace st::os {
namespace {

struct Noted {
  Env *env;
  struct stat file;
  std::byte *data;
  size_t size;
};

struct List {
  std::mutex mutex;
  std::vector<Noted> mappings;
};

List &list() {
  return whole_over_fork<List>();
}

// Where the kernel cannot do it (Linux before 5.14). A write of what is there, which loses none of another thread's. If
// that one writes meanwhile, the page is there too. An "or" with zero would not do: clang makes no write of it.
void touch(std::byte *from, size_t n, size_t page) {
  for (size_t at = 0; at < n; at += page) {
    const std::atomic_ref byte(*reinterpret_cast<unsigned char *>(from + at));
    unsigned char now = byte.load(std::memory_order_relaxed);
    byte.compare_exchange_strong(now, now, std::memory_order_relaxed);
  }
}

Result<void> make_private(const Noted &m, const File &file, uint64_t offset, uint64_t n) {
  ST_TRY(auto now, file.stat());  // beyond its end there is nothing to keep, and a touch would be a signal
  const uint64_t end = std::min({offset + n, uint64_t{m.size}, static_cast<uint64_t>(now.st_size)});
  const size_t page = page_size();
  const uint64_t from = round_down(offset, page);
  if (offset >= end) return {};
  const int r = repeat_interrupted([&] { return m.env->madvise(m.data + from, end - from, MADV_POPULATE_WRITE); });
  if (r == -EINVAL)
    touch(m.data + from, end - from, page);
  else if (r < 0)
    return Failure(file.error(-r, "keep the old bytes for copy-on-write views of"));
  return {};
}

}  // namespace

void note_writable_mapping(Env &env, const struct stat &file, std::byte *data, size_t size) {
  std::lock_guard lock(list().mutex);
  list().mappings.push_back({&env, file, data, size});
}

void forget_writable_mapping(const std::byte *data) {
  std::lock_guard lock(list().mutex);
  std::erase_if(list().mappings, [&](const Noted &m) { return m.data == data; });
}

Result<void> keep_in_writable_mappings(const File &file, uint64_t offset, uint64_t n) {
  std::lock_guard lock(list().mutex);
  if (list().mappings.empty()) return {};
  ST_TRY(auto which, file.stat());
  for (const Noted &m : list().mappings)
    if (same_inode(m.file, which)) ST_TRY(make_private(m, file, offset, n));
  return {};
}

}  // namespace st::os
