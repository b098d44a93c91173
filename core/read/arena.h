// Memory of our own for the bytes of tensors: 4096-aligned, as O_DIRECT and
// devices want it, on huge pages where it is large. A small view is 64-aligned.
#pragma once

#include <cstddef>
#include <utility>

#include "os/env.h"

namespace st::read {

class Arena {
 public:
  Arena() = default;
  // `nbytes` bytes; throws std::bad_alloc, also if this machine has no addresses for them. `reserved`: from the pool of
  // huge pages that an administrator set aside, if it has enough.
  static Arena of(os::Env &env, uint64_t nbytes, bool reserved);
  // The same for one view. Less than a page is 64-aligned: a page for each of many would cost far more than its bytes.
  static Arena of_view(os::Env &env, uint64_t nbytes);
  ~Arena();
  Arena(Arena &&other) noexcept { swap(other); }
  Arena &operator=(Arena &&other) noexcept {
    Arena(std::move(other)).swap(*this);
    return *this;
  }
  std::byte *data() const { return data_; }
  size_t size() const { return size_; }

 private:
  static Arena of_heap(os::Env &env, size_t n, size_t alignment);
  void swap(Arena &other) noexcept {
    std::swap(env_, other.env_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
    std::swap(alignment_, other.alignment_);
  }
  os::Env *env_ = nullptr;
  std::byte *data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;     // bytes to unmap; 0: from the heap
  size_t alignment_ = 0;  // there
};

}  // namespace st::read
