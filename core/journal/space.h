// Room on the disk for overwriting bytes in place: how much it takes, and how to take it before the point of no return.
// Bytes in a hole, bytes that a reflink shares, and all bytes of a copy-on-write filesystem need new blocks to be
// changed.
#pragma once

#include <span>

#include "base/control.h"
#include "journal/patch.h"
#include "newfile/room.h"
#include "os/filesystem.h"

namespace st::write {

// How many free bytes it takes to write `pieces`, which ascend. An undo journal shares `saved` bytes of their blocks.
uint64_t room_to_overwrite(const os::File &data, const os::Filesystem &filesystem, std::span<const Piece> pieces,
                           uint64_t saved);

// Sets aside what room_to_overwrite() counts, where the filesystem can.
Result<void> reserve_space(const os::File &data, const os::Filesystem &filesystem, std::span<const Piece> pieces,
                           const Control &control);

}  // namespace st::write
