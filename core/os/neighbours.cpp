#include "os/neighbours.h"

#include <algorithm>

namespace st::os {

std::vector<std::string> Neighbours::beginning_with(const Location &file, const std::string &prefix) {
  const auto folder = file.folder()->identity();
  if (!folder) return {};
  const auto [found, fresh] = by_folder_.try_emplace({folder->st_dev, folder->st_ino});
  std::vector<std::string> &names = found->second;
  if (fresh)
    if (auto listed = file.folder()->list()) {
      names = std::move(*listed);
      std::sort(names.begin(), names.end());
    }
  const auto begin = std::lower_bound(names.begin(), names.end(), prefix);
  const auto end = std::find_if(begin, names.end(), [&](const std::string &name) { return !name.starts_with(prefix); });
  return {begin, end};
}

// The folder may hold a hundred thousand files, of which each is saved after a look like this: only what is asked for
// is put in order.
std::vector<std::string> Neighbours::beginning_with(const Location &file, const std::string &prefix,
                                                    Neighbours *listed) {
  if (listed) return listed->beginning_with(file, prefix);
  auto names = file.folder()->list();
  if (!names) return {};
  std::erase_if(*names, [&](const std::string &name) { return !name.starts_with(prefix); });
  std::sort(names->begin(), names->end());
  return std::move(*names);
}

}  // namespace st::os
