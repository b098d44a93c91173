// What is made once and never ends, as handles may be used while the process ends. It lies in the library, so that
// nothing is lost where a program closes that.
#pragma once

#include <cstddef>
#include <new>

namespace st {

template <class T>
T &forever();

// A fork amid the first use would leave a child that waits for ever: the thread that makes it is not there. So the
// library makes it while it is loaded.
template <class T>
inline const bool is_made_at_load = (forever<T>(), true);

// May be asked for sooner: by what else is made at load.
template <class T>
T &forever() {
  alignas(T) static std::byte place[sizeof(T)];
  static T *const made = new (place) T;
  static_cast<void>(&is_made_at_load<T>);
  return *made;
}

}  // namespace st
