// How a temporary takes its name: durable before, and then the name, durable too.
#include <fcntl.h>

#include <cerrno>
#include <new>

#include "newfile/temporary_file.h"
#include "newfile/write_out.h"
#include "os/filesystem.h"
#include "os/rename_over.h"

namespace st::write {
namespace {

std::string mounted_by_itself(const os::Location &at) {
  return text(in_quotes(at.path()),
              " is mounted there by itself, so no new file can take its place; mount its folder instead");
}

std::string too_long(const os::Location &at) {
  return text("the name of ", in_quotes(at.path()),
              " is longer than 230 bytes: on SMB such a file cannot be replaced; give it a shorter name");
}

// The kernel is asked, by the call that removes a folder. It first says so if nobody may replace the file, or not this
// user. Then it says that this is no folder. FUSE may show a sticky bit and not mind it. A folder that has taken the
// name would be removed, so that one is left to the rename.
Result<void> check_may_replace(const os::Location &at, const os::File &file) {
  struct stat named;
  if (at.stat(&named) < 0 || S_ISDIR(named.st_mode)) return {};
  if (at.env().unlinkat(at.dir(), at.name().c_str(), AT_REMOVEDIR) != -EPERM) return {};
  ST_TRY(const auto folder, at.folder()->identity());
  ST_TRY(const auto s, file.stat());
  const uid_t user = at.env().geteuid();
  const bool is_for_sticky = (folder.st_mode & S_ISVTX) != 0 && s.st_uid != user && folder.st_uid != user;
  Error e = is_for_sticky ? error(Status::permission, in_quotes(at.path()), " belongs to user ", s.st_uid,
                                  ", and its folder is sticky, so you may not replace it; nothing was changed; ask "
                                  "that user, or change a copy")
                          : error(Status::permission, "no new file can take the place of ", in_quotes(at.path()),
                                  ": it or its folder is immutable, or lets nothing go (chattr +i, +a); nothing was "
                                  "changed; take that away, or change a copy");
  e.os_errno = EPERM;
  return Failure(std::move(e));
}

}  // namespace

Result<void> check_replaceable(const os::Location &at, const os::File &file) {
  ST_TRY(const bool is_too_long, os::is_too_long_to_replace(at));
  if (is_too_long) return fail(Status::unsupported, too_long(at));
  ST_TRY(const bool is_mount, at.is_mount(file));
  if (is_mount) return fail(Status::unsupported, mounted_by_itself(at));
  return check_may_replace(at, file);
}

// Does the name lead to our file?
bool TemporaryFile::stands(const os::Location &at) const {
  struct stat by_name;
  const auto ours = file_.stat();
  return ours && at.stat(&by_name) == 0 && os::same_inode(by_name, *ours);
}

Result<void> TemporaryFile::check_is_there() const {
  const os::Location at = target_.beside(temporary_);
  ST_TRY(const auto s, file_.stat());
  const bool may_be_others = at.has_other_hosts(s);
  if (may_be_others) at.renew();
  if (stands(at)) return {};
  if (may_be_others)
    return fail(Status::file_changed, "another host has removed the new file ", in_quotes(at.path()),
                ", as this one was stopped or cut off, and lost its locks; nothing was changed; open it anew");
  return fail(Status::io, "the new file ", in_quotes(at.path()),
              " was removed while a change was being made; nothing was changed; see what removes it, and try again");
}

bool TemporaryFile::is_anothers() const noexcept {
  struct stat ours, by_name;
  return may_have_first_name_ && env().fstat(file_.fd(), &ours) == 0 &&
         env().fstatat(target_.dir(), temporary_.c_str(), &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
         !os::same_inode(by_name, ours);
}

Result<void> TemporaryFile::rename_to(const os::Location &to) {
  bool needed = false;
  const int renamed = os::rename_over(to, target_.dir(), temporary_, &needed);
  // An error may come after the fact (a network filesystem): look.
  if (renamed >= 0 || stands(to)) return {};
  Error e = os_error(-renamed, "rename a new file to", to.path());
  if (needed) {
    leave();
    e.message += text("; the old file has a name of its own, which begins with ",
                      in_quotes(text(".", to.name(), os::second_name_infix)), ", until libst opens it again");
  }
  if (renamed == -ENAMETOOLONG && os::is_too_long_to_replace(to).value_or(false)) {
    e.status = Status::unsupported;
    e.message = too_long(to);
  }
  // (A server says so of a file that others have open.)
  if (renamed == -EBUSY && !os::may_have_other_hosts(os::probe_filesystem(file_))) {
    e.status = Status::unsupported;
    e.message = mounted_by_itself(to);
  }
  if (renamed == -EPERM)
    e.message += "; it or its folder may be immutable (chattr), or the folder sticky and the file another user's";
  if (renamed == -ETXTBSY)  // Windows alone
    e.message = text("another program keeps ", in_quotes(to.path()),
                     " open, and lets nobody replace it; close it there, and try again");
  return Failure(std::move(e));
}

Result<void> TemporaryFile::rename() {
  ST_TRY(rename_to(target_));
  named_ = false;
  return {};
}

Result<void> TemporaryFile::rename_beside(const std::string &name) {
  ST_TRY(rename_to(target_.beside(name)));
  temporary_ = name;
  return {};
}

Result<void> TemporaryFile::sync(const Control &control) const {
  ST_TRY(auto s, file_.stat());
  ST_TRY(write_out(file_, 0, static_cast<uint64_t>(s.st_size), control));
  return file_.sync();
}

tl::expected<void, SwapFailure> TemporaryFile::rename_into_place(const Control &control, const May &may) {
  using Failed = tl::unexpected<SwapFailure>;
  if (auto synced = sync(control); !synced) return Failed({std::move(synced.error()), false});
  if (auto led = target_.check_led_to(); !led) return Failed({std::move(led.error()), false});
  auto folder = target_.folder()->to_sync();
  if (!folder) return Failed({std::move(folder.error()), false});
  if (may)
    if (auto asked = may(); !asked) return Failed({std::move(asked.error()), false});
  if (may_have_first_name_ && !stands(target_.beside(temporary_)))
    return Failed({os_error(ENOENT, "rename a new file to", target_.path()), false});
  if (auto renamed = rename(); !renamed) return Failed({std::move(renamed.error()), false});
  try {
    if (auto synced = folder->sync(); !synced) return Failed({std::move(synced.error()), true});
  } catch (const std::bad_alloc &) {
    return Failed({Error{Status::nomem, {}}, true});  // its sentence would take memory
  }
  return {};
}

}  // namespace st::write
