// What the process is to the system, beside its files: pages, limits, forks, signals.
#pragma once

#include <cstddef>
#include <cstdint>

namespace st::os {

size_t page_size();

// As Env has it.
uint64_t largest_file();
uint64_t most_files();

// At each fork: before it, then in the parent and in the child. Nothing where no process forks.
void at_fork(void (*before)(), void (*in_parent)(), void (*in_child)());

// While threads are made: signals are for the program's own threads, and no handler of its shall run on a stack of
// ours. And while a system call is not to be interrupted. (Faults are not signals to hold back.)
class SignalsHeldBack {
 public:
  SignalsHeldBack();
  ~SignalsHeldBack();
  SignalsHeldBack(const SignalsHeldBack &) = delete;
  SignalsHeldBack &operator=(const SignalsHeldBack &) = delete;

 private:
  alignas(8) unsigned char before_[128];
};

}  // namespace st::os
