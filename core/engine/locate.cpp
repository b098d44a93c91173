#include "engine/locate.h"

#include <algorithm>
#include <vector>

#include "file/snapshot.h"
#include "format/shard_index.h"
#include "newfile/names.h"
#include "os/file.h"
#include "os/location.h"
#include "os/path.h"
#include "os/rename_over.h"
#include "shards/old_list.h"
#include "shards/shards.h"

namespace st::store {
namespace {

mode_t type_of(os::Env &env, const std::string &path) {
  struct stat s;
  return env.fstatat(AT_FDCWD, path.c_str(), &s, 0) < 0 ? 0 : s.st_mode & S_IFMT;
}

bool is_missing(const Error &e) {
  return e.status == Status::no_file || e.status == Status::not_regular;
}

// Is it one of the shards that stay for a while after their index named them?
Result<bool> is_listed(os::Env &env, const std::string &list, const std::string &file) {
  ST_TRY(const auto at, os::Location::find(env, list));
  auto opened = os::open_regular(at, O_RDONLY);
  if (!opened) return is_missing(opened.error()) ? Result<bool>(false) : Failure(std::move(opened.error()));
  ST_TRY(const auto s, opened->stat());
  std::string text(std::min(static_cast<uint64_t>(s.st_size), write::longest_old_list + 1), '\0');
  ST_TRY(opened->read(text.data(), text.size(), 0));
  const auto listed = write::parse_old_list(text);
  return listed && std::any_of(listed->begin(), listed->end(), [&](const auto &old) { return old.name == file; });
}

// Is the file a shard of the index, or was it, until the shard got a new name or lost its tensors? An index that is
// damaged, or gone, has none.
Result<bool> is_shard_of(os::Env &env, const std::string &folder, const std::string &index, const std::string &file) {
  ST_TRY(const auto at, os::Location::find(env, folder + index));
  auto read = Shards::read_index(at, {default_lock_timeout_ms});
  if (!read) {
    constexpr Status damaged[] = {Status::shard_index, Status::shard_duplicate, Status::shard_path};
    const bool has_none = std::find(std::begin(damaged), std::end(damaged), read.error().status) != std::end(damaged);
    return has_none || is_missing(read.error()) ? Result<bool>(false) : Failure(std::move(read.error()));
  }
  const std::vector<std::string> &shards = read->index().shards();
  const bool is_named = std::any_of(shards.begin(), shards.end(), [&](const std::string &shard) {
    return shard == file || write::with_generation(shard, 0) == file;
  });
  // The list after the index: a commit writes it before.
  return is_named ? Result<bool>(true) : is_listed(env, folder + write::old_list_name(index), file);
}

// A shard without tensors is named by its index no more. A file that is not understood has some. No
// journal is looked at: what waits in one is told by the call that opens, verifies or recovers the file.
bool holds_tensors(os::Env &env, const std::string &file) {
  const auto at = os::Location::find(env, file);
  if (!at) return true;
  const auto snapshot = os::while_stale([&]() -> Result<std::unique_ptr<Snapshot>> {
    ST_TRY(auto opened, os::open_regular(*at, O_RDONLY));
    return Snapshot::take(std::move(opened), {read::MapMode::none, true, nullptr, {}});
  });
  return !snapshot || (*snapshot)->header.index.size() != 0;
}

// On btrfs a list may lack the name while another index takes it. Where cases are one, the list may have it otherwise.
bool lacks_index(os::Env &env, const std::string &folder, const std::string &name,
                 const std::vector<std::string> &listed) {
  struct stat s, other;
  if (std::ranges::find(listed, name) != listed.end()) return false;
  if (env.fstatat(AT_FDCWD, (folder + name).c_str(), &s, 0) < 0 || !S_ISREG(s.st_mode)) return false;
  return std::ranges::none_of(listed, [&](const std::string &index) {
    return env.fstatat(AT_FDCWD, (folder + index).c_str(), &other, 0) == 0 && os::same_inode(s, other);
  });
}

}  // namespace

Result<Located> locate(os::Env &env, const std::string &given, bool maybe_folder) {
  const std::string path = os::plain_path(given);
  constexpr const char *usual = "model.safetensors", *usual_index = "model.safetensors.index.json";
  if (is_index_name(path)) return Located{path, true};
  if (!maybe_folder || type_of(env, path) != S_IFDIR) return Located{path};
  ST_TRY(auto dir, os::File::open(env, AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, path));
  std::vector<std::string> names;
  if (const int r = env.list(dir.fd(), &names); r < 0) return Failure(dir.error(-r, "list"));
  os::add_replaced(&names);
  const std::string inside = path.ends_with('/') ? path : path + "/";
  std::vector<std::string> indexes;
  std::copy_if(names.begin(), names.end(), std::back_inserter(indexes),
               [](const std::string &name) { return !name.starts_with('.') && is_index_name(name); });
  if (lacks_index(env, inside, usual_index, indexes)) indexes.emplace_back(usual_index);
  if (type_of(env, inside + usual) == S_IFREG) {
    bool is_shard = false;
    for (const std::string &index : indexes) {
      ST_TRY(const bool found, is_shard_of(env, inside, index, usual));
      is_shard |= found;
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
