// What all benchmark programs need: a clock, and a way to give up.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "abi.h"

using st::testing::sized;

template <class Work>
long long nanoseconds(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
}

inline void require(bool ok, const char *what) {
  if (ok) return;
  std::fprintf(stderr, "%s failed: %s\n", what, st_last_error());
  std::exit(1);
}

#define REQUIRE_OK(call) require((call) == ST_OK, #call)
