#include "newfile/transfer.h"

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/round.h"
#include "newfile/units.h"
#include "newfile/write_out.h"

namespace st::write {
namespace {

constexpr uint64_t least_block = 4096;
constexpr uint64_t in_kernel = uint64_t{8} << 20;    // a call of copy_file_range: signals wait for its end
constexpr uint64_t most_shared = uint64_t{1} << 30;  // by a call of FICLONERANGE, for the same reason; whole blocks

using Tell = std::function<Result<void>(uint64_t done)>;

Result<void> by_memory(const os::File &from, const os::File &to, Range range, uint64_t done, const Tell &tell) {
  const uint64_t at_once = std::min(std::max(write_chunk_bytes, from.env().long_read()), range.length - done);
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(at_once);
  WriteOut out(to, range.to + done);
  for (uint64_t have = 0, taken = 0; done < range.length;) {
    if (taken == have) {
      have = std::min(at_once, range.length - done);
      taken = 0;
      ST_TRY(from.read(buffer.get(), have, range.from + done));
    }
    const uint64_t n = std::min(write_chunk_bytes, have - taken);
    ST_TRY(to.write(buffer.get() + taken, n, range.to + done));
    taken += n;
    done += n;
    ST_TRY(tell(n));
    ST_TRY(out.reached(range.to + done, [&] { return tell(0); }));
  }
  return {};
}

Result<void> copy(const os::File &from, const os::File &to, const Range &range, const Tell &tell) {
  uint64_t done = 0;
  WriteOut out(to, range.to);
  // The kernel would take what it remembers of the file.
  while (done < range.length && !from.reads_past_cache()) {
    const uint64_t n = std::min(in_kernel, range.length - done);
    const ssize_t r = os::repeat_interrupted(
        [&] { return to.env().copy_range(to.fd(), from.fd(), range.from + done, n, range.to + done); });
    // The kernel declines for many reasons (another filesystem, a FUSE daemon
    // that cannot); a real fault will show when reading and writing, too.
    if (r <= 0 || static_cast<uint64_t>(r) > n) break;
    done += static_cast<uint64_t>(r);
    ST_TRY(tell(static_cast<uint64_t>(r)));
    ST_TRY(out.reached(range.to + done, [&] { return tell(0); }));
  }
  if (done == range.length) return {};
  return by_memory(from, to, range, done, tell);
}

// Whole blocks. Answers how many bytes: the kernel may decline, also amid them.
Result<uint64_t> share(const os::File &from, const os::File &to, const Range &blocks, const Tell &tell) {
  uint64_t done = 0;
  while (done < blocks.length) {
    const uint64_t n = std::min(most_shared, blocks.length - done);
    const int r = os::repeat_interrupted(
        [&] { return to.env().clone_range(to.fd(), from.fd(), blocks.from + done, n, blocks.to + done); });
    if (r < 0) break;
    done += n;
    ST_TRY(tell(n));
  }
  return done;
}

}  // namespace

// Blocks behind the end cannot be shared: a filesystem that shares any says
// EINVAL, the others that they do not know the call.
bool may_share(const os::File &from, const os::File &to) {
  constexpr uint64_t beyond_any_file = uint64_t{1} << 62;
  return to.env().clone_range(to.fd(), from.fd(), beyond_any_file, least_block, 0) == -EINVAL;
}

uint64_t shareable_block(const os::File &file) {
  constexpr uint64_t least = least_block, most = uint64_t{64} << 10;
  if (!may_share(file, file)) return 0;
  struct statfs fs;
  if (file.env().fstatfs(file.fd(), &fs) < 0) return 0;
  const auto size = static_cast<uint64_t>(fs.f_bsize);
  const bool is_power = size != 0 && (size & (size - 1)) == 0;
  return is_power && size <= most ? std::max(size, least) : least;
}

Range whole_blocks(const Range &range, uint64_t block) {
  if (block == 0 || range.from % block != range.to % block) return {};
  const uint64_t skip = round_up(range.from, block) - range.from;
  if (skip >= range.length) return {};
  return {range.from + skip, range.to + skip, round_down(range.length - skip, block)};
}

Transferred expect_transfer(const Range &range, uint64_t block) {
  const uint64_t shared = whole_blocks(range, block).length;
  return {shared, range.length - shared};
}

Result<Transferred> transfer(const os::File &from, const os::File &to, const Range &range, uint64_t block,
                             const Tell &tell) {
  const Range inner = whole_blocks(range, block);
  const uint64_t head = inner.length > 0 ? inner.from - range.from : range.length;
  // In the order of the bytes, so that what was told says where it failed.
  ST_TRY(copy(from, to, {range.from, range.to, head}, tell));
  ST_TRY(const uint64_t shared, share(from, to, inner, tell));
  const uint64_t done = head + shared;
  ST_TRY(copy(from, to, {range.from + done, range.to + done, range.length - done}, tell));
  return Transferred{shared, range.length - shared};
}

}  // namespace st::write
