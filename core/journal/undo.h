// What only an undo record needs: the old bytes into the journal, by sharing their blocks; and back, should the patch
// fail. patch.cpp has the steps.
#pragma once

#include <span>
#include <vector>

#include "journal/patch.h"

namespace st::write {

// Saves what `pieces` will overwrite; `from` as undo_from() answered. If that
// fails, for whatever reason, the file is untouched, and apply_redo may still be
// able to.
Result<std::vector<RangeRecord>> save_old(const os::File &data, Journal &journal, std::span<const Piece> pieces,
                                          uint64_t from, const Control &control);
// The same for a plan, with the manifest; false: no blocks of `data` can be shared.
bool plan_undo(const os::File &data, JournalPlan *journal, std::span<const Piece> pieces, uint64_t from);

// The failure `cause`, after all `ranges` have their old bytes again, durably, and the journal is empty; or, if that
// fails too, with an open outcome.
PatchFailure roll_back(const os::File &data, Journal &journal, std::span<const RangeRecord> ranges, std::byte *buffer,
                       Error cause);

// Gives a range its old bytes again: shares what it can, since a full disk may
// have no blocks left for copies, and copies the rest. Nothing is synced.
Result<void> put_back(const os::File &data, const os::File &journal, const RangeRecord &range, std::byte *buffer);

}  // namespace st::write
