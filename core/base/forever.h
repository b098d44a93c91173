// What is made once and never ends, as handles may be used while the process ends. It lies in the library, so that
// nothing is lost where a program closes that.
#pragma once

#include <cstddef>
#include <new>

namespace st {

template <class T>
T &forever() {
  alignas(T) static std::byte place[sizeof(T)];
  static T *const made = new (place) T;
  return *made;
}

}  // namespace st
