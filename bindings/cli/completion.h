// What shells complete after "stctl", made from the same options as --help: commands,
// options, files, and the names of the tensors of the file that stands before.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace stctl {

std::string bash_completion(const CLI::App &app);
std::string zsh_completion(const CLI::App &app);
std::string fish_completion(const CLI::App &app);

}  // namespace stctl
