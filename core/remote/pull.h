// Brings ranges of one version of an object, over one transport: split, side by side, each asked again where it failed
// for a while. All of them or an error.
#pragma once

#include <vector>

#include "remote/judge.h"
#include "remote/limits.h"
#include "remote/pace.h"

namespace st::remote {

struct Wanted {
  uint64_t offset, n;
  std::byte *to;
};

struct First {
  Version version;
  std::optional<Error> crowded;  // this process has no descriptor for a connection, and `pace` allows fewer from now on
};

// The first request: size, version, and the begin of the object into `into`, of limits.first bytes. *site becomes where
// redirects lead. Both answer the status cancelled where `stops` says so. The caller has a place of `pace`.
Result<First> pull_first(Transport &transport, std::shared_ptr<const Site> *site, const Limits &limits, Pace &pace,
                         std::byte *into, uint64_t *received, const Stops &stops = {});

// A request without a body, which is asked once beside others. It takes no place.
struct Aside {
  Request request = {};
  uint64_t most_ms = 0;               // it is dropped after so long
  bool is_awaited = false;            // else it is dropped once the ranges have come
  std::optional<Answer> answer = {};  // none: it was dropped
};

struct Pulled {
  std::vector<Summed> summed;    // what came, by offset, if there is a `check`
  std::optional<Error> crowded;  // as in First
};

// The caller has a place of `pace`, which is for the first request.
Result<Pulled> pull(Transport &transport, const Site &site, const Version &version, const std::vector<Wanted> &ranges,
                    const Limits &limits, Pace &pace, const Stops &stops = {}, Aside *aside = nullptr,
                    const WholeCheck *check = nullptr);

}  // namespace st::remote
