// Memory that a read with O_DIRECT fills. If the process forks meanwhile, and then writes to a page of that memory, it
// gets a copy of the page: kernels that do not pin what is being read leave the rest of the read to the child. So what
// shares a page with other data, or with another read, comes through memory of our own, a page for each. There
// nobody writes beside the kernel, and a fork does no harm.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "os/process.h"

namespace st::os {

// n bytes: so many before the first page that is theirs alone, of such pages, and behind them.
struct WholePages {
  WholePages(const void *memory, size_t n)
      : head(std::min(n, -reinterpret_cast<uintptr_t>(memory) % page_size())),
        tail((n - head) % page_size()),
        body(n - head - tail) {}
  const size_t head, tail, body;
};

}  // namespace st::os
