#include "journal/move_aside.h"

#include <cerrno>

namespace st::write {

Result<std::string> move_aside(const Folder &folder, const std::string &name) {
  constexpr int attempts = 100;
  const os::File &dir = folder.dir();
  std::string aside = name + std::string(aside_suffix);
  for (int n = 2;; ++n) {
    const int moved = dir.env().renameat(dir.fd(), name.c_str(), dir.fd(), aside.c_str());
    if (moved >= 0) {
      ST_TRY(dir.sync());
      return dir.path() + "/" + aside;
    }
    // Something stands there that gives way to nothing: a folder, or a file where this is one.
    const bool taken = moved == -ENOTEMPTY || moved == -EEXIST || moved == -EISDIR || moved == -ENOTDIR;
    if (!taken || n > attempts) return Failure(os_error(-moved, "move aside", dir.path() + "/" + name));
    aside = text(name, ".", n, aside_suffix);
  }
}

}  // namespace st::write
