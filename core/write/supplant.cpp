#include "write/supplant.h"

#include <cerrno>

#include "write/carry_over.h"
#include "write/exclusive.h"
#include "write/recover.h"

namespace st::write {
namespace {

// The file that will be replaced: locked against patches and publishes, its
// orphans recovered, so that no journal waits for a file that is gone.
struct Supplanted {
  std::unique_ptr<Exclusive> locked;
  os::File file;  // where it could not be locked
};

// Of a file that need not exist.
Result<std::string> resolve(os::Env &env, const std::string &path) {
  std::string resolved;
  int r = env.realpath(path.c_str(), &resolved);
  if (r >= 0) return resolved;
  if (r != -ENOENT) return Failure(os_error(-r, "save", path));
  const auto [folder, base] = os::split_path(path);
  r = env.realpath(folder.c_str(), &resolved);
  if (r < 0) return Failure(os_error(-r, "save", path));
  return (resolved == "/" ? resolved : resolved + "/") + base;
}

}  // namespace

Result<Destination> find_destination(os::Env &env, const std::string &path) {
  auto resolved = resolve(env, path);
  if (!resolved) return Failure(std::move(resolved.error()));
  struct stat s;
  const int r = env.fstatat(AT_FDCWD, resolved->c_str(), &s, 0);
  if (r < 0 && r != -ENOENT) return Failure(os_error(-r, "save", path));
  if (r == 0 && !S_ISREG(s.st_mode))
    return fail(Status::not_regular, in_quotes(path), " is no plain file; give the path of a .safetensors file");
  return Destination{std::move(*resolved), r == 0};
}

Result<void> supplant(os::Env &env, const std::string &target, Replacement &made, int32_t lock_timeout_ms,
                      const Log &log) {
  constexpr int attempts = 100;
  const os::LockWait wait{lock_timeout_ms, nullptr, nullptr};
  Supplanted old;
  for (int i = 0;; ++i) {
    struct stat s;
    const int r = env.fstatat(AT_FDCWD, target.c_str(), &s, 0);
    if (r == -ENOENT) break;
    if (r < 0) return Failure(os_error(-r, "replace", target));
    auto locked = lock_whole_file(env, target, wait);
    if (!locked) {
      const Error &e = locked.error();
      const bool cannot =
          e.status == Status::lock_unsupported || e.os_errno == EACCES || e.os_errno == EPERM || e.os_errno == ETXTBSY;
      if (!cannot) return Failure(std::move(locked.error()));
      auto file = os::File::open(env, AT_FDCWD, target, O_RDONLY | O_NONBLOCK, 0, target);
      if (!file) return Failure(std::move(file.error()));
      old.file = std::move(*file);
      break;
    }
    old.locked = std::move(*locked);
    auto folder = Folder::open(env, target, s, log);
    if (!folder) return Failure(std::move(folder.error()));
    if (!*folder) break;
    auto orphans = find_orphans(**folder, s);
    if (!orphans) return Failure(std::move(orphans.error()));
    if (!orphans->committed) break;
    if (i >= attempts) return fail(Status::busy, in_quotes(target), " needs recovery again and again; try again");
    old.locked.reset();
    if (auto done = recover(env, target, wait, {}); !done) return Failure(std::move(done.error()));
  }
  const os::File *from = old.locked ? &old.locked->file : old.file ? &old.file : nullptr;
  if (from)
    if (auto kept = carry_over(*from, made.file(), log); !kept) return kept;
  auto placed = made.take_place();
  if (placed) return {};
  Error e = std::move(placed.error().error);
  if (placed.error().replaced) {
    e.status = Status::needs_recovery;
    e.message = text("the new ", in_quotes(target), " is in place, but a power cut may undo that (", e.message,
                     "); save it again");
  }
  return Failure(std::move(e));
}

}  // namespace st::write
