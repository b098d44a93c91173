// What a process is told from outside: variables and files. Tests put others in their place.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace st::remote {

struct Surroundings {
  // An empty variable is none.
  std::function<std::optional<std::string>(const std::string &name)> variable;
  std::function<std::optional<std::string>(const std::string &path)> file;

  static Surroundings of_process();
  // The first of these variables that is set.
  std::optional<std::string> first(std::initializer_list<const char *> names) const {
    for (const char *name : names)
      if (auto value = variable(name)) return value;
    return std::nullopt;
  }
  // A positive number, or what stands in for one.
  uint64_t number(const char *name, uint64_t otherwise) const;
};

}  // namespace st::remote
