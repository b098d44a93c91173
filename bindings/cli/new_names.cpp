#include "new_names.h"

#include <algorithm>
#include <ctime>
#include <iterator>

#include "text.h"

namespace stctl {
namespace {

std::vector<std::string> sorted_names(const File &file) {
  std::vector<std::string> names;
  for (size_t i = 0; i < file.file_count(); ++i) names.push_back(file.file_name(i));
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> without(const std::vector<std::string> &names, const std::vector<std::string> &others) {
  std::vector<std::string> left;
  std::set_difference(names.begin(), names.end(), others.begin(), others.end(), std::back_inserter(left));
  return left;
}

std::string utc(time_t seconds) {
  struct tm parts = {};
  char out[40] = "";
  gmtime_r(&seconds, &parts);
  strftime(out, sizeof out, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return out;
}

}  // namespace

void add_new_names_options(const Command &command, NewNamesOptions &options) {
  command.flag("--new-names", options.wanted,
               "Give shards that are rewritten new names (….g1.safetensors),\n"
               "so that who has read the old index still finds all it names,\n"
               "at one copy. Until the old shards go, tools that take\n"
               "*.safetensors and not the index take old and new ones");
  command.option("--shard-grace", options.grace_s, "SECONDS",
                 "With --new-names: keep old shards so long (default 3600);\n"
                 "the next such change removes them, or stctl recover");
}

ShardNames::ShardNames(const File &file, const NewNamesOptions &options) : options_(options) {
  if (options_.wanted) before_ = sorted_names(file);
}

void ShardNames::compare(const File &file) {
  if (!options_.wanted) return;
  const std::vector<std::string> after = sorted_names(file);
  new_ = without(after, before_);
  old_ = without(before_, after);
  until_ = utc(time(nullptr) + static_cast<time_t>(options_.grace_s));
}

void ShardNames::tell(Output &out) const {
  for (const std::string &name : new_) out.print("new shard {}\n", escape(name));
  for (const std::string &name : old_) out.print("old shard {} stays until {}\n", escape(name), until_);
}

void ShardNames::write(Json &json) const {
  if (!options_.wanted) return;
  json.names("new_shards", new_);
  json.names("old_shards", old_);
  json.key("old_until");
  if (old_.empty()) {
    json.null();
  } else {
    json.value(until_);
  }
}

}  // namespace stctl
