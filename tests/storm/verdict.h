// What judges saw of a scene when all its writers were dead, held against the ledger.
#pragma once

#include <string>
#include <vector>

#include "scene.h"

namespace st::testing {

// `views`: the version of each cell, as each judge saw it. Empty, or what is wrong.
std::string why_wrong(const Scene &scene, const Ledger &ledger, const std::vector<std::vector<uint64_t>> &views);

}  // namespace st::testing
