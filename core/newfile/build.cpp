#include "newfile/build.h"

#include <optional>

#include "base/check.h"
#include "newfile/room.h"
#include "newfile/stream.h"
#include "os/filesystem.h"
#include "os/missing_call.h"

namespace st::write {

Result<Built> build(const os::File &to, std::string_view header, std::span<const Segment> segments, uint64_t block,
                    const Control &control) {
  Built built;
  uint64_t done = 0, total = header.size();
  for (const Segment &s : segments) total += s.length;
  const auto tell = [&](uint64_t n) { return control.check(done += n, total); };
  ST_TRY(control.check(0, total));
  uint64_t end = header.size();
  std::optional<WriteStream> stream;  // of those in memory that follow each other
  for (const Segment &s : segments) {
    ST_ASSERT(s.to == end);
    end += s.length;
    if (s.length == 0) continue;
    if (!s.file && !s.reach) {
      if (!stream) stream.emplace(to, s.to, tell);
      ST_TRY(stream->write(s.bytes, s.length));
      built.written += s.length;
      continue;
    }
    if (stream) ST_TRY(stream->flush());
    stream.reset();
    std::shared_ptr<const os::File> reached;
    if (s.reach) {
      ST_TRY(reached, s.reach());
    }
    ST_TRY(auto moved, transfer(reached ? *reached : *s.file, to, {s.from, s.to, s.length}, block, tell));
    built.shared += moved.shared;
    built.copied += moved.copied;
  }
  if (stream) ST_TRY(stream->flush());
  ST_TRY(to.write(header.data(), header.size(), 0));
  built.written += header.size();
  return built;
}

Cost expect_build(std::string_view header, std::span<const Segment> segments, uint64_t block, uint64_t disk_block) {
  Cost cost;
  cost.written = header.size();
  for (const Segment &s : segments) {
    if (!s.file) {
      cost.written += s.length;
      continue;
    }
    const Transferred moved = expect_transfer({s.from, s.to, s.length}, block);
    cost.shared += moved.shared;
    cost.copied += moved.copied;
  }
  cost.room = room_of_new_file(cost.written + cost.shared + cost.copied, cost.shared, disk_block);
  return cost;
}

Result<void> set_room_aside(const os::File &made, uint64_t size, bool shares) {
  os::Env &env = made.env();
  ST_TRY(made.may_reach(size));
  const os::Filesystem filesystem = os::probe_filesystem(made);
  if (size == 0 || filesystem.storage == os::Storage::memory) return {};
  // Blocks that will be shared must not be taken, and copy-on-write filesystems gain nothing from blocks taken early. A
  // file that has its size does not grow, so xfs takes no blocks ahead of what is written.
  const bool only_size = shares || os::copies_on_write(filesystem.type);
  const int r = os::repeat_interrupted(
      [&] { return only_size ? env.ftruncate(made.fd(), size) : env.fallocate(made.fd(), 0, 0, size); });
  if (r >= 0 || os::is_missing(r)) return {};
  return Failure(made.error(-r, text("reserve ", size, " bytes for")));
}

Result<void> reserve_space_for(const os::File &made, uint64_t size, uint64_t shared) {
  const uint64_t room = room_of_new_file(size, shared, room_of(made).block);
  ST_TRY(check_room(made, room_with_metadata(os::probe_filesystem(made).type, room)));
  return set_room_aside(made, size, shared > 0);
}

}  // namespace st::write
