// The number of this process. Another one in a child of a fork, also where no library was told of that.
#pragma once

#include <cstdint>

namespace st::remote {

int64_t this_process();

}  // namespace st::remote
