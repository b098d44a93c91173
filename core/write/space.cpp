#include "write/space.h"

#include <cerrno>
#include <linux/falloc.h>

namespace st::write {
namespace {

bool not_supported(int r) {
  return r == -EOPNOTSUPP || r == -ENOSYS || r == -EINVAL;
}

Result<void> allocate(const os::File &data, int mode, std::span<const Piece> pieces) {
  for (const Piece &p : pieces) {
    const int r =
        os::repeat_interrupted([&] { return data.env().fallocate(data.fd(), mode, p.offset, p.payload.length); });
    if (not_supported(r)) return {};  // the write itself must tell, then
    if (r < 0)
      return Failure(data.error(-r, text("make room for ", p.payload.length, " bytes in")).at_offset(p.offset));
  }
  return {};
}

// Copy-on-write filesystems cannot be asked to set blocks aside for bytes that
// exist; that there is enough of them is the most that can be had.
Result<void> check_free(const os::File &data, std::span<const Piece> pieces) {
  constexpr uint64_t metadata = uint64_t{4} << 20;  // of the trees that change with the data
  struct statfs fs;
  if (data.env().fstatfs(data.fd(), &fs) < 0) return {};
  uint64_t need = metadata;
  for (const Piece &p : pieces) need += p.payload.length + 2 * static_cast<uint64_t>(fs.f_bsize);
  const uint64_t free = static_cast<uint64_t>(fs.f_bavail) * static_cast<uint64_t>(fs.f_bsize);
  if (free >= need) return {};
  Error e =
      error(Status::no_space, "changing ", quoted(data.path()), " needs ", need,
            " free bytes, as its filesystem writes changed bytes to a new place, but there are ", free, "; free some");
  e.os_errno = ENOSPC;
  return Failure(std::move(e));
}

bool copies_on_write(const std::string &type) {
  return type == "btrfs" || type == "zfs" || type == "bcachefs" || type == "f2fs";
}

}  // namespace

Result<void> make_room(const os::File &data, const os::Filesystem &filesystem, std::span<const Piece> pieces) {
  if (copies_on_write(filesystem.type)) return check_free(data, pieces);
  auto s = data.stat();
  if (!s) return Failure(std::move(s.error()));
  constexpr uint64_t block = 512;  // the unit of st_blocks
  const bool has_holes = static_cast<uint64_t>(s->st_blocks) * block < static_cast<uint64_t>(s->st_size);
  if (filesystem.type == "xfs")
    return allocate(data, FALLOC_FL_UNSHARE_RANGE | FALLOC_FL_KEEP_SIZE, pieces);  // fills holes, too
  if (has_holes) return allocate(data, FALLOC_FL_KEEP_SIZE, pieces);
  return {};
}

}  // namespace st::write
