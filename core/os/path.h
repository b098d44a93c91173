// What a path looks like here. All of core writes `/` between names.
#pragma once

#include <string>
#include <string_view>

namespace st::os {

// As core writes it: the one that was given, but for what else the platform lets people write.
std::string plain_path(const std::string &given);

// Where an absolute path begins ("/"; on Windows also "C:/" and "//server/share/"). Empty: the path is relative.
std::string_view root_of(std::string_view path);

}  // namespace st::os
