// Variables and files of a test, and the services beside it: a function.
#pragma once

#include <map>
#include <string>

#include "remote/surroundings.h"

namespace st::remote {

inline Surroundings with(std::map<std::string, std::string> variables, std::map<std::string, std::string> files = {}) {
  const auto in = [](auto all) {
    return [all](const std::string &name) -> std::optional<std::string> {
      const auto found = all.find(name);
      return found == all.end() ? std::nullopt : std::optional(found->second);
    };
  };
  Surroundings out{in(variables), in(files)};
  out.run = [](const auto &) -> Result<std::string> { return fail(Status::permission, "there are no programs"); };
  out.ask = [](const Question &) { return Answer{.cut = Cut::unreachable, .why = "there is no network"}; };
  out.unix_time = [] { return int64_t{1369353600}; };
  return out;
}

}  // namespace st::remote
