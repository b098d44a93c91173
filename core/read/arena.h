// Memory of our own for the bytes of tensors: 4096-aligned, as O_DIRECT and
// devices want it, on huge pages where it is large.
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
  ~Arena();
  Arena(Arena &&other) noexcept { swap(other); }
  Arena &operator=(Arena &&other) noexcept {
    Arena(std::move(other)).swap(*this);
    return *this;
  }
  std::byte *data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void swap(Arena &other) noexcept {
    std::swap(env_, other.env_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
  }
  os::Env *env_ = nullptr;
  std::byte *data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;  // bytes to unmap; 0: from the heap
};

}  // namespace st::read
