// Bulk reads past the page cache: O_DIRECT, by more threads than read through it,
// as each waits for the disk. A disk that is asked for several large requests at
// once answers faster than one that the page cache asks.
#pragma once

#include <optional>

#include "read/bulk.h"
#include "read/requests.h"

namespace st::read {

// Nothing, if the file cannot be opened so: read it the usual way.
Result<std::optional<BulkDone>> read_direct(const os::File &file, const Plan &plan, const Strategy &strategy,
                                            const Control &control);

// One request the usual way. `parts` and `scratch` are memory to reuse.
Result<void> read_request(const os::File &file, const Plan &plan, const Request &request,
                          std::vector<struct iovec> *parts, std::vector<std::byte> *scratch);

}  // namespace st::read
