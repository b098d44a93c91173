#include "file/replace_file.h"

#include <cerrno>

#include "journal/recover.h"
#include "newfile/copy_attributes.h"
#include "os/exclusive.h"
#include "os/turnstile.h"

namespace st::write {
namespace {

// The file that will be replaced: locked against patches and publishes, its
// hot journals recovered, so that no journal waits for a file that is gone.
struct ReplacedFile {
  std::unique_ptr<os::Exclusive> locked;
  os::File file;  // where it could not be locked
};

}  // namespace

Result<Destination> find_destination(os::Env &env, const std::string &path) {
  auto at = os::Location::find_new(env, path);
  if (!at && at.error().os_errno == 0) return Failure(std::move(at.error()));
  if (!at) return Failure(os_error(at.error().os_errno, "save", path));
  return destination_at(std::move(*at));
}

Result<Destination> destination_at(os::Location at) {
  struct stat s;
  const int r = at.stat(&s);
  if (r < 0 && r != -ENOENT) return Failure(os_error(-r, "save", at.path()));
  const bool exists = r == 0 && !S_ISLNK(s.st_mode);
  if (exists && !S_ISREG(s.st_mode))
    return fail(Status::not_regular, in_quotes(at.path()), " is no plain file; give the path of a .safetensors file");
  return Destination{std::move(at), exists};
}

Result<void> replace_file(const os::Location &target, TemporaryFile &made, int32_t lock_timeout_ms,
                          const Control &control, const Log &log) {
  constexpr int attempts = 100;
  const os::LockWait wait{lock_timeout_ms, &control, nullptr};
  ReplacedFile old;
  for (int i = 0;; ++i) {
    struct stat s;
    const int r = target.stat(&s);
    if (r == -ENOENT || (r == 0 && S_ISLNK(s.st_mode))) break;  // see find_destination
    if (r < 0) return Failure(os_error(-r, "replace", target.path()));
    auto locked = lock_whole_file(target, wait);
    if (!locked) {
      const Error &e = locked.error();
      const bool cannot =
          e.status == Status::lock_unsupported || e.os_errno == EACCES || e.os_errno == EPERM || e.os_errno == ETXTBSY;
      if (!cannot) return Failure(std::move(locked.error()));
      ST_TRY(old.file, target.open(O_RDONLY | O_NONBLOCK));
      break;
    }
    old.locked = std::move(*locked);
    ST_TRY(auto folder, Folder::open(target, s, log));
    if (!folder) break;
    const Piece all{0, {0, static_cast<uint64_t>(s.st_size), 0}, nullptr};
    ST_TRY(auto settled, os::while_stale([&] { return settle_hot_journals(*folder, s, {{}, {&all, 1}}); }));
    if (settled) break;
    if (i >= attempts)
      return fail(Status::busy, in_quotes(target.path()), " needs recovery again and again; try again");
    old.locked.reset();
    ST_TRY(recover(target, wait, {}));
  }
  const os::File *from = old.locked ? &old.locked->file : old.file ? &old.file : nullptr;
  if (from) ST_TRY(copy_attributes(*from, made.file(), log));
  auto placed = made.rename_into_place(control);
  if (placed && old.locked) os::hand_over(old.locked->file, old.locked->lock);
  if (placed) return {};
  Error e = std::move(placed.error().error);
  if (placed.error().replaced) {
    e.status = Status::needs_recovery;
    e.message = text("the new ", in_quotes(target.path()), " is in place, but a power cut may undo that (", e.message,
                     "); save it again");
  }
  return Failure(std::move(e));
}

}  // namespace st::write
