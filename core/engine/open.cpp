#include "model/collection.h"

#include "delta/layered.h"
#include "engine/locate.h"
#include "model/one_file.h"
#include "shards/shards.h"

namespace st::store {

namespace {

Result<std::unique_ptr<Collection>> open_located(os::Env &env, const Located &located, OpenOptions options) {
  if (!options.deltas.empty()) return Layered::open(env, located.path, std::move(options));
  if (located.is_index) return Shards::open(env, located.path, std::move(options));
  auto file = Checkpoint::open(env, located.path, std::move(options));
  if (!file) return Failure(std::move(file.error()));
  return std::make_unique<OneFile>(std::move(*file));
}

}  // namespace

Result<std::unique_ptr<Collection>> Collection::open(os::Env &env, const std::string &path, OpenOptions options) {
  auto located = locate(env, path, false);
  if (!located) return Failure(std::move(located.error()));
  auto opened = open_located(env, *located, options);
  if (opened || located->is_index || opened.error().status != Status::not_regular) return opened;
  // Perhaps a folder.
  located = locate(env, path);
  if (!located) return Failure(std::move(located.error()));
  if (!located->is_index && located->path == path) return opened;
  return open_located(env, *located, std::move(options));
}

Result<std::unique_ptr<Collection>> Collection::open_memory(os::Env &env, const std::byte *bytes, size_t size) {
  auto file = Checkpoint::open_memory(env, bytes, size);
  if (!file) return Failure(std::move(file.error()));
  return std::make_unique<OneFile>(std::move(*file));
}

}  // namespace st::store
