#include "journal/recover.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

#include "journal/claim.h"
#include "journal/hot_journal.h"
#include "journal/identity.h"
#include "journal/move_aside.h"
#include "journal/super_recover.h"
#include "newfile/temporary_file.h"
#include "os/named_lock.h"
#include "os/rename_over.h"

namespace st::write {
namespace {

// Is this, or was it before it was emptied, the record of a transaction on bytes that
// we have locked? Then its writer is dead: the kernel releases a killed process's
// locks file by file, and the journal's may be released last. If the manifest is
// unreadable, assume that the writer is alive, or leave it to recovery.
bool is_on(const Found &found, std::span<const Piece> locked) {
  if (found.state != JournalState::committed && !found.has_last) return false;
  // A new file for the whole of the old one, or a decision on all parts: its writer had locked the whole file.
  if (found.record.is_super() || (found.record.is_part() && found.record.ranges == 0)) return !locked.empty();
  auto piece = locked.begin();  // both ascend
  bool meets = false;
  const auto read = Manifest(found.file, found.size, found.record).each([&](const RangeRecord &range) {
    while (piece != locked.end() && piece->offset + piece->payload.length <= range.offset) ++piece;
    meets |= piece != locked.end() && piece->offset < range.offset + range.length;
    return Result<Verdict>(Verdict::good());
  });
  return read && read->is_good() && meets;
}

}  // namespace

Result<FoundJournals> find_hot_journals(const Folder &folder, const struct stat &data, const HotJournalQuery &query) {
  FoundJournals journals;
  ST_TRY(auto names, folder.journals());
  for (const std::string &name : names) {
    if (name == query.own) continue;
    if (is_dropped(name)) {
      journals.idle = true;
      continue;
    }
    ST_TRY(auto looked, look_at(folder, name, data, false));
    if (!looked) continue;
    Found &found = *looked;
    if (found.file) {
      auto asked = who_holds(found);
      if (!asked && asked.error().status == Status::lock_unsupported) {  // nobody can tell whether its writer is alive
        (found.waits() ? journals.committed : journals.idle) = true;
        continue;
      }
      ST_TRY(const auto held, std::move(asked));
      const bool rests = held == Holder::parked && !found.waits();
      // Another asker has locked it, and removes it or dies: see lock_empty.
      const bool is_asked = held == Holder::writer && found.size == 0 && found.file.reads_past_cache();
      if (held != Holder::nobody && !is_asked && (rests || !is_on(found, query.locked))) continue;
    }
    (found.waits() ? journals.committed : journals.idle) = true;
  }
  return journals;
}

Result<void> check_none_waits(const Folder &folder, const struct stat &data, const std::string &path,
                              const Error &cause) {
  ST_TRY(const auto journals, find_hot_journals(folder, data));
  return journals.committed ? Failure(needs_recovery(path, cause)) : Result<void>();
}

namespace {

// No more is read of it than its state, and nothing is believed but that.
Result<bool> rests(const Folder &folder, const std::string &name, Held if_held) {
  const os::File &dir = folder.dir();
  struct stat s;
  const int r = dir.env().fstatat(dir.fd(), name.c_str(), &s, AT_SYMLINK_NOFOLLOW);
  // Where other hosts write, its size may be that of a while ago.
  if (r == -ENOENT || r == -ESTALE || (r == 0 && S_ISREG(s.st_mode) && s.st_size == 0 && !dir.reads_past_cache()))
    return true;
  if (r < 0 || !S_ISREG(s.st_mode)) return false;
  Found found;
  ST_TRY(found.file, os::File::open(dir.env(), dir.fd(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0,
                                    dir.path() + "/" + name));
  ST_TRY(const auto opened, found.file.stat());
  if (!os::same_inode(opened, s)) return false;
  folder.opened(&found.file);
  ST_TRY(read_state(found));
  if (!found.waits()) return true;
  ST_TRY(const auto held, who_holds(found));
  return (held != Holder::nobody && if_held == Held::lives) || !found.waits();
}

bool each_rests(const Folder &folder, Held if_held) {
  constexpr size_t most_looked_at = 1000;
  const auto names = folder.journals();
  if (!names) return is_gone(names.error());
  return names->size() <= most_looked_at && std::all_of(names->begin(), names->end(), [&](const std::string &name) {
           const auto resting = rests(folder, name, if_held);
           return resting ? *resting : is_gone(resting.error());
         });
}

// In a folder that may be planted. Where a link or a file has its name, or nothing by now, no journal waits.
bool has_none_that_waits(const os::Location &file, Held if_held) {
  const auto folder = Folder::open_untrusted(file);
  if (folder) return each_rests(*folder, if_held);
  const Error &e = folder.error();
  return is_gone(e) || e.os_errno == ENOTDIR || e.os_errno == ELOOP;
}

}  // namespace

bool all_rest(const os::Location &file, Held if_held) {
  const auto folder = Folder::open_untrusted(file);
  if (!folder) return is_gone(folder.error());
  const auto s = folder->dir().stat();
  if (!s) return is_gone(s.error());
  return (s->st_mode & S_IWOTH) == 0 && each_rests(*folder, if_held);
}

Result<std::optional<Folder>> open_to_copy(const os::Location &file, const struct stat &data, Held if_held,
                                           const Log &log) {
  auto opened = Folder::open_trusted(file, data);
  const bool is_passed_over =
      !opened && Folder::may_be_planted(opened.error(), file, data) && has_none_that_waits(file, if_held);
  return is_passed_over ? Folder::open(file, data, log) : std::move(opened);
}

Log tell_passed_over(const os::Location &file, const Log &tell) {
  return [&file, tell](LogLevel level, const std::string &message) {
    if (has_none_that_waits(file, Held::lives))
      tell(level, text("nothing waits to be recovered, but ", message));
    else
      tell(LogLevel::error, message);
  };
}

namespace {

std::string was_dropped(const std::string &name) {
  return text("journal ", in_quotes(name), ": it held no change that waits; it was removed");
}

// Is it an empty one of a dead writer? Nobody locks a journal with bytes that is not locked. So one that is found empty
// then stays empty.
Result<std::unique_ptr<Found>> look_if_dead(const Folder &folder, const std::string &name, const struct stat &data) {
  ST_TRY(auto looked, look_at(folder, name, data, true));
  if (!looked || !looked->file || looked->is_linked || looked->size == 0) return nullptr;
  ST_TRY(const auto held, who_holds(*looked));
  if (held != Holder::nobody || looked->state != JournalState::empty) return nullptr;
  return looked;
}

}  // namespace

uint32_t drop_idle(const Folder &folder, const struct stat &data, const Log &log) {
  constexpr uint32_t most = 4;  // each takes a sync, and the opener waits for it
  // One that cannot go may be alone in it. Where two cannot, more cannot either, and each open would try them all
  // again.
  constexpr uint32_t most_that_stay = 2;
  uint32_t dropped = 0, stay = 0;
  if (folder.dir().reads_past_cache()) return dropped;
  const auto names = folder.journals();
  if (!names) return dropped;
  for (auto name = names->begin(); name != names->end() && dropped < most && stay < most_that_stay; ++name) {
    const auto dead = look_if_dead(folder, *name, data);
    if (!dead || !*dead) continue;
    if (!empty(**dead) || !drop(folder, *name)) {
      ++stay;
      continue;
    }
    ++dropped;
    if (log) log(LogLevel::info, was_dropped(*name));
  }
  return dropped;
}

Result<bool> settle_hot_journals(const Folder &folder, const struct stat &data, const HotJournalQuery &query) {
  ST_TRY(auto journals, find_hot_journals(folder, data, query));
  if (journals.committed) return false;
  if (!journals.idle) return true;
  ST_TRY(auto names, folder.journals());
  ST_TRY(drop_gone(folder, &names));
  for (const std::string &name : names) {
    if (name == query.own) continue;
    ST_TRY(auto looked, look_at(folder, name, data, true));
    if (!looked) continue;
    // It waits only now: its writer is at it, or has lost its locks.
    if (looked->waits() && (!folder.dir().reads_past_cache() || !looked->file)) continue;
    ST_TRY(auto held, who_holds(*looked));
    const bool on_ours =
        looked->file.reads_past_cache() && (held == Holder::writer || looked->waits()) && is_on(*looked, query.locked);
    if (looked->waits()) {
      if (held == Holder::nobody || on_ours) return false;
      continue;
    }
    ST_TRY(auto settled, settle_idle(folder, name, *looked, held, on_ours));
    if (!settled) return false;
  }
  return true;
}

namespace {

// Journals are settled in this order.
enum class Round {
  finished,  // their bytes are all in the file: a cut brought the record back, perhaps beside one on the same bytes
  needed,    // what else the file needs
  done,      // parts of which it needs nothing
};

// How an attempt ended.
enum class Attempt {
  done,
  again,        // something is to be told before the next journal is settled
  super_first,  // it met a part of a decided transaction on several files, which is to be finished first
};

// Then the rest is told at the end: each pause lists the folder anew.
constexpr int most_pauses = 100;

bool is_untouched(const struct stat &now, const struct stat &then) {
  return os::same_inode(now, then) && now.st_size == then.st_size && os::same_times(now, then);
}

class Recovery {
 public:
  Recovery(const os::Location &file, const os::LockWait &wait, os::Neighbours *listed)
      : file_(file), wait_(wait), listed_(listed) {}

