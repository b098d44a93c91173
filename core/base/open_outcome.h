// How a commit fails past its point of no return: only the next opener tells whether the change stands.
#pragma once

#include <new>
#include <utility>

#include "base/error.h"

namespace st {

// Status needs_recovery. `sentence` makes the words of it from those of the cause. Where memory has run out there are
// none: capi/boundary.h has some.
template <class Sentence>
Failure open_outcome(Error cause, Sentence sentence) {
  cause.status = Status::needs_recovery;
  try {
    if (!cause.message.empty()) cause.message = sentence(cause.message);
  } catch (const std::bad_alloc &) {
    cause.message.clear();
  }
  return Failure(std::move(cause));
}

}  // namespace st
