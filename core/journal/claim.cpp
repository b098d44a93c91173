#include "journal/claim.h"

#include <cerrno>

#include "os/random.h"

namespace st::write {

Result<bool> rename_in(const os::File &dir, const std::string &from, const std::string &to) {
  const int r =
      os::repeat_interrupted([&] { return dir.env().renameat(dir.fd(), from.c_str(), dir.fd(), to.c_str()); });
  // NFS keeps a removed file aside while a process of this host has it open, and lets nobody rename it.
  if (r == -ENOENT || r == -ESTALE || r == -EBUSY) return false;
  if (r < 0) return Failure(os_error(-r, "take over", dir.path() + "/" + from));
  return true;
}

namespace {

bool is_of_several(const Found &found) {
  return found.waits() && found.verdict.is_good() && (found.record.is_part() || found.record.is_super());
}

}  // namespace

Result<bool> claim(const Folder &folder, std::string *name, Found &found) {
  const os::File &dir = folder.dir();
  if (!dir.reads_past_cache() || !found.file || is_of_several(found)) return true;
  std::string taken = os::random_name(dir.env());
  auto renamed = rename_in(dir, *name, taken);
  if (!renamed || !*renamed) return renamed;
  name->swap(taken);
  // A client may remember how large it was, and that it had no bytes yet: so it asks for the name once more.
  os::renew_name(dir.env(), dir.fd(), *name);
  ST_TRY(read_state(found));
  if (!is_of_several(found)) return true;
  name->swap(taken);
  return rename_in(dir, taken, *name);
}

Result<void> check_named(const os::Location &file, const os::File &locked) {
  if (!locked.reads_past_cache()) return {};
  ST_TRY(auto replaced, file.was_replaced(locked));
  if (replaced) return Failure(locked.error(ESTALE, "recover"));
  return {};
}

Result<void> check_claimed(const Folder &folder, const std::string &name, const Found &found) {
  if (!folder.dir().reads_past_cache()) return {};
  ST_TRY(auto ours, is_under_name(folder.dir().fd(), name, found.file));
  if (ours) return {};
  return fail(Status::busy, "another host recovers ", in_quotes(found.file.path()),
              " by now, as this one was stopped or cut off, and lost its locks; try again");
}

Result<bool> is_under_name(int folder, const std::string &name, const os::File &opened) {
  os::Env &env = opened.env();
  if (opened.reads_past_cache()) os::renew_name(env, folder, name);
  struct stat by_name;
  const int r = env.fstatat(folder, name.c_str(), &by_name, AT_SYMLINK_NOFOLLOW);
  if (r == -ENOENT || r == -ESTALE) return false;
  if (r < 0) return Failure(opened.error(-r, "look at"));
  auto ours = opened.stat();
  if (!ours && is_gone(ours.error())) return false;
  if (!ours) return Failure(std::move(ours.error()));
  return ours->st_nlink > 0 && os::same_inode(by_name, *ours);
}

}  // namespace st::write