  Result<Attempt> run();
  const os::Location &super() const { return super_; }  // whose super-journal comes first
  // What super() is wanted for is a part that is done: the file needs nothing of it, and may be left with it.
  bool may_leave() const { return for_done_; }
  void leave_done() { leaves_done_ = true; }
  Recovered result;
  KeptFindings news;

 private:
  void tell(LogLevel level, Status status, std::string message) { news.keep({level, status, std::move(message)}); }
  void remove_new_files(std::string_view infix) {
    for (std::string &removed : TemporaryFile::remove_stale(file_, {infix}, listed_))
      tell(LogLevel::info, Status::ok, std::move(removed));
  }
  Result<void> settle(Round round, const Folder &folder, std::string *name, Found &hot, const os::File &data,
                      const struct stat &identity);
  Result<void> drop_done(const Folder &folder, std::string name, Found &done, const struct stat &identity);
  Result<void> put_aside(const Folder &folder, const std::string &name, const std::string &why);

  const os::Location &file_;
  const os::LockWait &wait_;
  os::Neighbours *const listed_;
  bool for_done_ = false, leaves_done_ = false;
  os::Location super_;
  std::optional<Identity> known_;  // of the file, once a journal is held against it
  struct stat paused_ = {};        // the file when it was unlocked for Attempt::again
  int pauses_ = 0;
};

Result<Attempt> Recovery::run() {
  super_ = {};
  for_done_ = false;
  ST_TRY(const auto by_path, os::look_up(file_, wait_));
  if (!S_ISREG(by_path.st_mode)) return fail(Status::not_regular, in_quotes(file_.path()), " is no plain file");
  remove_new_files(temporary_infix);
  const Log told = [&](LogLevel level, const std::string &m) { tell(level, Status::journal, m); };
  auto trusted = Folder::open(file_, by_path, tell_passed_over(file_, told));
  if (!trusted && trusted.error().status == Status::journal && all_rest(file_)) {
    told(LogLevel::warning, text("nothing waits to be recovered, but ", trusted.error().message));
    return Attempt::done;
  }
  ST_TRY(auto there, std::move(trusted));
  if (!there && !TemporaryFile::is_any(file_, undecided_infix, listed_)) return Attempt::done;

  auto exclusive = lock_whole_file(file_, wait_);
  if (!exclusive) {
    const Error &refused = exclusive.error();
    const bool is_read_only = means_read_only(refused);
    if (there && (is_read_only || refused.status == Status::lock_unsupported))
      ST_TRY(check_none_waits(*there, by_path, file_.path(), refused));
    if (is_read_only) return Attempt::done;
    return Failure(std::move(exclusive.error()));
  }
  const os::File &data = (*exclusive)->file;
  ST_TRY(auto identity, data.stat());
  if (!is_untouched(identity, paused_)) known_.reset();

  // Only now it is the folder that counts: while this waited, that one may have been removed and another made.
  ST_TRY(auto folder, Folder::open(file_, identity, {}));
  std::vector<std::string> names;
  if (folder) {
    ST_TRY(names, folder->journals());
    ST_TRY(drop_gone(*folder, &names));
  }
  std::optional<Error> held;  // by the holder of one with a second link
  for (const Round round : {Round::finished, Round::needed, Round::done})
    for (std::string &name : names) {
      std::string left;
      auto found = look_to_settle(*folder, name, identity, file_.path(), &left);
      if (!found && found.error().status == Status::busy) {
        held = std::move(found.error());
        continue;
      }
      ST_TRY(auto looked, std::move(found));
      if (!left.empty()) {
        if (looked && round == Round::done)
          told(LogLevel::warning,
               text("journal ", in_quotes(name), " has no change for the file; it was left (", left, ")"));
        continue;
      }
      if (!looked || looked->is_done() != (round == Round::done)) continue;
      if (!news.empty() && pauses_ < most_pauses) {
        ++pauses_;
        ST_TRY(paused_, data.stat());
        return Attempt::again;
      }
      ST_TRY(round == Round::done ? drop_done(*folder, name, *looked, identity)
                                  : settle(round, *folder, &name, *looked, data, identity));
      if (super_) return Attempt::super_first;
    }
  if (held && !result.has_done_something()) return Failure(std::move(*held));
  result.held = std::move(held);  // a caller that needs its bytes meets it again
  if (result.held) return Attempt::done;
  // What is still undecided belonged to a part, and there is none any more.
  remove_new_files(undecided_infix);
  (*exclusive)->lock.release();
  if (Folder::remove_if_empty(file_) && names.empty()) tell(LogLevel::info, Status::ok, Folder::removed_empty);
  return Attempt::done;
}

Result<void> Recovery::put_aside(const Folder &folder, const std::string &name, const std::string &why) {
  ST_TRY(auto aside, move_aside(folder, name));
  ++result.aside;
  result.why_aside =
      text("journal ", in_quotes(name), " was not applied: ", why, "; it was moved aside to ", in_quotes(aside));
  tell(LogLevel::warning, Status::journal, result.why_aside);
  return {};
}

// It must stay as long as a super-journal may ask for it, which a power cut may bring back.
Result<void> Recovery::drop_done(const Folder &folder, std::string name, Found &done, const struct stat &identity) {
  auto asked = decision_on(file_, done.record, identity, true);
  if (!asked && asked.error().status == Status::needs_recovery) {
    tell(LogLevel::warning, Status::journal,
         text("journal ", name, " has no change for the file; it was left (", asked.error().message, ")"));
    return {};
  }
  ST_TRY(const auto decision, std::move(asked));
  if (decision == Decision::unknown || (decision == Decision::yes && leaves_done_)) return {};
  if (decision == Decision::yes) {
    for_done_ = true;
    super_ = file_.beside(done.record.super_of);
    return {};
  }
  const std::string told = text("journal ", in_quotes(name), ": its transaction was finished; it was dropped");
  ST_TRY(auto dropped, drop_if_idle(folder, &name, done));
  if (!dropped) return {};
  ++result.dropped;
  tell(LogLevel::info, Status::ok, told);
  return {};
}

Result<void> Recovery::settle(Round round, const Folder &folder, std::string *at, Found &hot, const os::File &data,
                              const struct stat &identity) {
  std::string &name = *at;
  const bool may_be_finished = hot.waits() && hot.verdict.is_good() && hot.record.has_one_flush();
  if (round == Round::finished && !may_be_finished) return {};
  const std::string shown = text("journal ", in_quotes(name));
  const std::string dropped_for = was_dropped(name);
  if (!hot.waits()) {
    ST_TRY(auto dropped, drop_if_idle(folder, &name, hot));
    if (dropped) {
      ++result.dropped;
      tell(LogLevel::info, Status::ok, dropped_for);
    }
    if (dropped || !hot.waits()) return {};
  }
  ST_TRY(auto ours, claim(folder, &name, hot));
  if (!ours) return {};
  // Its writer was alive, and has finished.
  if (!hot.waits()) return empty_and_drop(folder, name, hot);
  ST_TRY(check_named(file_, data));
  bool never_was = false;  // a part, and the whole was not committed
  if (hot.verdict.is_good() && hot.record.is_part()) {
    ST_TRY(auto decision, decision_on(file_, hot.record, identity));
    if (decision == Decision::yes) {
      super_ = file_.beside(hot.record.super_of);
      return {};
    }
    never_was = decision == Decision::no;
    if (!never_was) hot.verdict = Verdict::bad("its super-journal is damaged");
  }
  if (hot.verdict.is_good() && hot.record.is_super()) hot.verdict = Verdict::bad("it is the super-journal of an index");
  Replay replay(data, hot);
  if (hot.verdict.is_good()) {
    if (!known_) {
      ST_TRY(known_, identify(data));
    }
    ST_TRY(hot.verdict, replay.judge(*known_));
  }
  if (round == Round::finished && !(hot.verdict.is_good() && (replay.is_torn() || replay.is_finished()))) return {};
  if (hot.verdict.is_good() && replay.is_torn()) {
    ST_TRY(empty_and_drop(folder, name, hot));
    ++result.dropped;
    tell(LogLevel::info, Status::ok, shown + ": a part of it is lost, and the file does not need it; it was dropped");
    return {};
  }
  if (never_was && !replay.touched()) {
    // Or a cut could bring the decision back, and not the part. Where it cannot be written, no part of it is in a file.
    ST_TRY(const auto now, decision_on(file_, hot.record, identity, true));
    if (now == Decision::yes) {
      super_ = file_.beside(hot.record.super_of);
      return {};
    }
    ST_TRY(empty_and_drop(folder, name, hot));
    ++result.dropped;
    tell(LogLevel::info, Status::ok, dropped_for);
    return {};
  }
  if (never_was && hot.verdict.is_good())
    hot.verdict = Verdict::bad(text("its super-journal, beside ", in_quotes(hot.record.super_of), ", is gone"));
  if (!hot.verdict.is_good()) return put_aside(folder, name, hot.verdict.why());
  if (auto may = replay.may_apply(); !may) return Failure(needs_recovery(file_.path(), may.error()));
  ST_TRY(replay.confirm());
  StillOurs still(hot.file, [&] { return check_claimed(folder, name, hot); });
  ST_TRY(still.ask());
  ST_TRY(replay.apply(still));
  ST_TRY(drop_applied(folder, name, hot));
  const bool undone = hot.record.is_undo();
  ++(undone ? result.undone : result.applied);
  tell(LogLevel::info, Status::ok,
       text(shown,
            undone ? ": its transaction had not committed; it was rolled back, "
                   : ": its committed transaction was finished, ",
            replay.bytes(), " bytes in ", replay.ranges(), " pieces"));
  return {};
}

}  // namespace

Result<Recovered> recover(const os::Location &file, const os::LockWait &wait, const Findings &findings,
                          os::Neighbours *listed) {
  constexpr int attempts = 100;
  Recovery recovery(file, wait, listed);
  for (int i = 0; i < attempts;) {
    ST_TRY(auto ended,
           tell_at_end(recovery.news, findings, [&] { return os::while_stale([&] { return recovery.run(); }); }));
    if (ended == Attempt::done) return std::move(recovery.result);
    if (ended == Attempt::again) continue;
    ++i;
    auto finished = recover_super(recovery.super(), wait, findings);
    if (recovery.may_leave()) recovery.leave_done();
    if (!finished && recovery.may_leave() && finished.error().status != Status::cancelled) continue;
    if (!finished) return finished;
    recovery.result.applied += finished->applied;
    recovery.result.dropped += finished->dropped;
    if (finished->aside > 0) {
      recovery.result.aside += finished->aside;
      recovery.result.why_aside = finished->why_aside;
    }
  }
  return fail(Status::busy, in_quotes(file.path()), " is being changed together with others all the time; try again");
}

}  // namespace st::write
