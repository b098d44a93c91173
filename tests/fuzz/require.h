// REQUIRE(condition, parts...): what must hold of every input. A breach prints
// its sentence and aborts, so that libFuzzer keeps the input.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "base/error.h"

#define REQUIRE(condition, ...)                                                        \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      std::fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, \
                   ::st::text(__VA_ARGS__).c_str());                                   \
      std::abort();                                                                    \
    }                                                                                  \
  } while (0)

namespace st::fuzz {

// The sentence of a failure, for REQUIRE.
template <class T>
std::string said(const Result<T> &r) {
  return r ? std::string("it succeeded") : text("status ", static_cast<int>(r.error().status), ": ", r.error().message);
}

}  // namespace st::fuzz
