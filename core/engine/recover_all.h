// Recovery by the path that a user gives: of a file, or of an index and all its
// shards.
#pragma once

#include "journal/recover.h"

namespace st::store {

// Statuses as of write::recover().
Result<write::Recovered> recover_all(os::Env &env, const std::string &path, const os::LockWait &wait,
                                     const write::Findings &findings);

}  // namespace st::store
