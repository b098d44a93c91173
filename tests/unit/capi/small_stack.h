// A thread whose stack is 64 KiB, as threads of coroutines, of musl and of some language runtimes have. Below it lies
// nothing that may be touched, and more of that than any frame takes: so a call that needs a larger stack crashes.
#pragma once

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace st::testing {

// Does `work` there. Answers how much of the stack was in use at the most.
inline size_t on_small_stack(const std::function<void()> &work) {
  constexpr size_t stack = size_t{64} << 10, guard = size_t{16} << 20;
  constexpr unsigned char clean = 0xA5;
  void *all = ::mmap(nullptr, guard + stack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) std::abort();
  auto *lowest = static_cast<unsigned char *>(all) + guard;
  if (::mprotect(lowest, stack, PROT_READ | PROT_WRITE) != 0) std::abort();
  std::memset(lowest, clean, stack);
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  pthread_t thread;
  const auto body = [](void *given) -> void * {
    (*static_cast<const std::function<void()> *>(given))();
    return nullptr;
  };
  if (::pthread_attr_setstack(&attributes, lowest, stack) != 0 ||
      ::pthread_create(&thread, &attributes, body, const_cast<std::function<void()> *>(&work)) != 0)
    std::abort();
  ::pthread_join(thread, nullptr);
  ::pthread_attr_destroy(&attributes);
  const auto used = std::find_if(lowest, lowest + stack, [](unsigned char c) { return c != clean; });
  const size_t most = static_cast<size_t>(lowest + stack - used);
  ::munmap(all, guard + stack);
  return most;
}

}  // namespace st::testing
