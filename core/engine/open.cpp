#include "engine/open.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/url.h"
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
  os::Folders folders;
  for (const std::string &each : options.deltas) {
    ST_TRY(auto opened, open_file(env, each, options, &folders));
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

using Remote = std::shared_ptr<os::SourceEnv>;

Result<Remote> source_of(const std::string &url, const Remote &beside = nullptr) {
  // Its connections are the parent's, which reads from them too.
  if (beside && beside->is_of_parent()) return fail(Status::unsupported, beside->why());
  ST_TRY(auto source, os::open_url(url, beside ? &beside->source() : nullptr));
  return std::make_shared<os::SourceEnv>(std::move(source));
}

// What of the query of an index is for its shards, too: all that does not name a version of the index itself.
std::string query_of_shards(std::string_view query) {
  constexpr std::string_view of_one[] = {"versionid=", "generation=", "snapshot="};
  std::string out;
  for (query = query.substr(std::min<size_t>(query.size(), 1)); !query.empty();) {
    const std::string_view part = query.substr(0, query.find('&'));
    query = query.substr(std::min(part.size() + 1, query.size()));
    const auto names = [part](std::string_view begin) { return lower(part).starts_with(begin); };
    if (std::none_of(std::begin(of_one), std::end(of_one), names)) out += (out.empty() ? "?" : "&") + std::string(part);
  }
  return out;
}

// The index is `path`, a URL without what follows its path; `query` has what follows, and lets in to the shards too.
Result<std::unique_ptr<Model>> open_remote_shards(const std::string &path, const std::string &query,
                                                  const Remote &index, OpenOptions options) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const auto beside = [index, folder, of_shards = query_of_shards(query)](const std::string &name) {
    return source_of(os::url_in(folder, name) + of_shards, index);
  };
  ST_TRY(auto shards,
         Shards::open_sources(os::Env::posix(), *index, without_secrets(path), beside, std::move(options)));
  return shards;
}

// A folder that holds an index, or a file by its usual name.
Result<std::unique_ptr<Model>> open_remote_folder(const std::string &path, const std::string &query,
                                                  OpenOptions options) {
  const std::string index = path + "model.safetensors.index.json";
  auto opened = source_of(index + query);
  if (opened) return open_remote_shards(index, query, *opened, std::move(options));
  // A store that may not tell what is there refuses what is not there.
  const bool is_refused = opened.error().status == Status::permission;
  if (!is_refused && opened.error().status != Status::no_file) return Failure(std::move(opened.error()));
  auto source = source_of(path + "model.safetensors" + query);
  if (!source) {
    const bool is_there = source.error().status != Status::no_file && source.error().status != Status::permission;
    return Failure(std::move(is_refused && !is_there ? opened.error() : source.error()));
  }
  return open_source(*source, std::move(options));
}

// A file; an index of shards; or, with a slash at its end, a folder.
Result<std::unique_ptr<Model>> open_remote(os::Env &env, const std::string &url, OpenOptions options) {
  const std::string path = os::path_of_url(url);
  const auto waits = interrupts_of(options);
  if (options.writable)
    return fail(Status::unsupported, in_quotes(without_secrets(url)),
                " is a URL, and what that names can only be read; save a copy to a file, and change that");
  if (!options.deltas.empty()) return Overlay::open(env, url, std::move(options), open_layers);
  const std::string after = url.substr(path.size()), query = after.substr(0, after.find('#'));
  const bool is_folder = path.ends_with('/') && !path.ends_with("://");  // else it names nothing
  if (is_folder) return open_remote_folder(path, query, std::move(options));
  ST_TRY(const auto source, source_of(url));
  if (is_index_name(path)) return open_remote_shards(path, query, source, std::move(options));
  return open_source(source, std::move(options));
}

// What to do where a path that is not there was a URL. The path may have a secret of the URL.
template <class Opened>
Opened told_if_url(Opened opened, const std::string &path) {
  const std::string url = opened ? std::string() : url_before_path(path);
  if (!url.empty() && opened.error().status == Status::no_file)
    opened.error().message =
        text("there is no file at the path that ", in_quotes(without_secrets(url)),
             " becomes where one slash is made of two, as by Python's pathlib; give the URL as a text");
  return opened;
}

Result<std::unique_ptr<Model>> open_local(os::Env &env, const std::string &path, OpenOptions options) {
  ST_TRY(auto located, locate(env, path, false));
  auto opened = open_located(env, located, options);
  if (opened || located.is_index || opened.error().status != Status::not_regular) return opened;
  // Perhaps a folder.
  ST_TRY(located, locate(env, path));
  if (!located.is_index && located.path == path) return opened;
  return open_located(env, located, std::move(options));
}

}  // namespace

Result<std::unique_ptr<Model>> open_path(os::Env &env, const std::string &path, OpenOptions options) {
  if (os::is_url(path)) return open_remote(env, path, std::move(options));
  return told_if_url(open_local(env, path, std::move(options)), path);
}

Result<std::unique_ptr<DataFile>> open_file(os::Env &env, const std::string &path, OpenOptions options,
                                            os::Folders *folders) {
  if (!os::is_url(path)) return told_if_url(DataFile::open(env, path, std::move(options), folders), path);
  const auto waits = interrupts_of(options);
  ST_TRY(const auto source, source_of(path));
  return DataFile::open_source(source, std::move(options));
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
