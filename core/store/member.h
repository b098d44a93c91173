// A file of a collection, opened when it is first needed. Any thread: should two
// open it at once, one of them does so in vain.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "store/checkpoint.h"

namespace st::store {

class Member {
 public:
  Member(std::string path, Member *before) : before_(before), path_(std::move(path)) {}
  ~Member() { delete opened_.load(); }
  Member(const Member &) = delete;
  Member &operator=(const Member &) = delete;

  Result<Checkpoint *> open(os::Env &env, const OpenOptions &options) {
    if (Checkpoint *c = opened()) return c;
    auto fresh = Checkpoint::open(env, path_, options);
    if (!fresh) return Failure(std::move(fresh.error()));
    Checkpoint *none = nullptr;
    if (opened_.compare_exchange_strong(none, fresh->get(), std::memory_order_acq_rel)) return fresh->release();
    return none;
  }
  Checkpoint *opened() const { return opened_.load(std::memory_order_acquire); }
  const std::string &path() const { return path_; }
  Member *before() const { return before_; }  // in the list of all members that a collection has had

 private:
  Member *const before_;
  const std::string path_;
  std::atomic<Checkpoint *> opened_ = nullptr;
};

}  // namespace st::store
