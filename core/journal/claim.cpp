#include "journal/claim.h"

#include <algorithm>
#include <cerrno>

#include "journal/super_journal.h"
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

Result<bool> claim(const Folder &folder, std::string *name, Found &found) {
  const os::File &dir = folder.dir();
  if (!dir.reads_past_cache() || !found.file) return true;
  std::string taken = name_of_claimed(*name, os::random_name(dir.env()));
  auto renamed = rename_in(dir, *name, taken);
  if (!renamed || !*renamed) return renamed;
  *name = std::move(taken);
  // A client may remember how large it was, and that it had no bytes yet: so it asks for the name once more.
  os::renew_name(dir.env(), dir.fd(), *name);
  ST_TRY(read_state(found));
  return true;
}

Result<std::unique_ptr<Found>> look_for(const Folder &folder, std::string *name, const struct stat &data, bool write) {
  constexpr int attempts = 100;
  auto looked = look_at(folder, *name, data, write);
  if (!folder.dir().reads_past_cache()) return looked;
  const auto transaction = transaction_of(*name);
  for (int left = attempts; looked && !*looked; --left) {
    ST_TRY(const auto names, folder.journals());
    const auto claimed = std::find_if(names.begin(), names.end(),
                                      [&](const std::string &n) { return transaction_of(n) == transaction; });
    if (claimed == names.end()) return looked;
    if (left == 0) return Failure(folder.dir().error(ESTALE, "find a journal in"));
    *name = *claimed;
    looked = look_at(folder, *name, data, write);
  }
  return looked;
}

Result<void> check_named(const os::Location &file, const os::File &locked) {
  if (!locked.reads_past_cache()) return {};
  ST_TRY(auto replaced, file.was_replaced(locked));
  if (replaced) return Failure(locked.error(ESTALE, "recover"));
  return {};
}

namespace {

Failure recovered_by_another(const Found &found) {
  return fail(Status::busy, "another host recovers ", in_quotes(found.file.path()),
              " by now, as this one, or that one, was stopped or cut off, and lost its locks; try again");
}

}  // namespace

Result<void> check_claimed(const Folder &folder, const std::string &name, const Found &found) {
  ST_TRY(auto ours, is_under_name(folder.dir().fd(), name, found.file));
  return ours ? Result<void>() : recovered_by_another(found);
}

Result<void> drop_applied(const Folder &folder, const std::string &name, const Found &found) {
  ST_TRY(empty(found));
  ST_TRY(const bool ours, drop_for_good(folder, name));
  return ours ? Result<void>() : recovered_by_another(found);
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
