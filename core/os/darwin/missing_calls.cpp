// What people are told of the system (os/missing_calls.h has the like for Linux).
#include "os/missing_calls.h"

#include <sys/utsname.h>

#include "base/error.h"

namespace st::os {

// Which calls it has is known: see darwin_env.cpp.
std::vector<OptionalCall> optional_calls(Env &) {
  return {};
}

std::string platform(Env &env) {
  struct utsname name = {};
  ::uname(&name);
  const std::string refused = env.why_read_only();
  return text("macOS, Darwin ", name.release, " ", name.machine, refused.empty() ? "" : "; ", refused);
}

}  // namespace st::os
