#include "os/path.h"

#include <algorithm>

namespace st::os {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// "//server/share/", of what begins so.
size_t end_of_share(std::string_view path) {
  const size_t server = path.find('/', 2);
  if (server == std::string_view::npos) return path.size();
  const size_t share = path.find('/', server + 1);
  return share == std::string_view::npos ? path.size() : share + 1;
}

}  // namespace

std::string plain_path(const std::string &given) {
  std::string path = given;
  std::replace(path.begin(), path.end(), '\\', '/');
  for (const char *prefix : {"//?/UNC/", "//?/"})  // every path may be long here
    if (path.starts_with(prefix)) {
      path.erase(0, std::string_view(prefix).size());
      return prefix[4] == 'U' ? "//" + path : path;
    }
  return path;
}

std::string_view root_of(std::string_view path) {
  if (path.size() >= 3 && is_letter(path[0]) && path[1] == ':' && path[2] == '/') return path.substr(0, 3);
  if (path.starts_with("//")) return path.substr(0, end_of_share(path));
  return path.substr(0, path.starts_with('/') ? 1 : 0);
}

}  // namespace st::os
