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

std::vector<std::string> Neighbours::beginning_with(const Location &file, const std::string &prefix,
                                                    Neighbours *listed) {
  Neighbours once;
  return (listed ? *listed : once).beginning_with(file, prefix);
}

}  // namespace st::os
