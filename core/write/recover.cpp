#include "write/recover.h"

#include <memory>

#include "hash.h"
#include "write/exclusive.h"
#include "write/orphan.h"
#include "write/replacement.h"
#include "write/super_recover.h"

namespace st::write {
namespace {

// Is this the record of a transaction on bytes that are locked by us? Then its
// writer has lost its locks: the kernel takes them from a dying process one file
// after the other, and the journal's may be the last. What cannot be read
// belongs to somebody who goes on writing, or to recovery.
bool is_on(const Found &found, std::span<const Piece> locked) {
  if (found.state != JournalState::committed) return false;
  // A new file for the whole of the old one, or a decision on all parts: its writer had locked the whole file.
  if (found.record.is_super() || (found.record.is_part() && found.record.ranges == 0)) return !locked.empty();
  if (!manifest_is_inside(found)) return false;
  std::vector<std::byte> manifest(found.record.ranges * range_record_bytes);
  if (!found.file.read(manifest.data(), manifest.size(), found.record.manifest)) return false;
  if (hash64(manifest.data(), manifest.size()) != found.record.manifest_hash) return false;
  auto piece = locked.begin();  // both ascend
  for (const RangeRecord &range : decode_ranges(manifest)) {
    while (piece != locked.end() && piece->offset + piece->payload.length <= range.offset) ++piece;
    if (piece != locked.end() && piece->offset < range.offset + range.length) return true;
  }
  return false;
}

}  // namespace

Result<Orphans> find_orphans(const Folder &folder, const struct stat &data, const Asking &asking) {
  Orphans orphans;
  auto names = folder.journals();
  if (!names) return Failure(std::move(names.error()));
  for (const std::string &name : *names) {
    if (name == asking.own) continue;
    auto looked = look_at(folder, name, data, false);
    if (!looked) return Failure(std::move(looked.error()));
    if (!*looked) continue;
    Found &found = **looked;
    if (found.file) {
      auto locked = os::is_locked(found.file, {0, 0, true});
      if (!locked) return Failure(std::move(locked.error()));
      if (*locked && !is_on(found, asking.locked)) continue;
      // Its writer may have finished since we read: look again, now that nobody
      // writes to it.
      if (found.waits())
        if (auto read = read_state(found); !read) return Failure(std::move(read.error()));
    }
    (found.waits() ? orphans.committed : orphans.idle) = true;
  }
  return orphans;
}

namespace {

// One attempt. Nothing if it met a part of a transaction on several files that
// is decided: all of that is to be finished first, from its super-journal `super`.
class Recovery {
 public:
  Recovery(os::Env &env, const std::string &path, const os::LockWait &wait, const Findings &findings)
      : env_(env), path_(path), wait_(wait), findings_(findings) {}

  Result<bool> run();  // false: super() first, then again
  const std::string &super() const { return super_; }
  Recovered result;
  void tell(LogLevel level, Status status, std::string message) {
    if (findings_ && !findings_({level, status, std::move(message)})) stopped_ = true;
  }

 private:
  Result<void> settle(const Folder &folder, const std::string &name, Found &orphan, const os::File &data,
                      const struct stat &identity);
  Result<void> put_aside(const Folder &folder, const std::string &name, const std::string &why);

