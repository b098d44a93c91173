// How much the programs of many trials try. Slow builds (sanitizers, coverage) set ST_TEST_BOUND=small and take a share
// of what the plain build takes in the same CI run: the same code is run, on fewer disks, and on smaller files.
#pragma once

#include <cstdlib>
#include <string_view>

namespace st::testing {

inline bool small_bound() {
  const char *bound = std::getenv("ST_TEST_BOUND");
  return bound && std::string_view(bound) == "small";
}

}  // namespace st::testing
