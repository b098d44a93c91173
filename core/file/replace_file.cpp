#include "file/replace_file.h"

#include <cerrno>
#include <optional>

#include "base/later_log.h"
#include "base/open_outcome.h"
#include "format/shard_index.h"
#include "journal/journal_folder.h"
#include "journal/lock_settled.h"
#include "journal/move_aside.h"
#include "journal/recover.h"
#include "newfile/copy_attributes.h"
#include "os/rename_over.h"
#include "os/turnstile.h"
#include "os/waited.h"

namespace st::write {
namespace {

// The file that will be replaced: locked against patches and publishes, its
// hot journals recovered, so that no journal waits for a file that is gone.
struct ReplacedFile {
  std::unique_ptr<os::LockedFile> locked;
  os::File file;  // where it could not be locked
  const os::File *get() const { return locked ? &locked->file : file ? &file : nullptr; }  // null: there is none
};

// Then a file is replaced all the same.
bool cannot_lock(const Error &e) {
  return e.status == Status::lock_unsupported || e.os_errno == EACCES || e.os_errno == EPERM || e.os_errno == ETXTBSY;
}

// Where other hosts write, a journal in which nothing is written. If this host loses its locks, their next holder takes
// it away.
class Fence {
 public:
  explicit Fence(const os::Location &target) : target_(target) {}
  ~Fence() {
    if (taken_.journal) folder_->give_back(std::move(taken_));
  }
  Fence(const Fence &) = delete;
  Fence &operator=(const Fence &) = delete;
  // Before the lock. `old` is what has the name.
  Result<void> raise(const struct stat &old) {
    if (!S_ISREG(old.st_mode) || !target_.has_other_hosts(old)) return {};
    folder_ = std::make_unique<JournalFolder>(target_, old);
    auto taken = folder_->take();
    if (!taken && !cannot_lock(taken.error())) return Failure(std::move(taken.error()));
    if (taken) taken_ = std::move(*taken);
    return {};
  }
  Result<void> stands() const { return taken_.journal ? folder_->check_beside(taken_) : Result<void>(); }

 private:
  const os::Location &target_;
  std::unique_ptr<JournalFolder> folder_;
  JournalFolder::Taken taken_;
};

Result<ReplacedFile> lock_replaced(const os::Location &target, const os::LockWait &wait, const Log &log) {
  const LockSteps steps{[] { return std::vector<os::LockRange>{os::whole_file(true)}; },
                        os::holder_of(os::whole_file(true)),
                        [&](os::LockedFile &locked) -> Result<Look> {
                          ST_TRY(auto now, locked.file.stat());
                          ST_TRY(auto folder, Folder::open(target, now, log));
                          if (!folder) return Look::settled;
                          const Piece all{0, {0, static_cast<uint64_t>(now.st_size), 0}, nullptr};
                          ST_TRY(auto settled, settle_hot_journals(*folder, now, {{}, {&all, 1}}));
                          if (!settled) return Look::hot;
                          if (!target.has_other_hosts(now)) return Look::settled;
                          ST_TRY(auto replaced, target.was_replaced(locked.file));  // see commit_lock.cpp
                          return replaced ? Look::again : Look::settled;
                        },
                        [&]() -> Result<void> {
                          ST_TRY(recover(target, wait, {}));
                          return {};
                        }};
  ReplacedFile old;
  auto look = lock_settled(target, wait, steps, &old.locked);
  if (look) return old;
  if (!cannot_lock(look.error())) return Failure(std::move(look.error()));
  ST_TRY(old.file, target.open(O_RDONLY | O_NONBLOCK));
  return old;
}

}  // namespace

Result<Destination> find_destination(os::Env &env, const std::string &path) {
  auto at = os::Location::find_new(env, path);
  if (!at && at.error().os_errno == 0) return Failure(std::move(at.error()));
  if (!at) return Failure(os_error(at.error().os_errno, "save", path));
  // An open of such a name looks for shards: it would not find the file, and an index that the file replaced were lost.
  if (is_index_name(path) || is_index_name(at->name()))
    return fail(Status::invalid_argument, in_quotes(path),
                " is the name of an index of shards; give the path of a .safetensors file");
  return destination_at(std::move(*at));
}

Result<Destination> destination_at(os::Location at) {
  struct stat s;
  int r = at.stat(&s);
  if (r == -ENOENT) {
    ST_TRY(const bool changed, os::await_rename_over(at, {default_lock_timeout_ms}));
    if (changed) r = at.stat(&s);
  }
  if (r < 0 && r != -ENOENT) return Failure(os_error(-r, "save", at.path()));
  const bool exists = r == 0 && !S_ISLNK(s.st_mode);
  if (exists && !S_ISREG(s.st_mode))
    return fail(Status::not_regular, in_quotes(at.path()), " is no plain file; give the path of a .safetensors file");
  return Destination{std::move(at), exists};
}

Result<std::unique_ptr<TemporaryFile>> create_for(const Destination &to, mode_t mode, TemporaryFile::Stale stale) {
  ST_TRY(auto made, TemporaryFile::create(to.at, to.exists ? 0600 : mode, temporary_infix, stale));
  made->note_as_new(!to.exists);
  return made;
}

namespace {

// What a new file gets here. Another new file tells it: to ask for the umask would change it for all threads.
Result<void> give_rights_of_new(const os::Location &target, mode_t mode, const os::File &made, const Log &log) {
  ST_TRY(const auto other, TemporaryFile::create(target, mode, temporary_infix, TemporaryFile::Stale::removed));
  return copy_attributes(other->file(), made, log);
}

class Replacement {
 public:
  Replacement(const os::Location &target, TemporaryFile &made, mode_t mode, const os::LockWait &wait,
              const Control &control, const Log &log)
      : target_(target), made_(made), mode_(mode), wait_(wait), control_(control), log_(log) {}
  // Whether it was done. False: something else has the name by now, so look anew.
  Result<bool> attempt();

