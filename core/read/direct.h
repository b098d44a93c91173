// Bulk reads past the page cache: O_DIRECT, many requests under way at once,
// through a queue of the kernel's (io_uring) or, where there is none, a pool of
// threads. What does not lie on 4096-byte borders goes through bounce buffers.
#pragma once

#include <optional>

#include "read/bulk.h"
#include "read/requests.h"

namespace st::read {

inline constexpr uint64_t direct_alignment = 4096;

// Nothing, if the file cannot be opened so: read it the usual way.
Result<std::optional<BulkDone>> read_direct(const os::File &file, const Plan &plan, const Strategy &strategy,
                                            const Control &control);

// One request the usual way. `parts` and `scratch` are memory to reuse.
Result<void> read_request(const os::File &file, const Plan &plan, const Request &request,
                          std::vector<struct iovec> *parts, std::vector<std::byte> *scratch);

}  // namespace st::read
