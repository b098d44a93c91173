// Where the data of a new file begins: aligned, and so that it can share as many blocks of the old file as possible.
#pragma once

#include <span>

#include "newfile/publish_plan.h"

namespace st::write {

// `least`: the header ends there. `old`: where the data of the old file begins, which the kept layout keeps if it can.
uint64_t choose_data_offset(uint64_t least, uint64_t old, std::span<const PlannedSegment> segments,
                            const PlanOptions &options);

// Where data begin behind a header that ends there. An alignment of 0 is the default one, and no more than a wish:
// where the format's limit leaves no room for it, data begin at a multiple of 8, as stock's do.
uint64_t data_offset_behind(uint64_t header_end, uint64_t alignment);

// At a multiple of `alignment`, behind so many spare bytes in the header: statuses
// invalid_argument, header_too_large.
Result<void> check_data_begin(uint64_t alignment, uint64_t reserve);

}  // namespace st::write
