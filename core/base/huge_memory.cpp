#include "base/huge_memory.h"

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

namespace st {

void *allocate_memory(size_t n) {
  if (n < worth_a_huge_page) return ::operator new(n);
  const size_t whole = round_up(n, huge_page);
  void *memory = ::operator new (whole, std::align_val_t{huge_page});
#ifdef MADV_HUGEPAGE
  ::madvise(memory, whole, MADV_HUGEPAGE);  // a hint
#endif
  return memory;
}

void free_memory(void *memory, size_t n) noexcept {
  if (n < worth_a_huge_page)
    ::operator delete(memory);
  else
    ::operator delete (memory, std::align_val_t{huge_page});
}

}  // namespace st
