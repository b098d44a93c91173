// A value of each thread, for as long as the thread runs. A thread_local of libst may end before the last call: exit
// handlers may call, and destructors of other thread_locals, of pthread keys and of statics.
#pragma once

#include <cstddef>
#include <memory>

namespace st::capi {

template <class T>
T &of_thread() {
  alignas(T) constinit static thread_local std::byte place[sizeof(T)] = {};
  constinit static thread_local T *value = nullptr;
  // Frees what the value holds. What it is given later, in the last moments of a thread, nobody frees. mingw emulates
  // thread_locals: there these are gone before their destructors run, and begin anew. What the value held then stays.
  struct AtItsEnd {
    ~AtItsEnd() {
      if (!value) return;
      std::destroy_at(value);
      std::construct_at(value);
    }
  };
  if (!value) {
    value = std::construct_at(reinterpret_cast<T *>(place));
    static const thread_local AtItsEnd at_its_end;
  }
  return *value;
}

}  // namespace st::capi
