#include "file/commit_plan.h"

#include "file/patch_commit.h"
#include "file/rewrite_commit.h"
#include "newfile/room.h"

namespace st::store {

Result<CommitPlan> reckon(Staged &staged, const os::File &data, write::SuperParticipant *as_part) {
  if (staged.publishes()) return reckon_rewrite(staged, data, as_part);
  if (as_part) as_part->journal.assign(write::temporary_digits, '0');
  return reckon_patch(staged, data, as_part ? write::Record::redo : record_for(staged, data), as_part);
}

Result<void> check_room(const Staged &staged, const os::File &data, const Result<CommitPlan> &plan) {
  if (!plan) return Failure(plan.error());
  return write::check_room(data, write::room_with_metadata(staged.snapshot->filesystem.type, plan->cost.room));
}

}  // namespace st::store
