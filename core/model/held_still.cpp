#include "model/held_still.h"

#include <cerrno>

#include "journal/recover.h"
#include "os/remote_source.h"
#include "os/waited.h"

namespace st::store {
namespace {

// A dead writer's change that is to be finished first: the next open sees to it.
Result<bool> is_any_hot(const os::Location &at, const struct stat &now) {
  auto folder = write::Folder::open(at, now, {});
  if (!folder && folder.error().status == Status::journal && write::all_rest(at)) return false;
  ST_TRY(auto opened, std::move(folder));
  if (!opened) return false;
  ST_TRY(auto journals, write::find_hot_journals(*opened, now));
  return journals.committed;
}

// On an overlay: the file of the lower layer was opened, and changes since go to a copy in the upper one.
bool is_left_behind(const Snapshot &known, const struct stat &now) {
  const auto &before = known.identity.st_mtim, &after = now.st_mtim;
  return os::maps_what_was_opened(known.filesystem.type) &&
         (before.tv_sec != after.tv_sec || before.tv_nsec != after.tv_nsec);
}

}  // namespace

Result<bool> HeldStill::hold(const os::Location &at, const Snapshot *known, const os::LockWait &wait) {
  constexpr os::LockRange whole = os::whole_file(false);
  auto locked = os::lock_named(at, {whole}, wait, os::holder_of(whole), O_RDONLY);
  if (!locked) {
    const Error &e = locked.error();
    if (e.os_errno == ENOENT || e.os_errno == ESTALE) return false;
    const bool nobody_can = e.status == Status::lock_unsupported || e.status == Status::permission;
    if (nobody_can || e.status == Status::file_changed) return true;  // that: the file has no name any more
    return Failure(std::move(locked.error()));
  }
  ST_TRY(auto now, (*locked)->file.stat());
  if (known && (!os::same_inode(now, known->identity) || is_left_behind(*known, now))) return false;
  ST_TRY(auto hot, is_any_hot(at, now));
  locked_.push_back(std::move(*locked));
  return !hot;
}

// In the order of commits: the index, then the files.
Result<bool> HeldStill::hold(os::Env &env, const ModelView &view, const os::LockWait &wait) {
  const auto &files = view.files();
  if (files.empty() || files.front().data_file->path().empty()) return true;
  if (view.has_index()) {
    ST_TRY(auto index, os::Location::find(env, view.path()));
    ST_TRY(auto held, hold(index, nullptr, wait));
    if (!held) return false;
  }
  for (const Opened &f : files) {
    const auto held = os::Descriptors::with_room(f.data_file->options().descriptors, os::Descriptors::GiveUp::all,
                                                 [&] { return hold(f.data_file->location(), f.snapshot, wait); });
    if (!held || !*held) return held;
  }
  ST_TRY(view.check_unchanged());
  return true;
}

Result<void> HeldStill::repeat(const std::string &path, const std::function<Result<bool>()> &open_and_hold) {
  constexpr int most = 100;
  const os::WaitedByCall call(os::WaitedByCall::if_outside);
  for (int i = 0; i < most; ++i) {
    auto held = open_and_hold();
    const bool again = held || (held.error().status == Status::file_changed && !os::is_url(path));
    if (!again) return Failure(std::move(held.error()));
    if (held && *held) return {};
  }
  return fail(Status::file_changed, in_quotes(path), " is replaced all the time; try again");
}

}  // namespace st::store
