// Reads through the kernel's queue of requests, io_uring.
#pragma once

#include <memory>

#include "os/env.h"

namespace st::os {

// Null where the kernel has none, or forbids it, or libst was built without liburing.
std::unique_ptr<ReadQueue> uring_queue(unsigned depth);

}  // namespace st::os
