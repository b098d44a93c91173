// The authorities that certificates of servers are held against.
#pragma once

#include <functional>
#include <string>

#include "remote/surroundings.h"

namespace st::remote {

using AskPath = std::function<bool(const std::string &path)>;

// The file that has them. Empty: none was found, and libcurl takes what it was built for. `of_libcurl` is that file; it
// is not there where libcurl was built for another system, as the one of a wheel. `folder` has this library.
std::string certificates(const Surroundings &from, const std::string &of_libcurl, const std::string &folder,
                         const AskPath &is_readable, const AskPath &is_folder);

// The folder whose files count, too; empty: there is none.
std::string folder_of_certificates(const Surroundings &from, const AskPath &is_folder);

}  // namespace st::remote
