#include "engine/locate.h"

#include <algorithm>
#include <vector>

#include "format/shard_index.h"
#include "os/file.h"
#include "os/path.h"

namespace st::store {

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
  if (indexes.size() > 1)
    return fail(Status::shard_index, "the folder ", in_quotes(path), " holds ", indexes.size(), " indexes of shards, ",
                in_quotes(*std::min_element(indexes.begin(), indexes.end())),
                " among them; give the path of the one you mean");
  if (indexes.size() == 1) return Located{inside + indexes.front(), true};
  if (std::find(names.begin(), names.end(), usual) != names.end()) return Located{inside + usual};
  return fail(Status::not_regular, in_quotes(path), " is a folder with neither a .safetensors.index.json nor a ", usual,
              " in it; give the path of a .safetensors file");
}

}  // namespace st::store
