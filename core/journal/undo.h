// The patch protocol where files can share blocks: the journal saves the old
// bytes, by sharing them, and the new ones are written once, in place.
//
//   old bytes into the journal, durable -> undo record durable
//     -> write the file, durable -> journal empty, durable: this is the commit
//
// A crash before that is rolled back by recovery; an error, at once.
#pragma once

#include <span>
#include <vector>

#include "journal/patch.h"
#include "os/filesystem.h"

namespace st::write {

inline constexpr uint64_t never = UINT64_MAX;

// From how many bytes on a tensor is changed so: `never` where blocks cannot be
// shared. ST_JOURNAL=redo and =undo (whatever the size) override.
uint64_t undo_from(os::Env &env, const os::Filesystem &filesystem);

// Saves what `pieces` will overwrite; `from` as undo_from() answered. If that
// fails, for whatever reason, the file is untouched, and apply_patch may still be
// able to.
Result<std::vector<RangeRecord>> save_old(const os::File &data, Journal &journal, std::span<const Piece> pieces,
                                          uint64_t from, const Control &control);
// The same for a plan, with the manifest; false: no blocks of `data` can be shared.
bool plan_undo(const os::File &data, JournalPlan *journal, std::span<const Piece> pieces, uint64_t from);
// Does such an error mean that this file's blocks are never shared?
bool refuses_to_share(const Error &e);

// `ranges` as save_old() answered.
tl::expected<void, PatchFailure> apply_undoably(const os::File &data, const os::File &dir, Journal &journal,
                                                std::span<const Piece> pieces, std::vector<RangeRecord> ranges,
                                                const Identity &identity, const Control &control,
                                                const StillThere &there);

// Gives a range its old bytes again: shares what it can, since a full disk may
// have no blocks left for copies, and copies the rest. Nothing is synced.
Result<void> put_back(const os::File &data, const os::File &journal, const RangeRecord &range, std::byte *buffer);

}  // namespace st::write
