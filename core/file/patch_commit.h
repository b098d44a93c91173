// The commit of a patch: new bytes in place, by a redo record or an undo record (journal/patch.h).
#pragma once

#include "file/commit_lock.h"
#include "journal/patch.h"

namespace st::store {

CommitPlan reckon_patch(const Staged &staged, const os::File &data, write::Record record, bool as_part);
write::Record record_for(const Staged &staged, const os::File &data);

// Status needs_recovery: the outcome is open. Any other failure: nothing has changed. With the option `journal_only`
// the lock may go to the file's deferred commits. `at_last`: see AnyTransaction.
Result<void> commit_patch(Staged &staged, CommitLock &lock, const AnyTransaction::AtLast &at_last);

// The change stands, and this handle shows it.
void count_and_show(Staged &staged) noexcept;

}  // namespace st::store
