// The man page, made from the options and texts of --help, so that there is one truth.
#pragma once

#include <string>

#include "command_line.h"

namespace stctl {

// roff, for section 1.
std::string manual(const CommandText &all, const std::string &version);

}  // namespace stctl
