// The commit of a publish: a new file is built beside the old one, which shares with it what it can, and takes its
// name. Never touches the old file.
#pragma once

#include <memory>

#include "base/later_log.h"
#include "file/commit_lock.h"
#include "journal/super_journal.h"
#include "newfile/build.h"
#include "newfile/temporary_file.h"

namespace st::store {

Result<CommitPlan> reckon_rewrite(Staged &staged, const os::File &old, write::SuperParticipant *as_part);

// Status needs_recovery: the new file stands, but a power cut may bring the old one back. Any other failure: nothing
// has changed. `at_last`: see AnyTransaction. Once the new file stands nothing is locked any more.
Result<void> commit_rewrite(Staged &staged, CommitLock &lock, const AnyTransaction::AtLast &at_last);

// Its steps, for a Participant.
// Which new files there are to be. A part makes one before the index takes its new state, and one after that.
struct Makes {
  bool first, second;
  bool first_keeps;  // what it loses
};
Makes makes(const Staged &staged, bool as_part);
// Made, but for its name.
struct NewFile {
  std::unique_ptr<write::TemporaryFile> replacement;
  HeldSnapshot snapshot;  // placed: see DataFile::place
  write::Built built;
  HeldSnapshot replaced;  // what was shown before: it ends with this
  LaterLog warnings;      // for when it has its place
};
// `keeping_removed`: with the tensors that the draft has no more, at the end.
Result<void> make_new_file(Staged &staged, const CommitLock &lock, NewFile *made, const os::Location &at,
                           std::string_view infix, bool keeping_removed = false);
// Status hard_links if other names would keep the old file, and nobody has allowed that.
Result<void> check_links(const Staged &staged, const os::File &old);

}  // namespace st::store
