#include "read/arena.h"

#include <cstdint>
#include <new>

#include "base/huge_memory.h"
#include "base/round.h"

namespace st::read {
namespace {

constexpr std::align_val_t arena_alignment{4096};
constexpr size_t worth_mapping = huge_page;

}  // namespace

Arena Arena::of(os::Env &env, uint64_t nbytes, bool reserved) {
  if (nbytes > PTRDIFF_MAX) throw std::bad_alloc();
  const auto n = static_cast<size_t>(nbytes);
  Arena a;
  a.env_ = &env;
  a.size_ = n;
  const size_t whole = round_up(n, huge_page);
  void *memory = nullptr;
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (reserved && env.mmap(whole, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB, -1, &memory) == 0) {
    a.mapped_ = whole;
  } else if (n >= worth_mapping) {
    if (env.mmap(whole, PROT_READ | PROT_WRITE, flags, -1, &memory) < 0) throw std::bad_alloc();
    a.mapped_ = whole;
    env.madvise(memory, whole, MADV_HUGEPAGE);  // a hint
  } else {
    memory = ::operator new(n, arena_alignment);
  }
  a.data_ = static_cast<std::byte *>(memory);
  return a;
}

Arena::~Arena() {
  if (mapped_ > 0)
    env_->munmap(data_, mapped_);
  else if (data_)
    ::operator delete(data_, arena_alignment);
}

}  // namespace st::read
