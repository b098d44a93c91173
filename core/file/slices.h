// How a transaction changes parts of tensors. New bytes go to the journal during the call. What they are for is kept in
// maps (slice_map.h), so that the last wins. The commit makes pieces of it, or writes it into a new file.
#pragma once

#include "file/staged.h"
#include "newfile/build.h"

namespace st::store {

Result<void> stage_slice(Staged &staged, std::string_view name, const TensorPart &part, const NewBytes &value);
Result<void> stage_ranges(Staged &staged, std::string_view name, std::span<const ByteRange> ranges,
                          std::span<const std::byte> bytes);
// Puts them into the draft of a publish that was a patch until now.
Result<void> draft_slices(const Staged &staged, PendingCatalogue *draft, std::vector<Change> *changes,
                          std::vector<SliceMap> *maps);
// The payloads, from a journal that is there no more.
Result<void> restage_slices(Staged &staged, write::Journal &gone);

// Which bytes of the file a patch locks, in ascending order.
std::vector<Covered> bytes_to_lock(const Staged &staged);
// The name of the first staged tensor that has some of these bytes of the file; or, where they lie between such, of the
// tensor that they are of.
std::string_view name_in(const Staged &staged, const Covered &bytes);

// Pieces of what is staged by slices. Under the locks, as bytes between short strips are the file's own.
Result<void> assemble_slices(Staged &staged, const os::File &data);
// As they are assembled, or as `journal` will have them.
std::vector<write::Piece> slice_pieces(const Staged &staged, write::JournalPlan *journal);
// Committed: the handle's views show them.
void show_slices(Staged &staged);

// What writing slices into a new file adds to its cost; `block` of the disk.
void reckon_slices(const Staged &staged, write::Cost *cost, uint64_t block);
// Over what lies in the new file by then. `made` is that file, as this handle will show it.
Result<void> write_slices(const Staged &staged, const os::File &file, const Snapshot &made, write::Built *built);

}  // namespace st::store
