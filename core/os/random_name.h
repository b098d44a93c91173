// Sixteen hexadecimal digits that nobody else will choose: names of files that
// live for a while beside a data file.
#pragma once

#include <string>

#include "os/env.h"

namespace st::os {

inline std::string random_name(Env &env) {
  constexpr char hex[] = "0123456789abcdef";
  unsigned char bytes[8] = {};
  env.random(bytes, sizeof bytes);
  std::string name;
  for (unsigned char b : bytes) {
    name += hex[b >> 4];
    name += hex[b & 15];
  }
  return name;
}

}  // namespace st::os
