// Where a path leads, for tests that call what takes an os::Location. Ends the program if the path does not resolve.
#pragma once

#include "os/location.h"

namespace st::testing {

inline os::Location located(os::Env &env, const std::string &path) {
  return os::Location::find(env, path).value();
}

}  // namespace st::testing
