// Recovery: what crashed writers left beside a file is finished or dropped.
// An empty journal that nobody holds locked is dropped. A committed one whose
// writer is gone is checked to the last byte, applied, made durable, dropped; one
// that holds an undo record likewise, but what it holds are the old bytes.
// Anything else is moved aside and never applied. New files that were never given
// their name are removed.
//
// May be interrupted at any point and run again: applying writes the same bytes
// once more, and a journal is emptied only after its bytes are durable.
#pragma once

#include <algorithm>
#include <functional>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "journal/hot_journal.h"
#include "journal/journal_folder.h"
#include "journal/pieces.h"
#include "os/neighbours.h"
#include "os/range_lock.h"

namespace st::write {

struct Finding {
  LogLevel level;
  Status status;  // ok, or what is wrong
  std::string message;
};
using Findings = std::function<bool(const Finding &)>;  // false: stop

// They go to a log, which stops nothing.
inline Findings told_to(const Log &log) {
  if (!log) return {};
  return [log](const Finding &f) {
    log(f.level, f.message);
    return true;
  };
}

// What is found under locks, and told when nothing is locked: the user's function may use the model by another handle.
// Each message is told once.
class KeptFindings {
 public:
  void keep(Finding found) {
    if (seen_.insert(found.message).second) news_.push_back(std::move(found));
  }
  bool empty() const { return news_.empty(); }
  // False: the function wants to stop.
  bool tell(const Findings &to) {
    const auto news = std::exchange(news_, {});
    return !to || std::all_of(news.begin(), news.end(), std::cref(to));
  }

 private:
  std::set<std::string> seen_;
  std::vector<Finding> news_;
};

// `work` keeps what it finds in `found`, and unlocks all.
template <class Work>
auto tell_at_end(KeptFindings &found, const Findings &to, Work work) -> decltype(work()) {
  try {
    auto done = work();
    if (!found.tell(to) && done) return Failure(recovery_stopped());
    return done;
  } catch (const std::bad_alloc &) {
    found.tell(to);
    throw;
  }
}

struct Recovered {
  uint32_t applied = 0, undone = 0, dropped = 0, aside = 0;
  std::string why_aside;
  bool has_done_something() const { return applied + undone + dropped + aside > 0; }
  std::optional<Error> held;  // the rest was recovered, and one waits for its holder (busy)
};

// Journals whose writers are gone. Found without taking a lock.
struct FoundJournals {
  bool committed = false;  // recover() must come before the file is believed
  bool idle = false;       // empty or done, for recover() to remove
};
// A transaction names its own journal, and the pieces whose bytes it has locked.
struct HotJournalQuery {
  std::string_view own;
  std::span<const Piece> locked;  // ascending
};
Result<FoundJournals> find_hot_journals(const Folder &folder, const struct stat &data,
                                        const HotJournalQuery &query = {});
// The file `path` cannot be locked, as `cause` says. Status needs_recovery if there is something to recover.
Result<void> check_none_waits(const Folder &folder, const struct stat &data, const std::string &path,
                              const Error &cause);
// What a journal with a holder says to the asker: its writer is at work. Or, once the asker has locked all bytes of the
// file, that the writer is dying, or syncs later. The first takes a writer that dies at this instant for one at work.
enum class Held { lives, waits };
// For a reader of the file, of another user's journals: is each empty, or its writer alive? Then they say no more than
// that others may write to the file. False of a folder that anybody may write to, which somebody should look at.
bool all_rest(const os::Location &file, Held if_held = Held::lives);
// Folder::open(), for a change that copies bytes of the file, or for a durable copy. Nothing is recovered from a folder
// that may be planted. So it is passed over only if nothing waits in it: else a change that was promised could be lost,
// or half of it be copied.
Result<std::optional<Folder>> open_to_copy(const os::Location &file, const struct stat &data, Held if_held,
                                           const Log &log);
// For Folder::open() in a recovery: what is passed over is an error if something may wait there.
Log tell_passed_over(const os::Location &file, const Log &tell);
// For an opener that locks nothing: removes empty journals of dead writers, those that it may write. What cannot be
// removed stays. Where locks do not tell that a writer is gone, all do. Answers how many went.
uint32_t drop_idle(const Folder &folder, const struct stat &data, const Log &log);
// Call with locks on the bytes that will change. False: recover() must come first. Else no power cut brings back, over
// the change, records that dead writers had emptied.
Result<bool> settle_hot_journals(const Folder &folder, const struct stat &data, const HotJournalQuery &query);

// Under an exclusive lock on the whole file. Status needs_recovery if
// there is a committed journal but the file cannot be written; busy.
// With `listed` one listing of the folder serves many files that lie in it. What comes after the listing is left.
Result<Recovered> recover(const os::Location &file, const os::LockWait &wait, const Findings &findings,
                          os::Neighbours *listed = nullptr);

}  // namespace st::write
