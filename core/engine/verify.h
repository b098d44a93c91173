// Checks a file against every rule of the format, looks for journals that wait,
// and reads all its bytes once. Changes nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/control.h"
#include "os/env.h"

namespace st::store {

enum class Severity : uint32_t { info = 1, warning = 2, error = 3 };

struct Finding {
  Severity severity;
  Status status;  // ok, or what is wrong
  uint64_t offset;
  std::string message;
};
// False: stop.
using Report = std::function<bool(const Finding &)>;

// Ok, the first error, or cancelled.
Result<void> verify(os::Env &env, const std::string &path, const Control &control, const Report &report);

// A base with deltas on it: each file, then whether the deltas fit what lies below
// them and have the bytes that they were written with. Messages name the file.
Result<void> verify_layers(os::Env &env, const std::string &base, const std::vector<std::string> &deltas,
                           const Control &control, const Report &report);

}  // namespace st::store
