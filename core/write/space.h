// Room on the disk: how much a change takes, and whether it is there. For overwriting bytes in place, also how to take
// it before the point of no return. Bytes in a hole, bytes that a reflink shares, and all bytes of a copy-on-write
// filesystem need new blocks to be changed.
#pragma once

#include <span>

#include "control.h"
#include "os/filesystem.h"
#include "write/patch.h"

namespace st::write {

// Does a filesystem of that type write changed bytes to a new place?
bool copies_on_write(const std::string &type);

struct Room {
  uint64_t free = UINT64_MAX;  // bytes that this process may take; UINT64_MAX: not known
  uint64_t block = 4096;
};
Room room_of(const os::File &file);

// How many free bytes it takes to write `pieces`, which ascend. An undo journal shares `saved` bytes of their blocks.
uint64_t room_to_overwrite(const os::File &data, const os::Filesystem &filesystem, std::span<const Piece> pieces,
                           uint64_t saved);
// All blocks of a new file but those that it shares.
uint64_t room_of_new_file(uint64_t size, uint64_t shared, uint64_t block);
// For a new folder; most filesystems keep a small one with its name.
uint64_t room_of_folder(const std::string &type, uint64_t block);
// What must be free for `room` bytes of new blocks. The filesystem writes more of its own, and xfs wants more to be
// free in case it needs it.
uint64_t room_with_metadata(const std::string &type, uint64_t room);
// Status no_space if so much is not free in the filesystem of `file`.
Result<void> check_room(const os::File &file, uint64_t needed);

// Sets aside what room_to_overwrite() counts, where the filesystem can.
Result<void> make_room(const os::File &data, const os::Filesystem &filesystem, std::span<const Piece> pieces,
                       const Control &control);

}  // namespace st::write
