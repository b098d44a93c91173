// What a process is told from outside: variables, files, programs, services, the time. Tests put others in their place.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/ascii.h"
#include "remote/credentials/ask.h"
#include "remote/credentials/credentials.h"
#include "remote/credentials/program.h"
#include "remote/this_process.h"

namespace st::remote {

// A bucket of S3, and the region in which it answers.
struct BucketRegion {
  std::string bucket, region;
};

struct Surroundings {
  // An empty variable is none. Line ends at its end, which come with a secret out of a file, are none of it.
  std::function<std::optional<std::string>(const std::string &name)> variable;
  std::function<std::optional<std::string>(const std::string &path)> file;
  // Puts a file that is there in its place whole, for this user alone. False: it stayed as it was.
  std::function<bool(const std::string &path, const std::string &text)> keep_secret = {};
  std::function<Result<std::string>(const Program &program)> run = {};
  Ask ask = {};
  std::function<int64_t()> unix_time = {};
  // Where another file of that commit is open: the shards of an index are of one. Empty: the URL says the revision.
  std::string hub_commit = {};
  // The region of another open object: so a bucket says it once, and not for each shard. Empty: there is none.
  BucketRegion known_region = {};
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
  // Also by "1", "yes" or "on".
  bool is_on(const char *name) const;
  // The path that a variable says, where "~/" begins one in the home of the user. Empty: it is not set.
  std::string path(const char *name) const;
  // May that be asked without encryption?
  bool may_be_plain(const std::string &url) const;
  // A positive number, of at most a billion, or what stands in for one.
  uint64_t number(const char *name, uint64_t otherwise) const;
  // What is in a file of keys or tokens, whose text is wiped. Nothing where there is no file, or it is no JSON.
  std::optional<Json> json_in(const std::string &path) const;
};

}  // namespace st::remote
