#include "newfile/room.h"

#include <cerrno>

#include "base/round.h"
#include "os/filesystem.h"

namespace st::write {

Room room_of(const os::File &file) {
  constexpr uint64_t smallest_block = 512, largest_block = uint64_t{1} << 20;
  struct statfs fs;
  if (file.env().fstatfs(file.fd(), &fs) < 0 || fs.f_blocks == 0) return {};
  const auto size = static_cast<uint64_t>(fs.f_bsize);
  Room room{static_cast<uint64_t>(fs.f_bavail) * size, Room().block};
  if (size >= smallest_block && size <= largest_block) room.block = size;
  return room;
}

uint64_t room_of_new_file(uint64_t size, uint64_t shared, uint64_t block) {
  return round_up(size, block) - shared;
}

uint64_t room_with_metadata(const std::string &type, uint64_t room) {
  if (room == 0) return 0;
  constexpr uint64_t KiB = 1024;
  return room + KiB * (os::copies_on_write(type) ? 4096 : type == "xfs" ? 256 : 32);
}

uint64_t room_of_folder(const std::string &type, uint64_t block) {
  // xfs puts folders into different groups, and takes 32 KiB for inodes there, or none: the mean.
  return type == "ext4" ? block : type == "xfs" ? uint64_t{16} << 10 : 0;
}

Result<void> check_room(const os::File &file, uint64_t needed) {
  if (needed == 0) return {};
  const uint64_t free = room_of(file).free;
  if (free >= needed) return {};
  Error e = error(Status::no_space, "changing ", in_quotes(file.path()), " needs ", needed,
                  " free bytes, but there are ", free, "; nothing was changed; free some");
  e.os_errno = ENOSPC;
  return Failure(std::move(e));
}

}  // namespace st::write
