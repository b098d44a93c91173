// Is a bulk read the first one of a file that is not in memory? Such a read is
// faster past the page cache; but a file that is loaded again and again, or by
// several processes at once, belongs into it.
#pragma once

#include "os/file.h"
#include "read/requests.h"

namespace st::read {

// True once: the answer leaves a mark, the file's last page in the page cache. The next load of the file finds it, in
// any process, until the kernel needs the memory. False also where the system does not tell.
bool is_first_load(const os::File &file, const Plan &plan);

}  // namespace st::read
