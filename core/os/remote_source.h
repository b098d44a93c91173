// Objects behind a URL, as sources. What knows the network is libst-remote.so.2, which is loaded at the first URL: so
// libst needs no network library until then.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "os/source_env.h"

namespace st::os {

// SCHEME://…; all else is a path.
bool is_url(std::string_view path);

// Without what follows the path of a URL, which may be a secret.
std::string path_of_url(const std::string &url);

// The URL of what has this name in that folder, which ends with a slash.
std::string url_in(const std::string &folder, std::string_view name);

// `beside`: a source whose connections this one shares; may be null. Status unsupported: libst-remote.so.2 is not
// there, or the scheme is not known; else what the server says.
Result<std::unique_ptr<Source>> open_url(const std::string &url, const Source *beside = nullptr);

// Loads libst-remote.so.2 as the first URL does. Status unsupported: it cannot be loaded, and why.
Result<void> load_remote();

}  // namespace st::os
