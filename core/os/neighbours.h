// The names that lie in folders, each folder listed once, for a look at many files
// beside each other. What comes later is not seen.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "os/location.h"

namespace st::os {

class Neighbours {
 public:
  // Those in the folder of `file` that begin with `prefix`; none where it cannot be listed.
  std::vector<std::string> beginning_with(const Location &file, const std::string &prefix);
  // The same without this object, by a listing of its own.
  static std::vector<std::string> beginning_with(const Location &file, const std::string &prefix, Neighbours *listed);

 private:
  std::map<std::pair<dev_t, ino_t>, std::vector<std::string>> by_folder_;  // sorted
};

}  // namespace st::os
