// What a commit is about to do, by what is staged and by the file as it is. The commit itself goes by it: it begins
// only if what is needed is free.
#pragma once

#include "file/staged.h"
#include "journal/super_journal.h"

namespace st::store {

// Without the filesystem's own needs. `as_part`: of a commit on several files; gets its final length.
Result<CommitPlan> reckon(Staged &staged, const os::File &data, write::SuperParticipant *as_part);
// Status no_space if there is less room than the plan and the filesystem need.
Result<void> check_room(const Staged &staged, const os::File &data, const Result<CommitPlan> &plan);

}  // namespace st::store
