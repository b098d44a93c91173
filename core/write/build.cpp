#include "write/build.h"

#include <cerrno>

#include "check.h"
#include "os/filesystem.h"
#include "write/space.h"
#include "write/stream.h"

namespace st::write {

Result<Built> build(const os::File &to, std::string_view header, std::span<const Segment> segments, uint64_t block,
                    const Control &control) {
  Built built;
  uint64_t done = 0, total = header.size();
  for (const Segment &s : segments) total += s.length;
  const auto tell = [&](uint64_t n) { return control.check(done += n, total); };
  if (auto go = control.check(0, total); !go) return Failure(std::move(go.error()));
  uint64_t end = header.size();
  for (const Segment &s : segments) {
    ST_ASSERT(s.to == end);
    end += s.length;
    if (s.length == 0) continue;
    if (!s.file) {
      if (auto put = write_stream(to, s.bytes, s.length, s.to, tell); !put) return Failure(std::move(put.error()));
      built.written += s.length;
      continue;
    }
    auto moved = transfer(*s.file, to, {s.from, s.to, s.length}, block, tell);
    if (!moved) return Failure(std::move(moved.error()));
    built.shared += moved->shared;
    built.copied += moved->copied;
  }
  if (auto put = to.write(header.data(), header.size(), 0); !put) return Failure(std::move(put.error()));
  built.written += header.size();
  return built;
}

Result<void> make_room_for(const os::File &made, uint64_t size, uint64_t fresh) {
  constexpr uint64_t metadata = uint64_t{1} << 20;  // of the filesystem's own trees
  os::Env &env = made.env();
  struct statfs fs;
  if (env.fstatfs(made.fd(), &fs) == 0 && fs.f_blocks > 0) {
    const uint64_t free = static_cast<uint64_t>(fs.f_bavail) * static_cast<uint64_t>(fs.f_bsize);
    if (free < fresh + (fresh < size ? metadata : 0)) {
      Error e = error(Status::no_space, "the new ", in_quotes(made.path()), " needs ", fresh,
                      " free bytes beside the old file, but there are ", free, "; nothing was changed");
      e.os_errno = ENOSPC;
      return Failure(std::move(e));
    }
  }
  // Blocks that will be shared must not be taken, and copy-on-write filesystems
  // (and memory) gain nothing from blocks taken early.
  const os::Filesystem filesystem = os::probe_filesystem(made);
  if (fresh < size || size == 0 || copies_on_write(filesystem.type) || filesystem.storage == os::Storage::memory)
    return {};
  const int r = os::repeat_interrupted([&] { return env.fallocate(made.fd(), 0, 0, size); });
  if (r >= 0 || r == -EOPNOTSUPP || r == -ENOSYS || r == -EINVAL) return {};
  return Failure(made.error(-r, text("reserve ", size, " bytes for")));
}

}  // namespace st::write
