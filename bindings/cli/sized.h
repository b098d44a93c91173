// The structs of libst that may grow: options that a call takes, results that it fills.
#pragma once

#include <st/st.h>

namespace stctl {

// One of them, with its size. All else is zero, which is every default.
template <class T>
T sized() {
  T value = {};
  value.struct_size = sizeof value;
  return value;
}

}  // namespace stctl
