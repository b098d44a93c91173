// What a journal knows a data file by: inode, size and the hash of its header.
#pragma once

#include "journal/journal_layout.h"
#include "os/file.h"

namespace st::write {

// Reads the header anew. Fails if there is none: see parse_header_length. It likely ends at `likely_end`, so no more is
// read at first.
Result<Identity> identify(const os::File &file, uint64_t likely_end = UINT64_MAX);

}  // namespace st::write
