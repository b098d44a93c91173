// A damaged journal is moved aside: it keeps its bytes for somebody to look at, as `<id>.bad`, and is never applied.
#pragma once

#include <string>

#include "journal/journal_folder.h"

namespace st::write {

// Durably: answers where it is now. Where something stands that gives way to nothing, it becomes `<id>.2.bad`.
Result<std::string> move_aside(const Folder &folder, const std::string &name);

}  // namespace st::write