 private:
  Result<bool> something_stands(struct stat *out) const;
  Result<void> prepare();
  Result<void> may_take_name();

  const os::Location &target_;
  TemporaryFile &made_;
  const mode_t mode_;
  const os::LockWait &wait_;
  const Control &control_;
  const Log &log_;
  std::optional<Fence> fence_;
  ReplacedFile old_;
  LaterLog warnings_;  // for when the new file has its place
  bool moved_ = false;
};

// A link is replaced as if there were nothing: see find_destination.
Result<bool> Replacement::something_stands(struct stat *out) const {
  const int r = target_.stat(out);
  if (r < 0 && r != -ENOENT) return Failure(os_error(-r, "replace", target_.path()));
  return r == 0 && !S_ISLNK(out->st_mode);
}

Result<void> Replacement::prepare() {
  struct stat s;
  ST_TRY(const bool stands, something_stands(&s));
  if (stands) {
    ST_TRY(fence_->raise(s));
    ST_TRY(old_, lock_replaced(target_, wait_, log_));
    made_.note_as_new(false);
    return copy_attributes(*old_.get(), made_.file(), warnings_.log());
  }
  ST_TRY(auto fresh, made_.file().stat());
  ST_TRY(move_all_aside(target_, fresh, wait_, log_));
  if (made_.is_as_new()) return {};
  ST_TRY(give_rights_of_new(target_, mode_, made_.file(), warnings_.log()));
  made_.note_as_new(true);
  return {};
}

// To make the new file durable took long. Another process may have given the name to its file meanwhile, and may be
// changing that file.
Result<void> Replacement::may_take_name() {
  if (const os::File *old = old_.get()) {
    ST_TRY(moved_, target_.was_replaced(*old));
    // Last, as nothing is promised from there to the rename.
    if (!moved_ && old_.locked) return fence_->stands();
  } else {
    struct stat s;
    ST_TRY(moved_, something_stands(&s));
  }
  return moved_ ? fail(Status::busy, "something else has the name") : Result<void>();
}

Result<bool> Replacement::attempt() {
  old_ = {};
  fence_.emplace(target_);
  moved_ = false;
  warnings_.forget();
  ST_TRY(prepare());
  auto placed = made_.rename_into_place(control_, [&] { return may_take_name(); });
  if (placed && old_.locked) os::hand_over(old_.locked->file, old_.locked->lock);
  if (moved_) return false;
  if (!placed && !placed.error().replaced) return Failure(std::move(placed.error().error));
  warnings_.tell(log_);
  if (placed) return true;
  return open_outcome(std::move(placed.error().error), [&](const std::string &why) {
    return text("the new ", in_quotes(target_.path()), " is in place, but a power cut may undo that (", why,
                "); save it again");
  });
}

Result<void> replace_quietly(const os::Location &target, TemporaryFile &made, mode_t mode, const os::LockWait &wait,
                             const Control &control, const Log &log) {
  Replacement replacement(target, made, mode, wait, control, log);
  for (int i = 0; i < os::most_lock_attempts; ++i) {
    ST_TRY(const bool done, replacement.attempt());
    if (done) return {};
  }
  return fail(Status::busy, in_quotes(target.path()), " is being replaced all the time; try again");
}

}  // namespace

Result<void> replace_file(const os::Location &target, std::unique_ptr<TemporaryFile> &made, mode_t mode,
                          int32_t lock_timeout_ms, const Control &control, const Log &log) {
  const os::WaitedByCall call(os::WaitedByCall::if_outside);
  const os::MadeIn made_in(target.env());
  LaterLog later;
  const TellAtEnd at_end([&] {
    if (made_in.this_process()) later.tell(log);
  });
  auto done = replace_quietly(target, *made, mode, {lock_timeout_ms, &control, nullptr}, control, later.log());
  if (done || done.error().status == Status::needs_recovery) made.reset();
  return done;
}

}  // namespace st::write
