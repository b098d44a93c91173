// Room on the disk for overwriting bytes in place, taken or at least checked
// before the point of no return: bytes in a hole, bytes that a reflink shares,
// and all bytes of a copy-on-write filesystem need new blocks to be changed.
#pragma once

#include <span>

#include "os/filesystem.h"
#include "write/patch.h"

namespace st::write {

// Does a filesystem of that type write changed bytes to a new place?
bool copies_on_write(const std::string &type);
// Of blocks for copies of all pieces: where writing them takes new ones. Status
// no_space if there are too few.
Result<void> check_free(const os::File &data, std::span<const Piece> pieces);

// Status no_space if there is too little.
Result<void> make_room(const os::File &data, const os::Filesystem &filesystem, std::span<const Piece> pieces);

}  // namespace st::write
