// Which system calls the kernel, or a sandbox, lacks, and what is done without each. For people to read: nothing
// decides by it, as each call is noticed by its own answer where it is made (README.md, "Calls that may be missing").
#pragma once

#include <string>
#include <vector>

#include "os/env.h"

namespace st::os {

struct OptionalCall {
  const char *name;
  const char *without;  // what is done if it is missing
  bool there;
};

// Tries each once, on the root folder, a page of memory, or no file at all: it changes nothing.
std::vector<OptionalCall> optional_calls(Env &env);

// "Linux 6.1.0 x86_64, glibc 2.36"; without the number where /proc does not tell it.
std::string platform(Env &env);

}  // namespace st::os
