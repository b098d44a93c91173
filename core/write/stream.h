// Bytes in memory written to a file, piece by piece: so that progress can be
// told, the call be stopped, and the disk begin before the last byte is there.
#pragma once

#include <functional>

#include "control.h"
#include "os/file.h"

namespace st::write {

// `tell` is asked after each piece whether to go on.
Result<void> write_stream(const os::File &to, const void *bytes, uint64_t n, uint64_t offset,
                          const std::function<Result<void>(uint64_t done)> &tell);

}  // namespace st::write
