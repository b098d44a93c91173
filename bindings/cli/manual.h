// The man page, made from the options and texts of --help, so that there is one truth.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace stctl {

// roff, for section 1.
std::string manual(const CLI::App &app, const std::string &version);

// The commands that are for people, in the order of --help.
std::vector<const CLI::App *> commands_of(const CLI::App &app);

// The first line of a command's description.
std::string summary_of(const CLI::App &command);

}  // namespace stctl
