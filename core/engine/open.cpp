#include "engine/open.h"

#include "delta/overlay.h"
#include "engine/locate.h"
#include "model/single_file.h"
#include "os/remote_source.h"
#include "shards/shards.h"

namespace st::store {

namespace {

Result<Layers> open_layers(os::Env &env, const std::string &path, const OpenOptions &options) {
  OpenOptions below = options;
  below.deltas.clear();
  ST_TRY(auto base, open_path(env, path, std::move(below)));
  Layers layers{std::move(base), {}};
  for (const std::string &each : options.deltas) {
    ST_TRY(auto opened, DataFile::open(env, each, options));
    layers.deltas.push_back(std::move(opened));
  }
  return layers;
}

Result<std::unique_ptr<Model>> open_located(os::Env &env, const Located &located, OpenOptions options) {
  if (!options.deltas.empty()) return Overlay::open(env, located.path, std::move(options), open_layers);
  if (located.is_index) return Shards::open(env, located.path, std::move(options));
  ST_TRY(auto file, DataFile::open(env, located.path, std::move(options)));
  return std::make_unique<SingleFile>(std::move(file));
}

Result<std::unique_ptr<Model>> open_remote(const std::string &url, OpenOptions options) {
  if (options.writable)
    return fail(Status::unsupported, "what a URL names can only be read; save a copy to a file, and change that");
  ST_TRY(auto source, os::open_url(url));
  return open_source(std::make_shared<os::SourceEnv>(std::move(source)), std::move(options));
}

}  // namespace

Result<std::unique_ptr<Model>> open_path(os::Env &env, const std::string &path, OpenOptions options) {
  if (os::is_url(path)) return open_remote(path, std::move(options));
  ST_TRY(auto located, locate(env, path, false));
  auto opened = open_located(env, located, options);
  if (opened || located.is_index || opened.error().status != Status::not_regular) return opened;
  // Perhaps a folder.
  ST_TRY(located, locate(env, path));
  if (!located.is_index && located.path == path) return opened;
  return open_located(env, located, std::move(options));
}

Result<std::unique_ptr<Model>> open_source(const std::shared_ptr<os::SourceEnv> &source, OpenOptions options) {
  if (!options.deltas.empty())
    return fail(Status::unsupported, "deltas cannot lie on the source ", in_quotes(source->source().name()),
                "; save a copy to a file, and open that with them");
  ST_TRY(auto file, DataFile::open_source(source, std::move(options)));
  return std::make_unique<SingleFile>(std::move(file));
}

Result<std::unique_ptr<Model>> open_memory(os::Env &env, const std::byte *bytes, size_t size) {
  ST_TRY(auto file, DataFile::open_memory(env, bytes, size));
  return std::make_unique<SingleFile>(std::move(file));
}

}  // namespace st::store
