#include "engine/locate.h"

#include <algorithm>
#include <vector>

#include "file/snapshot.h"
#include "format/shard_index.h"
#include "newfile/names.h"
#include "os/file.h"
#include "os/location.h"
#include "os/path.h"
#include "shards/shards.h"

namespace st::store {
namespace {

mode_t type_of(os::Env &env, const std::string &path) {
  struct stat s;
  return env.fstatat(AT_FDCWD, path.c_str(), &s, 0) < 0 ? 0 : s.st_mode & S_IFMT;
}

// Is one of its shards this file? An index that is damaged, or gone, has none. With `old_too` also one that was made of
// it under a new name: the file stays for a while, and holds the state of before.
Result<bool> names_shard(os::Env &env, const std::string &index, const std::string &file, bool old_too) {
  ST_TRY(const auto at, os::Location::find(env, index));
  auto read = Shards::read_index(at);
  if (!read) {
    constexpr Status none[] = {Status::shard_index, Status::shard_duplicate, Status::shard_path, Status::no_file,
                               Status::not_regular};
    if (std::find(std::begin(none), std::end(none), read.error().status) != std::end(none)) return false;
    return Failure(std::move(read.error()));
  }
  const std::vector<std::string> &shards = read->index.shards();
  return std::any_of(shards.begin(), shards.end(), [&](const std::string &shard) {
    return shard == file || (old_too && write::with_generation(shard, 0) == file);
  });
}

// A shard from which all tensors were removed is named by its index no more. A file that is not understood has some. No
// journal is looked at: what waits is for whoever opens, verifies or recovers it.
bool holds_tensors(os::Env &env, const std::string &file) {
  const auto at = os::Location::find(env, file);
  if (!at) return true;
  auto opened = os::open_regular(*at, O_RDONLY);
  if (!opened) return true;
  const auto snapshot = Snapshot::take(std::move(*opened), {read::MapMode::none, true, nullptr, {}});
  return !snapshot || (*snapshot)->header.index.size() != 0;
}

}  // namespace

Result<Located> locate(os::Env &env, const std::string &given, bool maybe_folder) {
  const std::string path = os::plain_path(given);
  constexpr const char *usual = "model.safetensors";
  if (is_index_name(path)) return Located{path, true};
  if (!maybe_folder || type_of(env, path) != S_IFDIR) return Located{path};
  ST_TRY(auto dir, os::File::open(env, AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, path));
  std::vector<std::string> names;
  if (const int r = env.list(dir.fd(), &names); r < 0) return Failure(dir.error(-r, "list"));
  const std::string inside = path.ends_with('/') ? path : path + "/";
  std::vector<std::string> indexes;
  std::copy_if(names.begin(), names.end(), std::back_inserter(indexes),
               [](const std::string &name) { return !name.starts_with('.') && is_index_name(name); });
  if (type_of(env, inside + usual) == S_IFREG) {
    bool is_shard = false;
    for (const std::string &index : indexes) {
      const bool old_stay = std::find(names.begin(), names.end(), write::old_list_name(index)) != names.end();
      ST_TRY(const bool named, names_shard(env, inside + index, usual, old_stay));
      is_shard |= named;
    }
    if (!is_shard && (indexes.empty() || holds_tensors(env, inside + usual))) return Located{inside + usual};
  }
  if (indexes.size() > 1)
    return fail(Status::shard_index, "the folder ", in_quotes(path), " holds ", indexes.size(), " indexes of shards, ",
                in_quotes(*std::min_element(indexes.begin(), indexes.end())),
                " among them; give the path of the one you mean");
  if (indexes.size() == 1) return Located{inside + indexes.front(), true};
  if (std::find(names.begin(), names.end(), usual) != names.end()) return Located{inside + usual};  // for its error
  return fail(Status::not_regular, in_quotes(path), " is a folder with neither a .safetensors.index.json nor a ", usual,
              " in it; give the path of a .safetensors file");
}

}  // namespace st::store
