// libst-remote, as the system loads libraries.
#pragma once

#include "base/error.h"

namespace st::os {

// The function of this name in it. From beside this library, or the program that has it inside; then as the loader
// finds it. It stays loaded: its libraries have threads and handlers that do not go. Status unsupported: it cannot be
// loaded, and why. Null: it has no such function.
Result<void *> find_in_remote_library(const char *name);

}  // namespace st::os
