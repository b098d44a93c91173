#include "newfile/room.h"

#include <algorithm>
#include <cerrno>

#include "base/round.h"
#include "os/filesystem.h"

namespace st::write {

namespace {

// What its counts are in. A system without f_frsize has that as f_bsize, which elsewhere may be what is best written.
template <class Fs>
uint64_t unit_of(const Fs &fs) {
  uint64_t unit = 0;
  if constexpr (requires { fs.f_frsize; }) unit = static_cast<uint64_t>(fs.f_frsize);
  return unit > 0 ? unit : static_cast<uint64_t>(fs.f_bsize);
}

// ext4 keeps a twentieth of its blocks for root. In a container root may not take them: then ext4 refuses them when
// they are set aside, before anything is written. ext4 counts as free what it keeps from everybody, for its own
// metadata: a fiftieth of its size, or 4096 blocks. That is a thirty-second of the blocks that it counts at most, as
// these are without its tables and its own journal.
uint64_t blocks_free(os::Env &env, const struct statfs &fs) {
  constexpr uint32_t ext4 = 0xEF53;
  constexpr uint64_t part_of_its_own = 32, most_of_its_own = 4096;
  const auto free = static_cast<uint64_t>(fs.f_bavail);
  if (static_cast<uint32_t>(fs.f_type) != ext4 || env.geteuid() != 0) return free;
  const auto all = static_cast<uint64_t>(fs.f_blocks), with_its_own = static_cast<uint64_t>(fs.f_bfree);
  const uint64_t its_own = std::min({all / part_of_its_own, most_of_its_own, with_its_own});
  return std::max(free, with_its_own - its_own);
}

// The counts of btrfs and its like lag. What was removed is counted as taken until they commit, after half a minute;
// what was written may still be counted as free. So where room is tight they are made to commit, which waits for all
// that they have to write.
uint64_t settled_free(const os::File &file, uint64_t needed) {
  const uint64_t free = room_of(file).free;
  if (free / 2 >= needed || !os::copies_on_write(os::probe_filesystem(file).type)) return free;
  return file.env().syncfs(file.fd()) < 0 ? free : room_of(file).free;
}

}  // namespace

Room room_of(const os::File &file) {
  constexpr uint64_t smallest_block = 512, largest_block = uint64_t{1} << 20;
  struct statfs fs;
  if (file.env().fstatfs(file.fd(), &fs) < 0 || fs.f_blocks == 0) return {};
  const uint64_t size = unit_of(fs);
  Room room{blocks_free(file.env(), fs) * size, Room().block};
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

Error too_little_room(const std::string &changed, uint64_t needed, uint64_t free) {
  Error e = error(Status::no_space, "changing ", in_quotes(changed), " needs ", needed, " free bytes, but there are ",
                  free, "; nothing was changed; free some");
  e.os_errno = ENOSPC;
  return e;
}

Result<void> check_room(const os::File &file, uint64_t needed, const std::string &changed) {
  if (needed == 0) return {};
  const uint64_t free = settled_free(file, needed);
  if (free >= needed) return {};
  return Failure(too_little_room(changed, needed, free));
}

}  // namespace st::write
