// The patch protocol: replace bytes of a file in place, all pieces or none,
// whatever happens. The caller holds the locks and has staged the payloads.
//
//   note old bytes' hashes -> journal durable -> commit record durable
//     -> write the file, durable -> journal empty, durable
#pragma once

#include <span>

#include "write/journal_folder.h"
#include "write/pieces.h"

namespace st::write {

struct PatchFailure {
  Error error;
  bool open_outcome;  // recovery decides; else nothing has changed
  bool sync_failed;   // what was written through this handle can no longer be trusted
};

// `pieces` ascend and do not overlap.
tl::expected<void, PatchFailure> apply_patch(const os::File &data, const os::File &dir, Journal &journal,
                                             std::span<const Piece> pieces, const Identity &identity,
                                             const Control &control);

}  // namespace st::write
