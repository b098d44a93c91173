// A word or a number that the user sets in the environment: ST_MAP and its like.
#pragma once

#include <optional>
#include <string_view>

#include "base/error.h"
#include "os/env.h"

namespace st::os {

// None if the variable is not there, or empty.
std::optional<std::string_view> setting(Env &env, const char *name);

// The variable has a value that it does not take. `takes` says what it does.
Failure no_such_setting(const char *name, std::string_view value, std::string_view takes);

}  // namespace st::os
