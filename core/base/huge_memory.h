// Memory for large arrays, on 2 MiB pages where the system gives them: filling
// megabytes by 4 KiB pages costs a fault for each, which is half the time of
// opening a file of 10^5 tensors. Smaller ones come from the heap, as clearing a
// whole huge page for them would cost more: arrays that are made together can
// share a block.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "base/round.h"

namespace st {

inline constexpr size_t huge_page = size_t{2} << 20;
inline constexpr size_t worth_a_huge_page = huge_page;

void *allocate_memory(size_t n);
void free_memory(void *memory, size_t n) noexcept;

// A block that several arrays take their memory from, each once; what does not fit comes from
// where allocate_memory has it. Not for several threads.
class SharedBlock {
 public:
  explicit SharedBlock(size_t n) : size_(n), bytes_(static_cast<char *>(allocate_memory(n))) {}
  ~SharedBlock() { free_memory(bytes_, size_); }
  SharedBlock(const SharedBlock &) = delete;
  SharedBlock &operator=(const SharedBlock &) = delete;

  void *take(size_t n) {
    const size_t rounded = round_up(n, alignment);
    if (rounded > size_ - taken_) return allocate_memory(n);
    return bytes_ + std::exchange(taken_, taken_ + rounded);
  }
  void give_back(void *memory, size_t n) noexcept {
    const auto *p = static_cast<const char *>(memory);
    if (std::less<>()(p, bytes_) || !std::less<>()(p, bytes_ + size_)) free_memory(memory, n);
  }

 private:
  static constexpr size_t alignment = 64;
  const size_t size_;
  char *const bytes_;
  size_t taken_ = 0;
};

// For std::vector: from a block, which lives as long as any of them, or without one.
template <class T>
struct HugeAllocator {
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  std::shared_ptr<SharedBlock> block = {};

  HugeAllocator() = default;
  explicit HugeAllocator(std::shared_ptr<SharedBlock> from) : block(std::move(from)) {}
  template <class U>
  HugeAllocator(const HugeAllocator<U> &other) : block(other.block) {}
  T *allocate(size_t n) {
    return static_cast<T *>(block ? block->take(n * sizeof(T)) : allocate_memory(n * sizeof(T)));
  }
  void deallocate(T *p, size_t n) noexcept {
    block ? block->give_back(p, n * sizeof(T)) : free_memory(p, n * sizeof(T));
  }
  // resize() leaves new elements as they are.
  template <class U>
  void construct(U *p) noexcept {
    ::new (static_cast<void *>(p)) U;
  }
  template <class U, class... Args>
  void construct(U *p, Args &&...args) {
    ::new (static_cast<void *>(p)) U(std::forward<Args>(args)...);
  }
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
