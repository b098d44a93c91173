// What a process is told from outside: variables, files, programs, services, the time. Tests put others in their place.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "remote/ascii.h"
#include "remote/credentials/ask.h"
#include "remote/credentials/credentials.h"

namespace st::remote {

struct Surroundings {
  // An empty variable is none.
  std::function<std::optional<std::string>(const std::string &name)> variable;
  std::function<std::optional<std::string>(const std::string &path)> file;
  std::function<Result<std::string>(const std::vector<std::string> &words)> run = {};
  Ask ask = {};
  std::function<int64_t()> unix_time = {};
  KeptCredentials *kept = nullptr;  // outlives what asks by them, which has a copy of all this; null: nothing is kept

  // All but `ask`, which wants a transport.
  static Surroundings of_process();
  // The first of these variables that is set.
  std::optional<std::string> first(std::initializer_list<const char *> names) const {
    for (const char *name : names)
      if (auto value = variable(name)) return value;
    return std::nullopt;
  }
  bool is_true(const char *name) const { return lower(variable(name).value_or("")) == "true"; }
  // May that be asked without encryption?
  bool may_be_plain(const std::string &url) const;
  // A positive number, or what stands in for one.
  uint64_t number(const char *name, uint64_t otherwise) const;
};

}  // namespace st::remote
