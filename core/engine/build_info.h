// What this libst is made of, what it runs on, and what it does without there. For people, and for reports of bugs.
#pragma once

#include <string>
#include <string_view>

#include "os/env.h"

namespace st::store {

// "name: value" a line; st_build_info in st.h tells which. `version` is that of the interface.
std::string build_info(os::Env &env, std::string_view version);

}  // namespace st::store
