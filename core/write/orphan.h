// Journals that were found beside a file: what they are, whether they may be
// applied, and how they are applied and dropped. For recovery alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "write/journal_folder.h"
#include "write/journal_layout.h"

namespace st::write {

// A journal found in the folder, and what its first sector says. Reading takes
// no lock: whoever looks must not be taken for the journal's writer by another
// who looks at the same time.
struct Found {
  os::File file;
  uint64_t size = 0;
  JournalState state = JournalState::empty;
  CommitRecord record;
  std::string damage;  // why it must not be applied

  bool waits() const { return state != JournalState::empty || !damage.empty(); }
};

Result<void> read_state(Found &found);
// Null if it has gone meanwhile. Opened for writing if `write`.
Result<std::unique_ptr<Found>> look_at(const Folder &folder, const std::string &name, const struct stat &data,
                                       bool write);
// Does it reach to the end of its list of ranges?
bool manifest_is_inside(const Found &found);

// Removes an empty journal if nobody is filling it: true if it did. Only under
// the lock of the whole file: a journal's lock in other hands than its writer's
// would be taken for a sign of life.
Result<bool> drop_if_idle(const Folder &folder, const std::string &name, const Found &found);
// Durably empty first, then gone.
Result<void> empty_and_drop(const Folder &folder, const std::string &name, const Found &orphan);
// Out of the way, for somebody to look at: answers where it is now.
Result<std::string> move_aside(const Folder &folder, const std::string &name);

// Everything that must hold before a byte is written. Empty: it does.
class Replay {
 public:
  Replay(const os::File &data, const Found &orphan) : data_(data), orphan_(orphan) {}

  Result<std::string> why_not();
  Result<void> apply();
  bool touched() const { return touched_; }  // as far as why_not() has seen
  size_t ranges() const { return ranges_.size(); }
  uint64_t bytes() const;

 private:
  Result<std::string> why_not_range(const RangeRecord &range);

  const os::File &data_;
  const Found &orphan_;
  std::vector<RangeRecord> ranges_;
  bool touched_ = false;                        // the file holds new bytes that are not the old ones
  std::unique_ptr<std::byte[]> now_, payload_;  // a chunk, or the largest range
};

// A committed journal that cannot be applied here, and whether a failure means that.
Error needs_recovery(const std::string &path, const Error &cause);
bool means_read_only(const Error &e);

}  // namespace st::write
