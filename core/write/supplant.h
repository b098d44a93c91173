// The last step of a save: a new file, whole but for its name, takes that of
// another or of none. What is replaced hands on its rights, and is neither being
// changed nor waiting for recovery when it goes.
#pragma once

#include <string>

#include "control.h"
#include "write/replacement.h"

namespace st::write {

// The path without symbolic links, of a file that need not exist.
Result<std::string> resolve_target(os::Env &env, const std::string &path);

// Status busy: nothing has changed, and it may be called again. Status
// needs_recovery: the new file stands, but a power cut may bring the old one back.
Result<void> supplant(os::Env &env, const std::string &target, Replacement &made, int32_t lock_timeout_ms,
                      const Log &log);

}  // namespace st::write
