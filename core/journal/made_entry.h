// A name that was just made in a folder, and that goes again unless what it was made for is done: also where memory
// runs out in between.
//
// Unlike a TemporaryFile it need not know its process. No function of the caller's is called while it lives, so no
// child of a fork comes to its end.
#pragma once

#include "os/env.h"

namespace st::write {

class MadeEntry {
 public:
  // `name` must outlive it. `flags`: as unlinkat takes them.
  MadeEntry(os::Env &env, int dir, const char *name, int flags) : env_(&env), dir_(dir), name_(name), flags_(flags) {}
  ~MadeEntry() {
    if (env_) env_->unlinkat(dir_, name_, flags_);
  }
  MadeEntry(const MadeEntry &) = delete;
  MadeEntry &operator=(const MadeEntry &) = delete;
  void keep() { env_ = nullptr; }

 private:
  os::Env *env_;
  const int dir_;
  const char *const name_;
  const int flags_;
};

}  // namespace st::write
