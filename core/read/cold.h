// What of a file is in memory already, for a bulk read that goes about it another way then.
#pragma once

#include "os/file.h"
#include "read/requests.h"

namespace st::read {

// Is this the first bulk read of a file that is not in memory? Such a read is faster past the page cache; but a file
// that is loaded again and again, or by several processes at once, belongs into it.
//
// True once: the answer leaves a mark, the file's last page in the page cache. The next load of the file finds it, in
// any process, until the kernel needs the memory. False also where the system does not tell.
bool is_first_load(const os::File &file, const Plan &plan);

// Are the bytes of the requests in memory, gaps included? Looked at in a few places. False also where the system does
// not tell.
bool is_in_memory(const os::File &file, const Plan &plan);

}  // namespace st::read
