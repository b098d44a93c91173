#include "newfile/layout.h"

#include "format/header.h"

namespace st::write {

Result<void> check_data_begin(uint64_t alignment, uint64_t reserve) {
  constexpr uint64_t largest = uint64_t{1} << 20;
  if (alignment % 8 != 0 || alignment > largest)
    return fail(Status::invalid_argument, "an alignment of ", alignment, " is not a multiple of 8 of at most ",
                largest);
  if (reserve > max_header_bytes)
    return fail(Status::header_too_large, "a header reserve of ", reserve, " bytes is more than the format's ",
                max_header_bytes);
  return {};
}

}  // namespace st::write
