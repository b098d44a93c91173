// Pages of a copy-on-write mapping that become this process's own, as if each were written.
#pragma once

#include <cstddef>

#include "os/env.h"

namespace st::os {

// `from` begins a page, and n bytes from there are mapped. 0, or an errno below 0: -EFAULT where the file is shorter by
// now. A kernel before Linux 5.14 makes that a signal.
int own_pages(Env &env, std::byte *from, size_t n);

}  // namespace st::os
