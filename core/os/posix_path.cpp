#include "os/path.h"

namespace st::os {

std::string plain_path(const std::string &given) {
  return given;
}

std::string_view root_of(std::string_view path) {
  return path.substr(0, path.starts_with('/') ? 1 : 0);
}

}  // namespace st::os
