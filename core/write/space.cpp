#include "write/space.h"

#include <cerrno>
#include <linux/falloc.h>

namespace st::write {
namespace {

bool not_supported(int r) {
  return r == -EOPNOTSUPP || r == -ENOSYS || r == -EINVAL;
}

Result<void> allocate(const os::File &data, int mode, const Piece &p) {
  const int r =
      os::repeat_interrupted([&] { return data.env().fallocate(data.fd(), mode, p.offset, p.payload.length); });
  if (r >= 0 || not_supported(r)) return {};  // not supported: the write itself must tell, then
  return Failure(data.error(-r, text("make room for ", p.payload.length, " bytes in")).at_offset(p.offset));
}

bool has_hole(const os::File &data, const Piece &p) {
  const int64_t hole = data.env().seek_hole(data.fd(), p.offset);
  return hole >= 0 && static_cast<uint64_t>(hole) < p.offset + p.payload.length;
}

}  // namespace

bool copies_on_write(const std::string &type) {
  return type == "btrfs" || type == "zfs" || type == "bcachefs" || type == "f2fs";
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
      error(Status::no_space, "changing ", in_quotes(data.path()), " needs ", need,
            " free bytes, as its filesystem writes changed bytes to a new place, but there are ", free, "; free some");
  e.os_errno = ENOSPC;
  return Failure(std::move(e));
}

Result<void> make_room(const os::File &data, const os::Filesystem &filesystem, std::span<const Piece> pieces) {
  if (copies_on_write(filesystem.type)) return check_free(data, pieces);
  // On xfs extents may be shared by a reflink; this fills holes, too.
  const int mode = FALLOC_FL_KEEP_SIZE | (filesystem.type == "xfs" ? FALLOC_FL_UNSHARE_RANGE : 0);
  for (const Piece &p : pieces)
    if (filesystem.type == "xfs" || has_hole(data, p))
      if (auto room = allocate(data, mode, p); !room) return room;
  return {};
}

}  // namespace st::write
