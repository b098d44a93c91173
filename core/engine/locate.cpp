#include "engine/locate.h"

#include <algorithm>
#include <vector>

#include "format/shard_index.h"
#include "os/file.h"
#include "os/location.h"
#include "os/path.h"
#include "shards/shards.h"

namespace st::store {
namespace {

// Does the index lead to this file? One that is damaged leads nowhere.
Result<bool> leads_to(os::Env &env, const std::string &index, const char *file) {
  ST_TRY(const auto at, os::Location::find(env, index));
  auto read = Shards::read_index(at);
  if (!read) {
    const Status why = read.error().status;
    if (why == Status::shard_index || why == Status::shard_duplicate || why == Status::shard_path) return false;
    return Failure(std::move(read.error()));
  }
  const std::vector<std::string> &shards = read->index.shards();
  return std::find(shards.begin(), shards.end(), file) != shards.end();
}

}  // namespace

Result<Located> locate(os::Env &env, const std::string &given, bool maybe_folder) {
  const std::string path = os::plain_path(given);
  constexpr const char *usual = "model.safetensors";
  if (is_index_name(path)) return Located{path, true};
  struct stat s;
  if (!maybe_folder || env.fstatat(AT_FDCWD, path.c_str(), &s, 0) < 0 || !S_ISDIR(s.st_mode)) return Located{path};
  ST_TRY(auto dir, os::File::open(env, AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, path));
  std::vector<std::string> names;
  if (const int r = env.list(dir.fd(), &names); r < 0) return Failure(dir.error(-r, "list"));
  const std::string inside = path.ends_with('/') ? path : path + "/";
  std::vector<std::string> indexes;
  std::copy_if(names.begin(), names.end(), std::back_inserter(indexes),
               [](const std::string &name) { return !name.starts_with('.') && is_index_name(name); });
  if (std::find(names.begin(), names.end(), usual) != names.end()) {
    bool is_a_shard = false;
    if (indexes.size() == 1) {
      ST_TRY(is_a_shard, leads_to(env, inside + indexes.front(), usual));
    }
    if (!is_a_shard) return Located{inside + usual};
  }
  if (indexes.size() > 1)
    return fail(Status::shard_index, "the folder ", in_quotes(path), " holds ", indexes.size(), " indexes of shards, ",
                in_quotes(*std::min_element(indexes.begin(), indexes.end())),
                " among them; give the path of the one you mean");
  if (indexes.size() == 1) return Located{inside + indexes.front(), true};
  return fail(Status::not_regular, in_quotes(path), " is a folder with neither a .safetensors.index.json nor a ", usual,
              " in it; give the path of a .safetensors file");
}

}  // namespace st::store
