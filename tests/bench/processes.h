// Work in several processes that begin at the same moment.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "clock.h"

// `work(process, ready)` in each of n processes; the time from when all are ready until all have ended.
template <class Work>
long long by_processes(int n, Work work) {
  struct Gate {
    std::atomic<int> ready, open;
  };
  auto *gate =
      static_cast<Gate *>(::mmap(nullptr, sizeof(Gate), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  require(gate != MAP_FAILED, "mmap");
  for (int p = 0; p < n; ++p) {
    if (::fork() != 0) continue;
    work(p, [&] {
      ++gate->ready;
      while (!gate->open) ::usleep(100);
    });
    ::_exit(0);
  }
  while (gate->ready < n) ::usleep(1000);
  const long long ns = nanoseconds([&] {
    gate->open = 1;
    for (int p = 0, status; p < n; ++p) require(::wait(&status) > 0 && status == 0, "a process");
  });
  ::munmap(gate, sizeof(Gate));
  return ns;
}
