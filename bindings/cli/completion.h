// What shells complete after "stctl", made from the same options as --help: commands,
// options, files, and the names of the tensors of the file that stands before.
#pragma once

#include <string>

#include "command_line.h"

namespace stctl {

std::string bash_completion(const CommandText &all);
std::string zsh_completion(const CommandText &all);
std::string fish_completion(const CommandText &all);

}  // namespace stctl
