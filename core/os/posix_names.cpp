#include "os/posix_names.h"

#include <dirent.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace st::os {

int real_path(const char *path, std::string *out) {
  std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path, nullptr), &std::free);
  if (!resolved) return -errno;
  *out = resolved.get();
  return 0;
}

int read_link(int dir, const char *name, std::string *out) {
  char target[PATH_MAX];
  const ssize_t n = ::readlinkat(dir, name, target, sizeof target);
  if (n < 0) return -errno;
  if (static_cast<size_t>(n) == sizeof target) return -ENAMETOOLONG;
  out->assign(target, static_cast<size_t>(n));
  return 0;
}

int list_names(int folder, std::vector<std::string> *out) {
  DIR *stream = ::fdopendir(folder);
  if (!stream) {
    const int err = errno;
    ::close(folder);
    return -err;
  }
  struct Close {
    void operator()(DIR *d) const { ::closedir(d); }
  };
  const std::unique_ptr<DIR, Close> owner(stream);
  out->clear();
  for (errno = 0; const dirent *entry = ::readdir(stream); errno = 0)
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) out->emplace_back(entry->d_name);
  return -errno;
}

}  // namespace st::os
