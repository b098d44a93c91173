// Recovery of transactions on several files. One whose super-journal is committed
// is finished in all of them (roll_forward.h); any other never was. Called for the
// index, and from the recovery of a single shard that was opened by its own path.
#pragma once

#include "journal/recover.h"
#include "journal/super_journal.h"

namespace st::write {

// Does the super-journal of this part, found beside `shard`, say that it is to be?
enum class Decision { no, yes, unknown };
// If it does not, and `durably`, no power cut will make it say so; unknown where that cannot be had.
// Status needs_recovery if something stands there that is not to be trusted: then nothing is known, and all must stay.
Result<Decision> decision_on(const os::Location &shard, const CommitRecord &part, const struct stat &data,
                             bool durably = false);

// Under exclusive locks on the index and all parts. Statuses as of recover().
Result<Recovered> recover_super(const os::Location &index, const os::LockWait &wait, const Findings &findings);
// The same; but status journal if something had to be moved aside.
Result<Recovered> recover_super_or_fail(const os::Location &index, const os::LockWait &wait, const Findings &findings);
// Is a commit on several files half done, whether its writer lives or not: decided, and not all files have their names?
// Usually costs two system calls.
Result<bool> is_decided(const os::Location &index, const os::LockWait &wait);
// The same under a shared lock on the index: has its writer died? The lock of its journal may be released last. One
// that only patches shares the index, and may live.
Result<bool> is_left_half_done(const os::Location &index, const os::LockWait &wait);
// If a super-journal waits there. Usually costs one system call. Rubbish is
// removed if `tidy`, and nobody is in the way.
Result<Recovered> recover_super_if_needed(const os::Location &index, const os::LockWait &wait, bool tidy,
                                          const Findings &findings);

}  // namespace st::write
