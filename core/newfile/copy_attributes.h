// What a file that takes another's place inherits besides its name: owner,
// extended attributes (ACLs among them) and mode.
#pragma once

#include "base/control.h"
#include "os/file.h"

namespace st::write {

// Only root gives files away. Where the owner may not be kept `log` is told: a LaterLog's, as the new file may never
// take its place. Where the group may not be, the one in its place gets what others may do, too. Fails rather than
// lose an ACL or an attribute of the user's.
Result<void> copy_attributes(const os::File &from, const os::File &to, const Log &log);

}  // namespace st::write
