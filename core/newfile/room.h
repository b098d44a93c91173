// Room on the disk: how much a new file takes, and whether it is there.
#pragma once

#include <cstdint>
#include <string>

#include "os/file.h"

namespace st::write {

struct Room {
  uint64_t free = UINT64_MAX;  // bytes that this process may take; UINT64_MAX: not known
  uint64_t block = 4096;
};
Room room_of(const os::File &file);

// All blocks of a new file but those that it shares.
uint64_t room_of_new_file(uint64_t size, uint64_t shared, uint64_t block);
// For a new folder; most filesystems keep a small one with its name.
uint64_t room_of_folder(const std::string &type, uint64_t block);
// What must be free for `room` bytes of new blocks. The filesystem writes more of its own, and xfs wants more to be
// free in case it needs it.
uint64_t room_with_metadata(const std::string &type, uint64_t room);
// Status no_space.
Error too_little_room(const std::string &changed, uint64_t needed, uint64_t free);
// Status no_space if so much is not free in the filesystem of `file`, for a change of what is called `changed`. Where
// room is tight, one that copies on write commits first: only then is free what was removed.
Result<void> check_room(const os::File &file, uint64_t needed, const std::string &changed);
inline Result<void> check_room(const os::File &file, uint64_t needed) {
  return check_room(file, needed, file.path());
}

}  // namespace st::write
