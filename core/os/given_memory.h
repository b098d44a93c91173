// Memory that a caller of libst gave. It may be gone: a mapped file that was truncated has none behind its end.
#pragma once

#include "base/error.h"
#include "os/env.h"

namespace st::os {

// What is gone is an error, and no signal, wherever the system can tell; but for a page or less, for which asking would
// cost more than the copy.
Result<void> copy_given(Env &env, const void *from, size_t n, void *to);

// What `err` of a call means that was to read from there.
Error given_memory_is_gone(int err);

}  // namespace st::os
