// What a path leads to, opened: the one place that knows every kind of model.
#pragma once

#include "model/model.h"
#include "os/source_env.h"

namespace st::store {

// A file; an index of shards; or a folder that holds one of the two (locate.h). With options.deltas
// under these. Each is a path or a URL.
Result<std::unique_ptr<Model>> open_path(os::Env &env, const std::string &path, OpenOptions options);
Result<std::unique_ptr<Model>> open_memory(os::Env &env, const std::byte *bytes, size_t size);

// A file that is no index, by its path or URL, for reading only: a delta. `folders`: those of the other deltas.
Result<std::unique_ptr<DataFile>> open_file(os::Env &env, const std::string &path, OpenOptions options,
                                            os::Folders *folders = nullptr);

// For reading only; without deltas.
Result<std::unique_ptr<Model>> open_source(const std::shared_ptr<os::SourceEnv> &source, OpenOptions options);

}  // namespace st::store
