// What a journal knows a data file by: inode, size and the hash of its header.
#pragma once

#include "os/file.h"
#include "write/journal_layout.h"

namespace st::write {

// Reads the header anew. Fails if there is none: see parse_header_length.
Result<Identity> identify(const os::File &file);

}  // namespace st::write
