// A base, one file or shards, and deltas folded into one new file. Bytes go from file to file inside the
// kernel, shared where the filesystem can; none of the sources is changed.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "delta/delta_file.h"

namespace st::store {

// Each delta keeps its file. `all_read` is called when nothing more is read of the sources. Statuses: delta,
// delta_base, those of saving.
Result<void> merge(os::Env &env, const Model &base, std::span<const DeltaFile> layers, const std::string &to,
                   write::SaveOptions options, const std::function<void()> &all_read);

}  // namespace st::store