  os::Env &env_;
  const std::string &path_;
  const os::LockWait &wait_;
  const Findings &findings_;
  bool stopped_ = false;
  std::string super_;
};

Result<bool> Recovery::run() {
  super_.clear();
  struct stat by_path;
  if (const int r = env_.fstatat(AT_FDCWD, path_.c_str(), &by_path, 0); r < 0)
    return Failure(os_error(-r, "look at", path_));
  Replacement::remove_stale(env_, path_);
  const Log told = [&](LogLevel level, const std::string &m) { tell(level, Status::journal, m); };
  auto there = Folder::open(env_, path_, by_path, told);
  if (!there) return Failure(std::move(there.error()));
  if (!*there && !Replacement::is_any(env_, path_, undecided_infix)) return true;

  auto read_only = [&](Error &&e) { return Failure(means_read_only(e) ? needs_recovery(path_, e) : std::move(e)); };
  auto exclusive = lock_whole_file(env_, path_, wait_);
  if (!exclusive && !*there && means_read_only(exclusive.error())) return true;
  if (!exclusive) return read_only(std::move(exclusive.error()));
  const os::File &data = (*exclusive)->file;
  auto identity = data.stat();
  if (!identity) return Failure(std::move(identity.error()));

  // Only now it is the folder that counts: while this waited, that one may have been removed and another made.
  auto folder = Folder::open(env_, path_, *identity, {});
  if (!folder) return Failure(std::move(folder.error()));
  std::vector<std::string> names;
  if (*folder) {
    auto listed = (*folder)->journals();
    if (!listed) return Failure(std::move(listed.error()));
    names = std::move(*listed);
  }
  for (const std::string &name : names) {
    if (stopped_)
      return fail(Status::cancelled, "the report callback stopped the recovery; what it had reported is done");
    auto looked = look_at(**folder, name, *identity, true);
    if (!looked) return read_only(std::move(looked.error()));
    if (!*looked) continue;
    if (auto settled = settle(**folder, name, **looked, data, *identity); !settled)
      return Failure(std::move(settled.error()));
    if (!super_.empty()) return false;
  }
  // What is still undecided belonged to a part, and there is none any more.
  Replacement::remove_stale(env_, path_, undecided_infix);
  (*exclusive)->lock.release();
  Folder::remove_if_empty(env_, path_);
  return true;
}

Result<void> Recovery::put_aside(const Folder &folder, const std::string &name, const std::string &why) {
  auto aside = move_aside(folder, name);
  if (!aside) return Failure(std::move(aside.error()));
  ++result.aside;
  result.why_aside = text("journal ", name, " was not applied: ", why, "; it was moved aside to ", in_quotes(*aside));
  tell(LogLevel::warning, Status::journal, result.why_aside);
  return {};
}

Result<void> Recovery::settle(const Folder &folder, const std::string &name, Found &orphan, const os::File &data,
                              const struct stat &identity) {
  const std::string dropped_for = text("journal ", name, ": its transaction had not committed; it was dropped");
  if (!orphan.waits()) {
    auto dropped = drop_if_idle(folder, name, orphan);
    if (!dropped) return Failure(std::move(dropped.error()));
    if (!*dropped) return {};
    ++result.dropped;
    tell(LogLevel::info, Status::ok, dropped_for);
    return {};
  }
  bool never_was = false;  // a part, and the whole was not committed
  if (orphan.damage.empty() && orphan.record.is_part()) {
    auto decision = decision_on(env_, path_, orphan.record, identity);
    if (!decision) return Failure(std::move(decision.error()));
    if (*decision == Decision::yes) {
      super_ = os::split_path(path_).first + "/" + orphan.record.super_of;
      return {};
    }
    never_was = *decision == Decision::no;
    if (!never_was) orphan.damage = "its super-journal is damaged, or not to be trusted";
  }
  if (orphan.damage.empty() && orphan.record.is_super()) orphan.damage = "it is the super-journal of an index";
  Replay replay(data, orphan);
  if (orphan.damage.empty()) {
    auto why = replay.why_not();
    if (!why) return Failure(std::move(why.error()));
    orphan.damage = std::move(*why);
  }
  if (never_was && !replay.touched()) {
    if (auto emptied = empty_and_drop(folder, name, orphan); !emptied) return emptied;
    ++result.dropped;
    tell(LogLevel::info, Status::ok, dropped_for);
    return {};
  }
  if (never_was && orphan.damage.empty())
    orphan.damage = text("its super-journal, beside ", in_quotes(orphan.record.super_of), ", is gone");
  if (!orphan.damage.empty()) return put_aside(folder, name, orphan.damage);
  if (auto applied = replay.apply(); !applied) return applied;
  if (auto emptied = empty_and_drop(folder, name, orphan); !emptied) return emptied;
  const bool undone = orphan.record.is_undo();
  ++(undone ? result.undone : result.applied);
  tell(LogLevel::info, Status::ok,
       text("journal ", name,
            undone ? ": its transaction had not committed; it was rolled back, "
                   : ": its committed transaction was finished, ",
            replay.bytes(), " bytes in ", replay.ranges(), " pieces"));
  return {};
}

}  // namespace

Result<Recovered> recover(os::Env &env, const std::string &path, const os::LockWait &wait, const Findings &findings) {
  constexpr int attempts = 100;
  Recovery recovery(env, path, wait, findings);
  for (int i = 0; i < attempts; ++i) {
    auto done = recovery.run();
    if (!done) return Failure(std::move(done.error()));
    if (*done) return std::move(recovery.result);
    auto finished = recover_super(env, recovery.super(), wait, findings);
    if (!finished) return finished;
    recovery.result.applied += finished->applied;
    recovery.result.dropped += finished->dropped;
    if (finished->aside > 0) {
      recovery.result.aside += finished->aside;
      recovery.result.why_aside = finished->why_aside;
    }
  }
  return fail(Status::busy, in_quotes(path), " is being changed together with others all the time; try again");
}

}  // namespace st::write
