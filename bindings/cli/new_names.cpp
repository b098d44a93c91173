#include "new_names.h"

#include <algorithm>
#include <ctime>
#include <iterator>

#include "text.h"

namespace stctl {
namespace {

template <class Shards>
std::vector<std::string> sorted_names(const Shards &shards) {
  std::vector<std::string> names;
  names.reserve(shards.size());
  for (const auto &shard : shards) names.push_back(shard.name);
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
               "at one copy. A stock reader of the old index still finds all\n"
               "that it names; a handle of libst must be refreshed first. Until\n"
               "the old shards go, tools that take *.safetensors and not the\n"
               "index take old and new ones");
  command
      .option("--shard-grace", options.grace_s, "SECONDS",
              "With --new-names: keep old shards so long (default 3600);\n"
              "the next such change removes them, or stctl recover")
      .at_least(0);
}

std::vector<ShardNames::Shard> ShardNames::shards_of(const File &file) {
  std::vector<Shard> shards;
  for (uint32_t i = 0; i < file.file_count(); ++i) {
    const std::string path = file.file_path(i);
    shards.push_back({path, file.file_name(i), state_of(path)});
  }
  return shards;
}

ShardNames::ShardNames(const File &file, const NewNamesOptions &options)
    : options_(options), before_(file.is_one_file() && !options.wanted ? std::vector<Shard>() : shards_of(file)) {}

void ShardNames::compare(const File &file) {
  compared_ = true;
  for (const Shard &shard : before_) {
    const FileState now = state_of(shard.path);
    if (has_shards() && now.exists && now != shard.file) changed_.push_back(shard.name);
  }
  if (!options_.wanted) return;
  const std::vector<std::string> before = sorted_names(before_), after = sorted_names(shards_of(file));
  new_ = without(after, before);
  old_ = without(before, after);
  until_ = utc(time(nullptr) + static_cast<time_t>(options_.grace_s));
}

void ShardNames::tell(Output &out) const {
  for (const std::string &name : changed_) out.print("changed shard {}\n", escape(name));
  for (const std::string &name : new_) out.print("new shard {}\n", escape(name));
  for (const std::string &name : old_) out.print("old shard {} stays until {}\n", escape(name), until_);
}

void ShardNames::write(Json &json) const {
  if (compared_ && has_shards()) json.names("changed_shards", changed_);
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
