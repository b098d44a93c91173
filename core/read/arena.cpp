#include "read/arena.h"

#include <cstdint>
#include <new>

#include "base/huge_memory.h"
#include "base/round.h"
#include "os/process.h"

namespace st::read {
namespace {

constexpr size_t heap_page = 4096;  // of most systems
constexpr size_t cache_line = 64;   // what the widest loads of a processor want
constexpr size_t worth_mapping = huge_page;
// Linux's word for the size of pages that are set aside. munmap takes whole ones, and the system may have larger ones
// by default.
constexpr int of_2_mib = 21 << 26;

}  // namespace

Arena Arena::of(os::Env &env, uint64_t nbytes, bool reserved) {
  if (nbytes > PTRDIFF_MAX) throw std::bad_alloc();
  const auto n = static_cast<size_t>(nbytes);
  Arena a;
  a.env_ = &env;
  a.size_ = n;
  const size_t huge = round_up(n, huge_page), whole = round_up(n, os::page_size());
  void *memory = nullptr;
  constexpr int read_write = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (reserved && env.mmap(huge, read_write, flags | MAP_HUGETLB | of_2_mib, -1, &memory) == 0) {
    a.mapped_ = huge;
  } else if (n >= worth_mapping) {
    if (env.mmap(whole, read_write, flags, -1, &memory) < 0) throw std::bad_alloc();
    a.mapped_ = whole;
    // A hint. All of it, as neighbours that are alike stay one mapping of the kernel's, which allows a process so many;
    // and no huge page goes beyond them.
    env.madvise(memory, whole, MADV_HUGEPAGE);
  } else {
    return of_heap(env, n, heap_page);
  }
  a.data_ = static_cast<std::byte *>(memory);
  return a;
}

Arena Arena::of_view(os::Env &env, uint64_t nbytes) {
  return nbytes < heap_page ? of_heap(env, static_cast<size_t>(nbytes), cache_line) : of(env, nbytes, false);
}

Arena Arena::of_heap(os::Env &env, size_t n, size_t alignment) {
  Arena a;
  a.env_ = &env;
  a.size_ = n;
  a.alignment_ = alignment;
  a.data_ = static_cast<std::byte *>(::operator new (n, std::align_val_t{alignment}));
  return a;
}

Arena::~Arena() {
  if (mapped_ > 0)
    env_->munmap(data_, mapped_);
  else if (data_)
    ::operator delete (data_, std::align_val_t{alignment_});
}

}  // namespace st::read
