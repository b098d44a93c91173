#include "journal/move_aside.h"

#include <cerrno>

#include "journal/hot_journal.h"
#include "journal/recover.h"
#include "journal/super_recover.h"
#include "os/lock_holder.h"

namespace st::write {

Result<std::string> move_aside(const Folder &folder, const std::string &name) {
  constexpr int attempts = 100;
  const os::File &dir = folder.dir();
  std::string aside = name + std::string(aside_suffix);
  for (int n = 2;; ++n) {
    const int moved = dir.env().renameat(dir.fd(), name.c_str(), dir.fd(), aside.c_str());
    if (moved >= 0) {
      ST_TRY(dir.sync());
      return dir.path() + "/" + aside;
    }
    // Something stands there that gives way to nothing: a folder, or a file where this is one.
    const bool taken = moved == -ENOTEMPTY || moved == -EEXIST || moved == -EISDIR || moved == -ENOTDIR;
    if (!taken || n > attempts) return Failure(os_error(-moved, "move aside", dir.path() + "/" + name));
    aside = text(name, ".", n, aside_suffix);
  }
}

namespace {

// Waits for its writer, and takes it by what is in it then.
Result<Holder> wait_for_writer(Found &found, const os::LockWait &wait) {
  if (!found.file) return Holder::nobody;
  auto lock = os::RangeLock::acquire(found.file, {os::whole_file(false)}, wait);
  if (!lock && lock.error().status == Status::busy)
    return Failure(os::tell_holder(std::move(lock.error()), found.file, os::whole_file(false)));
  if (!lock && lock.error().status == Status::lock_unsupported) return Holder::nobody;
  if (!lock) return Failure(std::move(lock.error()));
  ST_TRY(read_state(found));
  return who_holds(found);
}

Result<void> settle_orphan(const os::Location &file, const Folder &folder, const std::string &name,
                           const struct stat &fresh, const os::LockWait &wait, const Log &log) {
  ST_TRY(auto found, look_at(folder, name, fresh, true));
  if (!found) return {};
  ST_TRY(const auto held, wait_for_writer(*found, wait));
  if (!found->waits()) {
    ST_TRY(auto settled, settle_idle(folder, name, *found, held, false));
    if (!settled) return Failure(found->file.error(ESTALE, "settle"));  // it waits by now: look again
    return {};
  }
  // All of its transaction is off, as one of its files is gone: nor may a new file of it take the name.
  if (found->verdict.is_good() && found->record.is_part()) {
    auto ended = recover_super(file.beside(found->record.super_of), wait, told_to(log));
    if (!ended && ended.error().status != Status::no_file) return Failure(std::move(ended.error()));
  }
  auto aside = move_aside(folder, name);
  if (!aside && is_gone(aside.error())) return {};
  if (!aside) return Failure(std::move(aside.error()));
  log(LogLevel::warning, text("journal ", in_quotes(name), " was not applied: its file is gone; it was moved aside to ",
                              in_quotes(*aside)));
  return {};
}

}  // namespace

Result<void> move_all_aside(const os::Location &file, const struct stat &fresh, const os::LockWait &wait,
                            const Log &log) {
  auto done = os::while_stale([&]() -> Result<void> {
    ST_TRY(auto folder, Folder::open(file, fresh, log));
    if (!folder) return {};
    ST_TRY(auto names, folder->journals());
    ST_TRY(drop_gone(*folder, &names));
    for (const std::string &name : names) ST_TRY(settle_orphan(file, *folder, name, fresh, wait, log));
    ST_TRY(folder->dir().sync());  // another may have moved one, and not come to this
    folder.reset();
    Folder::remove_if_empty(file);
    return {};
  });
  if (done) return {};
  // In another user's folder nothing can be moved; if nothing waits there, nothing has to be.
  const Error &e = done.error();
  const bool is_others = e.status == Status::journal || e.os_errno == EACCES || e.os_errno == EPERM;
  return is_others && all_rest(file) ? Result<void>() : Failure(std::move(done.error()));
}

}  // namespace st::write
