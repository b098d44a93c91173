#include "store/collection.h"

#include "store/layered.h"
#include "store/locate.h"
#include "store/one_file.h"
#include "store/shards.h"

namespace st::store {

Result<std::unique_ptr<Collection>> Collection::open(os::Env &env, const std::string &path, OpenOptions options) {
  if (!options.deltas.empty()) return Layered::open(env, path, std::move(options));
  auto located = locate(env, path, false);
  if (!located) return Failure(std::move(located.error()));
  if (!located->is_index) {
    auto file = Checkpoint::open(env, path, options);
    if (file) return std::make_unique<OneFile>(std::move(*file));
    if (file.error().status != Status::not_regular) return Failure(std::move(file.error()));
    located = locate(env, path);
    if (!located) return Failure(std::move(located.error()));
    if (!located->is_index && located->path == path) return Failure(std::move(file.error()));
  }
  if (!located->is_index) {
    auto file = Checkpoint::open(env, located->path, std::move(options));
    if (!file) return Failure(std::move(file.error()));
    return std::make_unique<OneFile>(std::move(*file));
  }
  auto shards = Shards::open(env, located->path, std::move(options));
  if (!shards) return Failure(std::move(shards.error()));
  return std::move(*shards);
}

Result<std::unique_ptr<Collection>> Collection::open_memory(os::Env &env, const std::byte *bytes, size_t size) {
  auto file = Checkpoint::open_memory(env, bytes, size);
  if (!file) return Failure(std::move(file.error()));
  return std::make_unique<OneFile>(std::move(*file));
}

}  // namespace st::store
