// Memory for large arrays, on 2 MiB pages where the system gives them: filling
// megabytes by 4 KiB pages costs a fault for each, which is half the time of
// opening a file of 10^5 tensors. Smaller arrays come from the heap, as clearing a
// whole huge page for them would cost more.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>

namespace st {

inline constexpr size_t huge_page = size_t{2} << 20;
inline constexpr size_t worth_a_huge_page = huge_page;

inline void *allocate_memory(size_t n) {
  if (n < worth_a_huge_page) return ::operator new(n);
  const size_t whole = (n + huge_page - 1) / huge_page * huge_page;
  void *memory = ::operator new (whole, std::align_val_t{huge_page});
  ::madvise(memory, whole, MADV_HUGEPAGE);  // a hint
  return memory;
}

inline void free_memory(void *memory, size_t n) noexcept {
  if (n < worth_a_huge_page)
    ::operator delete(memory);
  else
    ::operator delete (memory, std::align_val_t{huge_page});
}

// For std::vector.
template <class T>
struct HugeAllocator {
  using value_type = T;
  HugeAllocator() = default;
  template <class U>
  HugeAllocator(const HugeAllocator<U> &) {}
  T *allocate(size_t n) { return static_cast<T *>(allocate_memory(n * sizeof(T))); }
  void deallocate(T *p, size_t n) noexcept { free_memory(p, n * sizeof(T)); }
  bool operator==(const HugeAllocator &) const = default;
};

// n bytes, uninitialised.
class HugeBuffer {
 public:
  HugeBuffer() : bytes_(nullptr, Free{0}) {}
  explicit HugeBuffer(size_t n) : bytes_(static_cast<char *>(allocate_memory(n)), Free{n}) {}
  char *get() const { return bytes_.get(); }

 private:
  struct Free {
    size_t n;
    void operator()(char *p) const { free_memory(p, n); }
  };
  std::unique_ptr<char[], Free> bytes_;
};

}  // namespace st
