#include "verdict.h"

#include <bit>

namespace st::testing {

std::string why_wrong(const Scene &scene, const Ledger &ledger, const std::vector<std::vector<uint64_t>> &views) {
  if (ledger.has_complaint()) return ledger.complaint();
  for (const auto &view : views)
    for (uint32_t c = 0; c < scene.cells(); ++c)
      if (view[c] != views.front()[c])
        return "several opened the file at once, and did not see the same: cell " + std::to_string(c) +
               " in versions " + std::to_string(views.front()[c]) + " and " + std::to_string(view[c]) +
               "\nwhat came to it last:\n" + ledger.last_of(c);
  const auto &versions = views.front();
  for (const uint32_t group : scene.groups())
    for (uint32_t first = static_cast<uint32_t>(std::countr_zero(group)), c = first; c < scene.cells(); ++c)
      if ((group >> c & 1) && versions[c] != versions[first])
        return "cells " + std::to_string(first) + " and " + std::to_string(c) +
               " only change together, but hold versions " + std::to_string(versions[first]) + " and " +
               std::to_string(versions[c]);
  if (std::string why = why_not_serial(ledger.since_start(), versions); !why.empty()) return why;
  if (st_verify(scene.path().c_str(), nullptr) != ST_OK) return std::string("st_verify: ") + st_last_error();
  return {};
}

}  // namespace st::testing
