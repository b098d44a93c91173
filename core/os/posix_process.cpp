#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <initializer_list>
#include <new>

#include "os/process.h"

namespace st::os {

size_t page_size() {
  return static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

namespace {

template <class Resource>
uint64_t limit_of(Resource resource) {
  rlimit limit;
  const bool is_limited = ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_limited ? limit.rlim_cur : UINT64_MAX;
}

}  // namespace

uint64_t largest_file() {
  return limit_of(RLIMIT_FSIZE);
}

uint64_t most_files() {
  return limit_of(RLIMIT_NOFILE);
}

void at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) {
  ::pthread_atfork(before, in_parent, in_child);
}

SignalsHeldBack::SignalsHeldBack() {
  static_assert(sizeof(sigset_t) <= sizeof before_ && alignof(sigset_t) <= alignof(SignalsHeldBack));
  sigset_t set;
  sigfillset(&set);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&set, fault);
  ::pthread_sigmask(SIG_BLOCK, &set, new (before_) sigset_t);
}

SignalsHeldBack::~SignalsHeldBack() {
  ::pthread_sigmask(SIG_SETMASK, std::launder(reinterpret_cast<sigset_t *>(before_)), nullptr);
}

}  // namespace st::os
