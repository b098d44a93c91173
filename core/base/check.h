// ST_ASSERT(condition): states an invariant. Live in builds with tests, where a
// breach aborts; in release builds it costs nothing and promises nothing.
#pragma once

#ifdef ST_CHECKS
#include <cstdio>
#include <cstdlib>
#define ST_ASSERT(condition)                                                                 \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      std::fprintf(stderr, "%s:%d: invariant broken: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (0)
#else
#define ST_ASSERT(condition) static_cast<void>(sizeof(!(condition)))
#endif
