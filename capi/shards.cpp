// Sharded checkpoints: which files there are, and other files made of them.
#include "boundary.h"
#include "engine/reshape.h"

using namespace st;
using namespace st::capi;

uint32_t st_shard_count(const st_file *file) {
  return file ? static_cast<uint32_t>(file->model->catalogue().members()) : 0;
}

st_status st_shard_path(const st_file *file, uint32_t shard, const char **path) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_shard_path", file, path));
    const store::Catalogue catalogue = file->model->lend();
    if (shard >= catalogue.members())
      return fail(Status::out_of_range, "shard ", shard, " was asked for, of ", catalogue.members());
    const std::string_view found = catalogue.member_path(shard);
    if (found.empty()) return fail(Status::unsupported, "a file that was given as memory, or as a source, has no path");
    *path = found.data();
    return {};
  });
}

st_status st_reshard(const char *from, const char *to_folder, uint64_t max_shard_size, const st_save_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_reshard", from, to_folder));
    ST_TRY(auto options, translate(opts));
    return store::reshard(os::Env::posix(), from, to_folder, max_shard_size, options);
  });
}

st_status st_join(const char *from, const char *to, const st_save_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_join", from, to));
    ST_TRY(auto options, translate(opts));
    return store::join(os::Env::posix(), from, to, options);
  });
}
