// A damaged journal is moved aside: it keeps its bytes for somebody to look at, as `<id>.bad`, and is never applied.
#pragma once

#include <string>

#include "journal/journal_folder.h"
#include "os/range_lock.h"

namespace st::write {

// Durably: answers where it is now. Where something stands that gives way to nothing, it becomes `<id>.2.bad`.
Result<std::string> move_aside(const Folder &folder, const std::string &name);

// Call before `fresh` gets the name of a file that is gone: it may have that one's inode and header, and would be taken
// for it. Every journal that waits beside the name is moved aside, and no power cut brings another back. Status busy: a
// writer still has the file that was removed or moved.
Result<void> move_all_aside(const os::Location &file, const struct stat &fresh, const os::LockWait &wait,
                            const Log &log);

}  // namespace st::write
