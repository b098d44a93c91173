// Tensors whose new bytes a transaction makes of the old ones, when it has locked them. The journal takes what changes
// of them, and no copy.
#pragma once

#include "file/staged.h"

namespace st::store {

Result<void> stage_remake(Staged &staged, std::string_view name, const Remake &make, uint64_t in_journal);
// Under the locks: makes pieces of it, with what changes in the journal. Once is enough, as long as the journal stays.
Result<void> assemble_remakes(Staged &staged, const os::File &data);
// Pieces of it, as they are assembled, or may be; then `journal` takes about as much as it will.
std::vector<write::Piece> remade_pieces(const Staged &staged, write::JournalPlan *journal);
// Committed: the handle's views show it.
void show_remade(Staged &staged);

}  // namespace st::store
