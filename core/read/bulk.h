// Many stretches of a file at once: sorted by offset, joined into large
// requests, small gaps read through, each thread on a descriptor of its own.
// Goes through the file once, forwards. Never touches a mapping, so a file that
// is truncated meanwhile is an error here and never a signal.
#pragma once

#include <vector>

#include "base/control.h"
#include "os/file.h"
#include "read/strategy.h"

namespace st::read {

// A stretch of the file, and where its bytes go; null: nowhere, they are only
// to pass through the page cache.
struct Piece {
  uint64_t offset;
  uint64_t length;
  std::byte *to;
  bool fresh = false;  // nobody has touched that memory yet (fresh_memory.h)
};

struct BulkDone {
  uint64_t bytes = 0;  // read from the file, gaps included
  uint64_t requests = 0;
};

// Reads all pieces, in an order of its own. `memory_limit` bytes of page cache
// may stay behind (0: any); progress counts the pieces' bytes. The calling thread works too, and
// only it calls `control`'s progress.
Result<BulkDone> read_pieces(const os::File &file, std::vector<Piece> pieces, const Strategy &strategy,
                             uint64_t memory_limit, const Control &control);

// Open the file again: with its own file description the kernel, or a daemon behind
// it, sees one sequential reader. Status file_changed if `file` can only be reached
// by a path that names another by now.
Result<os::File> reopen_file(const os::File &file, int flags);

}  // namespace st::read
