// The first lines of an answer.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace st::remote {

struct Head {
  int code = 0;
  std::vector<std::pair<std::string, std::string>> fields;  // names in lower case

  // Empty: there is no such field.
  std::string_view field(std::string_view name) const {
    for (const auto &[known, value] : fields)
      if (known == name) return value;
    return {};
  }

  // One more line, with or without its end. False: there are too many, or it is too long.
  bool take(std::string_view line);
};

}  // namespace st::remote
