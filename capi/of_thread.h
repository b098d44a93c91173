// A value of each thread, for as long as the thread runs. A thread_local of libst may end before the last call: exit
// handlers may call, and destructors of other thread_locals, of pthread keys and of statics.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#ifndef _WIN32
#include <pthread.h>
#endif

namespace st::capi {

// Calls `end` at the end of each thread that has asked for it.
#ifdef _WIN32
template <void (*end)()>
void call_at_threads_end() {
  struct AtItsEnd {
    ~AtItsEnd() { end(); }
  };
  static const thread_local AtItsEnd at_its_end;
}
#else
// A thread_local's destructor would take memory, without which the C library ends the process. A key takes some too,
// but then says that there is none: the thread asks again, and if there never is any, `end` is not called.
// The key is made while the library is loaded: a fork amid its first use would leave a child that waits for it for
// ever.
template <void (*end)()>
class ThreadsEnd {
 public:
  static ThreadsEnd of_all;

  void ask() {
    if (!asked_ && there_.load(std::memory_order_acquire)) asked_ = ::pthread_setspecific(key_, this) == 0;
  }
  ThreadsEnd() { there_ = ::pthread_key_create(&key_, at_its_end) == 0; }
  // libst is unloaded, and `end` with it; or the process exits.
  ~ThreadsEnd() {
    if (there_.exchange(false)) ::pthread_key_delete(key_);
  }

 private:
  static void at_its_end(void *) {
    asked_ = false;
    end();
  }

  pthread_key_t key_;
  std::atomic<bool> there_ = false;
  constinit static inline thread_local bool asked_ = false;
};

template <void (*end)()>
ThreadsEnd<end> ThreadsEnd<end>::of_all;

template <void (*end)()>
void call_at_threads_end() {
  ThreadsEnd<end>::of_all.ask();
}
#endif

template <class T>
class OfThread {
 public:
  static T &mine() {
    if (!value_) value_ = std::construct_at(reinterpret_cast<T *>(place_));
    call_at_threads_end<renew>();
    return *value_;
  }

 private:
  // Frees what the value holds. What it is given later, in the last moments of a thread, perhaps nobody frees. mingw
  // emulates thread_locals: there these are gone before their destructors run, and begin anew. What the value held then
  // stays.
  static void renew() {
    if (!value_) return;
    std::destroy_at(value_);
    std::construct_at(value_);
  }

  alignas(T) constinit static inline thread_local std::byte place_[sizeof(T)] = {};
  constinit static inline thread_local T *value_ = nullptr;
};

template <class T>
T &of_thread() {
  return OfThread<T>::mine();
}

}  // namespace st::capi
