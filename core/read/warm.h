// Bringing stretches of a file into memory ahead of their use, so that views do
// not wait for the storage: into the page cache, and where that is bypassed,
// into the mapping.
#pragma once

#include <vector>

#include "read/bulk.h"
#include "read/content.h"

namespace st::read {

// `content` is a mapping of `file`. The pieces' `to` is not looked at.
Result<BulkDone> warm(const os::File &file, const Content &content, std::vector<Piece> pieces, const Strategy &strategy,
                      const Control &control);

// The same where `content` is a copy-on-write mapping: what was written there stays, and the pages of all pieces become
// this process's own. None of the file shows in them later, but a truncation.
Result<BulkDone> own(const os::File &file, const Content &content, std::vector<Piece> pieces, const Strategy &strategy,
                     const Control &control);

}  // namespace st::read
