#include "os/descriptors.h"

#include <utility>

namespace st::os {

Descriptors::Closing::~Closing() {
  if (taken_.empty()) return;
  taken_.clear();
  const std::lock_guard lock(open_.mutex);
  --open_.closing;
  open_.some_closed.notify_all();
}

void Descriptors::Closing::take(Entries &from, Entries::iterator which) {
  open_.closing += taken_.empty();
  open_.by_owner.erase(which->owner);
  taken_.splice(taken_.end(), from, which);
  if (which->is_kept) open_.kept_files -= open_.is_first_kept(which->held);
}

void Descriptors::Closing::take_last(Entries &from, size_t stay) {
  while (from.size() > stay) take(from, std::prev(from.end()));
}

Descriptors::Held Descriptors::counted(Open &open, File file) {
  struct Counted {
    Open &open;
    void operator()(const File *f) const {
      delete f;
      ++open.closed;
    }
  };
  return {new const File(std::move(file)), Counted{open}};
}

bool Descriptors::await_room(Open &open, uint64_t closed) {
  std::unique_lock lock(open.mutex);
  open.some_closed.wait(lock, [&] { return open.closed != closed || open.closing == 0; });
  return open.closed != closed;
}

Descriptors::Held Descriptors::found(Open &open, const void *owner) {
  const std::lock_guard lock(open.mutex);
  const auto found = open.by_owner.find(owner);
  if (found == open.by_owner.end()) return {};
  const Entries::iterator entry = found->second;
  if (!entry->is_kept) open.by_use.splice(open.by_use.begin(), open.by_use, entry);
  return entry->held;
}

// What is kept may be of states that nobody reads any more. So files that are read have half of the room, and the one
// that was used just now stays: else reads that alternate between files would open one each time.
void Descriptors::keep_within_most(Open &open, Closing &closing) const {
  const size_t half = most_ - most_ / 2, beside_kept = most_ - std::min(most_, open.kept_files);
  closing.take_last(open.by_use, std::max(half, beside_kept));
  while (open.kept_files > most_ - open.by_use.size()) closing.take(open.kept, std::prev(open.kept.end()));
}

Descriptors::Held Descriptors::add(Open &open, const void *owner, Held held) {
  Closing closing(open);
  Entries fresh;
  fresh.push_front({owner, held});
  const std::lock_guard lock(open.mutex);
  // The last step that takes memory.
  const auto [entry, is_new] = open.by_owner.try_emplace(owner, fresh.begin());
  if (!is_new && entry->second->is_kept) return entry->second->held;
  if (!is_new) {
    std::swap(entry->second->held, fresh.front().held);
    open.by_use.splice(open.by_use.begin(), open.by_use, entry->second);
    return held;
  }
  open.by_use.splice(open.by_use.begin(), fresh);
  keep_within_most(open, closing);
  return held;
}

void Descriptors::put(const void *owner, File file) {
  Open &open = open_.mine();
  add(open, owner, counted(open, std::move(file)));
}

void Descriptors::keep(const void *owner, const Held &held) {
  Open &open = open_.mine();
  Closing closing(open);
  Entries fresh;  // and then what the owner had
  fresh.push_front({owner, held, true});
  const std::lock_guard lock(open.mutex);
  const auto [entry, is_new] = open.by_owner.try_emplace(owner, fresh.begin());
  if (is_new) {
    open.kept_files += open.is_first_kept(held);
    open.kept.splice(open.kept.begin(), fresh);
  } else if (Entry &had = *entry->second; !had.is_kept) {
    std::swap(had.held, fresh.front().held);
    had.is_kept = true;
    open.kept_files += open.is_first_kept(held);
    open.kept.splice(open.kept.begin(), open.by_use, entry->second);
  }
  keep_within_most(open, closing);
}

Descriptors::Held Descriptors::kept(const void *owner) {
  Open &open = open_.mine();
  const std::lock_guard lock(open.mutex);
  const auto entry = open.by_owner.find(owner);
  return entry != open.by_owner.end() && entry->second->is_kept ? entry->second->held : Held();
}

void Descriptors::end_keeping(const void *owner) noexcept {
  Open *const open = open_.find();
  if (!open) return;
  const std::lock_guard lock(open->mutex);
  const auto entry = open->by_owner.find(owner);
  if (entry == open->by_owner.end() || !entry->second->is_kept) return;
  entry->second->is_kept = false;
  open->by_use.splice(open->by_use.begin(), open->kept, entry->second);
  open->kept_files -= open->is_first_kept(entry->second->held);
}

Descriptors::Held Descriptors::inherited(Open &mine, const void *owner) {
  Held found;
  const std::lock_guard alone(mine.mutex);
  open_.each_parents([&](Open &parents) {
    if (const auto entry = parents.by_owner.find(owner); !found && entry != parents.by_owner.end())
      found = entry->second->held;
  });
  return found;
}

Result<Descriptors::Held> Descriptors::open_anew(Open &open, const File &closed, const struct stat &identity,
                                                 const IsStill &is_still, const Location *at) {
  constexpr int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
  const std::string &path = closed.path();
  auto had = make_room_for(GiveUp::half,
                           [&] { return at ? at->open(flags) : File::open(env_, AT_FDCWD, path, flags, 0, path); });
  if (!had && (had.error().os_errno == ENOENT || had.error().os_errno == ENOTDIR))
    return fail(Status::file_changed, in_quotes(path), " is no longer there; refresh the handle, or open it anew");
  ST_TRY(auto file, std::move(had));
  file.read_like(closed);
  ST_TRY(auto s, file.stat());
  bool is_same = same_inode(s, identity);
  if (is_same && !same_times(s, identity)) {
    ST_TRY(is_same, is_still(file));
  }
  if (!is_same)
    return fail(Status::file_changed, in_quotes(path), " now names another file; refresh the handle, or open it anew");
  return counted(open, std::move(file));
}

Result<Descriptors::Held> Descriptors::get(const void *owner, const File &closed, const struct stat &identity,
                                           const IsStill &is_still, const Location *at) {
  Open &open = open_.mine();
  if (Held now = found(open, owner)) return now;
  auto held = open_anew(open, closed, identity, is_still, at);
  if (held) return add(open, owner, std::move(*held));
  // It may have lost its name meanwhile, and before that it was kept.
  if (Held now = found(open, owner)) return now;
  if (is_scarcity(held.error())) return held;
  Held parents = inherited(open, owner);
  if (!parents) return held;
  ST_TRY(auto s, parents->stat());  // another owner may have that address by now
  return same_inode(s, identity) ? add(open, owner, std::move(parents)) : held;
}

bool Descriptors::give_up(GiveUp what) {
  Open &open = open_.mine();
  Closing closing(open);
  const std::lock_guard lock(open.mutex);
  closing.take_last(open.by_use, what == GiveUp::half ? open.by_use.size() / 2 : 0);
  // The caller's work, which may be long, is done again for each step.
  if (closing.empty()) closing.take_last(open.kept, open.kept.size() / 2);
  return !closing.empty();
}

void Descriptors::forget(const void *owner) noexcept {
  Open *const open = open_.find();
  if (!open) return;
  Closing closing(*open);
  const std::lock_guard lock(open->mutex);
  if (const auto entry = open->by_owner.find(owner); entry != open->by_owner.end())
    closing.take(open->list_of(*entry->second), entry->second);
}

}  // namespace st::os
