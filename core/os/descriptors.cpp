#include "os/descriptors.h"

#include <utility>

namespace st::os {

Descriptors::~Descriptors() {
  for (Open *o = of_child_.load(); o;) delete std::exchange(o, o->before);
}

Descriptors::Open &Descriptors::mine() {
  const uint64_t now = env_.fork_generation();
  if (first_.generation == now) return first_;
  Open *last = of_child_.load(std::memory_order_acquire);
  while (!last || last->generation != now) {
    auto own = std::make_unique<Open>(now, last);
    if (of_child_.compare_exchange_strong(last, own.get(), std::memory_order_acq_rel)) last = own.release();
  }
  return *last;
}

Descriptors::Held Descriptors::keep(Open &open, const void *owner, File file) {
  Held held = std::make_shared<const File>(std::move(file));
  std::list<std::pair<const void *, Held>> given_up;  // closed after the mutex is free
  std::lock_guard lock(open.mutex);
  if (const auto found = open.by_owner.find(owner); found != open.by_owner.end()) {
    given_up.splice(given_up.end(), open.by_use, found->second);
    open.by_owner.erase(found);
  }
  open.by_use.emplace_front(owner, held);
  open.by_owner.emplace(owner, open.by_use.begin());
  while (open.by_use.size() > most_) {
    open.by_owner.erase(open.by_use.back().first);
    given_up.splice(given_up.end(), open.by_use, std::prev(open.by_use.end()));
  }
  return held;
}

void Descriptors::put(const void *owner, File file) {
  keep(mine(), owner, std::move(file));
}

Result<Descriptors::Held> Descriptors::get(const void *owner, const File &closed, const struct stat &identity) {
  Open &open = mine();
  {
    std::lock_guard lock(open.mutex);
    if (const auto found = open.by_owner.find(owner); found != open.by_owner.end()) {
      open.by_use.splice(open.by_use.begin(), open.by_use, found->second);
      return found->second->second;
    }
  }
  const std::string &path = closed.path();
  ST_TRY(auto file, File::open(env_, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, path));
  file.read_like(closed);
  ST_TRY(auto s, file.stat());
  if (!same_inode(s, identity))
    return fail(Status::file_changed, in_quotes(path), " now names another file; refresh the handle, or open it anew");
  return keep(open, owner, std::move(file));
}

void Descriptors::forget(const void *owner) {
  Held held;  // closed after the mutex is free
  Open &open = mine();
  std::lock_guard lock(open.mutex);
  const auto found = open.by_owner.find(owner);
  if (found == open.by_owner.end()) return;
  held = std::move(found->second->second);
  open.by_use.erase(found->second);
  open.by_owner.erase(found);
}

}  // namespace st::os
