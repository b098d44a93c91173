#include "os/descriptors.h"

#include <utility>

namespace st::os {

Descriptors::Held Descriptors::keep(Open &open, const void *owner, File file) {
  Held held = std::make_shared<const File>(std::move(file));
  std::list<std::pair<const void *, Held>> fresh, given_up;  // closed after the mutex is free
  fresh.emplace_front(owner, held);
  std::lock_guard lock(open.mutex);
  // The last step that takes memory.
  const auto [kept, is_new] = open.by_owner.try_emplace(owner, fresh.begin());
  if (!is_new) given_up.splice(given_up.end(), open.by_use, std::exchange(kept->second, fresh.begin()));
  open.by_use.splice(open.by_use.begin(), fresh);
  while (open.by_use.size() > most_) {
    open.by_owner.erase(open.by_use.back().first);
    given_up.splice(given_up.end(), open.by_use, std::prev(open.by_use.end()));
  }
  return held;
}

void Descriptors::put(const void *owner, File file) {
  keep(open_.mine(), owner, std::move(file));
}

Result<Descriptors::Held> Descriptors::get(const void *owner, const File &closed, const struct stat &identity) {
  Open &open = open_.mine();
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
  Open &open = open_.mine();
  std::lock_guard lock(open.mutex);
  const auto found = open.by_owner.find(owner);
  if (found == open.by_owner.end()) return;
  held = std::move(found->second->second);
  open.by_use.erase(found->second);
  open.by_owner.erase(found);
}

}  // namespace st::os
