// What a judge says when a tensor is no whole value: enough to tell a hole from a judge that looked wrongly.
#pragma once

#include <string>

#include "ledger.h"
#include "scene.h"
#include "tensor_file.h"

namespace st::testing {

// A line for each run of sectors: which versions its bytes are of.
std::string stamps(std::span<const std::byte> bytes, uint32_t tensor);

constexpr const char *name_of(OpenAs how) {
  constexpr const char *names[] = {"reader", "writer", "recoverer", "lone"};
  return names[static_cast<uint32_t>(how)];
}

// The journals beside a file: what their first sector says, and which locks are on them.
std::string journals_beside(const std::string &path);

struct TornTensor {
  const Layout &layout;
  uint32_t tensor;
  std::optional<uint64_t> offset;  // in the file, if that is known
  std::string judge;               // what it opened the file as
  std::string here, elsewhere;     // the file, as the judge's host and as another one sees it; the same: there is none
  std::string journals;            // before the judge opened
};
// Reads it in every other way, now and when it has been recovered; and keeps a copy of the file and its journals in the
// folder that STORM_KEEPS names.
std::string diagnosis(st_file *file, const Ledger &ledger, const TornTensor &torn);

}  // namespace st::testing
