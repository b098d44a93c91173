#include "os/process.h"

#include <windows.h>

namespace st::os {

size_t page_size() {
  static const size_t size = [] {
    SYSTEM_INFO info;
    ::GetSystemInfo(&info);
    return size_t{info.dwPageSize};
  }();
  return size;
}

uint64_t largest_file() {
  return UINT64_MAX;
}
uint64_t most_files() {
  return UINT64_MAX;
}

// No process forks here, and no signal interrupts a thread.
void at_fork(void (*)(), void (*)(), void (*)()) {}
SignalsHeldBack::SignalsHeldBack() = default;
SignalsHeldBack::~SignalsHeldBack() = default;

}  // namespace st::os
