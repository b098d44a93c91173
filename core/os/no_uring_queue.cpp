// In the place of uring_queue.cpp where libst is built without liburing.
#include "os/uring_queue.h"

namespace st::os {

std::unique_ptr<ReadQueue> uring_queue(unsigned) {
  return nullptr;
}

}  // namespace st::os
