// Deltas by the paths that a user gives: what is opened here, delta/ works on.
#pragma once

#include <string>
#include <vector>

#include "delta/delta_patch.h"
#include "delta/diff.h"
#include "file/writer.h"

namespace st::store {

// Statuses: delta if one is none; those of opening. Few files are open at once, however many deltas there are.
Result<DeltaFile> open_delta(os::Env &env, const std::string &path, OpenOptions options);
Result<std::vector<DeltaFile>> open_deltas(os::Env &env, const std::vector<std::string> &paths, OpenOptions options);

// Those of delta/ of the same names. Statuses: also those of opening each.
Result<void> diff(os::Env &env, const std::string &from, const std::string &to, const std::string &delta,
                  const DiffOptions &options);
Result<DeltaPatched> patch(os::Env &env, const std::string &base, const std::string &delta, DeltaPatchOptions options);
// The same through a handle, which shows the result then.
Result<DeltaPatched> patch(os::Env &env, Model &base, const std::string &delta, DeltaPatchOptions options);
// Status invalid_argument for the name of an index.
Result<void> merge(os::Env &env, const std::string &base, const std::vector<std::string> &deltas, const std::string &to,
                   const write::SaveOptions &options);

}  // namespace st::store
