#include "store/collection.h"

#include "store/layered.h"
#include "store/one_file.h"

namespace st::store {

Result<std::unique_ptr<Collection>> Collection::open(os::Env &env, const std::string &path, OpenOptions options) {
  if (!options.deltas.empty()) return Layered::open(env, path, std::move(options));
  auto file = Checkpoint::open(env, path, std::move(options));
  if (!file) return Failure(std::move(file.error()));
  return std::make_unique<OneFile>(std::move(*file));
}

Result<std::unique_ptr<Collection>> Collection::open_memory(os::Env &env, const std::byte *bytes, size_t size) {
  auto file = Checkpoint::open_memory(env, bytes, size);
  if (!file) return Failure(std::move(file.error()));
  return std::make_unique<OneFile>(std::move(*file));
}

}  // namespace st::store
