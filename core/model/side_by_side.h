// Members whose opens wait for a server are opened side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <set>

#include "base/control.h"
#include "os/env.h"

namespace st::store {

// Opens these members, at most so many at once, on threads. The caller is asked on its own. An error is that of the
// first member that fails, in their order; or the caller's wish, which `control` tells.
Result<void> open_side_by_side(os::Env &env, const std::set<uint32_t> &members, unsigned most, const Control &control,
                               const std::function<Result<void>(uint32_t)> &open);

}  // namespace st::store
