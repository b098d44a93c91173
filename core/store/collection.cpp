#include "store/collection.h"

#include "store/layered.h"
#include "store/locate.h"
#include "store/one_file.h"
#include "store/shards.h"

namespace st::store {

namespace {

Result<std::unique_ptr<Collection>> open_located(os::Env &env, const Located &located, OpenOptions options) {
  if (!options.deltas.empty()) return Layered::open(env, located.path, std::move(options));
  if (located.is_index) return Shards::open(env, located.path, std::move(options));
  ST_TRY(auto file, Checkpoint::open(env, located.path, std::move(options)));
  return std::make_unique<OneFile>(std::move(file));
}

}  // namespace

Result<std::unique_ptr<Collection>> Collection::open(os::Env &env, const std::string &path, OpenOptions options) {
  ST_TRY(auto located, locate(env, path, false));
  auto opened = open_located(env, located, options);
  if (opened || located.is_index || opened.error().status != Status::not_regular) return opened;
  // Perhaps a folder.
  ST_TRY(located, locate(env, path));
  if (!located.is_index && located.path == path) return opened;
  return open_located(env, located, std::move(options));
}

Result<std::unique_ptr<Collection>> Collection::open_memory(os::Env &env, const std::byte *bytes, size_t size) {
  ST_TRY(auto file, Checkpoint::open_memory(env, bytes, size));
  return std::make_unique<OneFile>(std::move(file));
}

}  // namespace st::store
