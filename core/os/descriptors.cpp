#include "os/descriptors.h"

#include <utility>

namespace st::os {

Descriptors::Held Descriptors::keep(Open &open, const void *owner, Held held) {
  ByUse fresh, given_up;  // closed after the mutex is free
  fresh.emplace_front(owner, held);
  std::lock_guard lock(open.mutex);
  // The last step that takes memory.
  const auto [kept, is_new] = open.by_owner.try_emplace(owner, fresh.begin());
  if (!is_new) given_up.splice(given_up.end(), open.by_use, std::exchange(kept->second, fresh.begin()));
  open.by_use.splice(open.by_use.begin(), fresh);
  given_up.splice(given_up.end(), take_from(open, most_));
  return held;
}

Descriptors::ByUse Descriptors::take_from(Open &open, size_t stay) {
  ByUse taken;
  while (open.by_use.size() > stay) {
    open.by_owner.erase(open.by_use.back().first);
    taken.splice(taken.end(), open.by_use, std::prev(open.by_use.end()));
  }
  return taken;
}

void Descriptors::put(const void *owner, File file) {
  keep(open_.mine(), owner, std::make_shared<const File>(std::move(file)));
}

Descriptors::Held Descriptors::inherited(Open &mine, const void *owner) {
  Held found;
  const std::lock_guard alone(mine.mutex);
  open_.each_parents([&](Open &parents) {
    if (const auto kept = parents.by_owner.find(owner); !found && kept != parents.by_owner.end())
      found = kept->second->second;
  });
  return found;
}

Result<Descriptors::Held> Descriptors::open_anew(const File &closed, const struct stat &identity) {
  const std::string &path = closed.path();
  const auto opened = [&] { return File::open(env_, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, path); };
  auto had = opened();
  while (!had && is_scarcity(had.error()) && give_up(GiveUp::half)) had = opened();
  ST_TRY(auto file, std::move(had));
  file.read_like(closed);
  ST_TRY(auto s, file.stat());
  if (!same_inode(s, identity))
    return fail(Status::file_changed, in_quotes(path), " now names another file; refresh the handle, or open it anew");
  return std::make_shared<const File>(std::move(file));
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
  auto held = open_anew(closed, identity);
  if (!held && !is_scarcity(held.error()))
    if (Held parents = inherited(open, owner)) {
      ST_TRY(auto s, parents->stat());  // another owner may have that address by now
      if (same_inode(s, identity)) held = std::move(parents);
    }
  if (!held) return held;
  return keep(open, owner, std::move(*held));
}

bool Descriptors::give_up(GiveUp what) {
  ByUse given_up;  // closed after the mutex is free
  Open &open = open_.mine();
  std::lock_guard lock(open.mutex);
  given_up = take_from(open, what == GiveUp::half ? open.by_use.size() / 2 : 0);
  return !given_up.empty();
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
