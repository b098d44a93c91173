#include "journal/space.h"

#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/round.h"
#include "os/missing_call.h"

namespace st::write {
namespace {

// What is shared is read and written, so that is done slice by slice.
Result<void> allocate(const os::File &data, int mode, uint64_t offset, uint64_t n, const Control &control) {
  constexpr uint64_t slice = uint64_t{2} << 20;
  const uint64_t most = mode & FALLOC_FL_UNSHARE_RANGE ? slice : n;
  for (uint64_t done = 0; done < n; done += most) {
    ST_TRY(control.check(done, n));
    const uint64_t part = std::min(most, n - done);
    const int r = os::repeat_interrupted([&] { return data.env().fallocate(data.fd(), mode, offset + done, part); });
    if (r >= 0) continue;
    if (os::is_missing(r)) return {};  // the write itself must tell, then
    return Failure(data.error(-r, text("make room for ", part, " bytes in")).at_offset(offset + done));
  }
  return {};
}

struct Stretch {
  uint64_t begin, end;
};

// Where the pieces are. One question is asked about those that follow each other without a gap.
std::vector<Stretch> stretches_of(std::span<const Piece> pieces) {
  std::vector<Stretch> found;
  for (size_t run = 0; !pieces.empty(); pieces = pieces.subspan(run)) {
    run = run_of(pieces);
    found.push_back({pieces.front().offset, pieces[run - 1].offset + pieces[run - 1].payload.length});
  }
  return found;
}

bool has_hole(const os::File &data, const Stretch &s) {
  const int64_t hole = data.env().seek_hole(data.fd(), s.begin);
  return hole >= 0 && static_cast<uint64_t>(hole) < s.end;
}

// What of a file has no blocks yet, or has those of another file, too. One question is enough for all stretches that a
// few extents hold.
class Lacks {
 public:
  Lacks(const os::File &data, std::span<const Stretch> stretches)
      : data_(data), end_(stretches.empty() ? 0 : stretches.back().end) {}
  // What of [begin, end); nothing if that cannot be told.
  std::optional<std::vector<Stretch>> in(uint64_t begin, uint64_t end);

 private:
  bool ask(uint64_t from);

  const os::File &data_;
  const uint64_t end_;
  uint64_t known_from_ = 0, known_to_ = 0;
  std::vector<Stretch> known_;  // in between
};

bool Lacks::ask(uint64_t from) {
  constexpr uint32_t at_once = 64;
  constexpr uint32_t shared = FIEMAP_EXTENT_SHARED;
  alignas(struct fiemap) std::array<std::byte, sizeof(struct fiemap) + at_once * sizeof(struct fiemap_extent)> memory;
  memory.fill(std::byte{0});
  auto *map = new (memory.data()) struct fiemap;
  map->fm_start = from;
  map->fm_length = end_ - from;
  map->fm_extent_count = at_once;
  if (data_.env().extents(data_.fd(), map) < 0) return false;
  const std::span extents(static_cast<const struct fiemap_extent *>(map->fm_extents), map->fm_mapped_extents);
  known_.clear();
  uint64_t at = from;
  for (const struct fiemap_extent &e : extents) {
    const uint64_t begin = std::clamp<uint64_t>(e.fe_logical, at, end_);
    const uint64_t end = std::clamp<uint64_t>(e.fe_logical + e.fe_length, begin, end_);
    if (begin > at) known_.push_back({at, begin});
    if (end > begin && (e.fe_flags & shared)) known_.push_back({begin, end});
    at = end;
  }
  if (extents.size() < at_once && at < end_) known_.push_back({std::exchange(at, end_), end_});
  known_from_ = from;
  known_to_ = at;
  return at > from;
}

std::optional<std::vector<Stretch>> Lacks::in(uint64_t begin, uint64_t end) {
  std::vector<Stretch> found;
  for (uint64_t at = begin; at < end; at = known_to_) {
    if ((at < known_from_ || at >= known_to_) && !ask(at)) return std::nullopt;
    for (const Stretch &s : known_)
      if (s.begin < end && s.end > at) found.push_back({std::max(s.begin, at), std::min(s.end, end)});
  }
  return found;
}

}  // namespace

uint64_t room_to_overwrite(const os::File &data, const os::Filesystem &filesystem, std::span<const Piece> pieces,
                           uint64_t saved) {
  const bool all = os::copies_on_write(filesystem.type);
  if (saved > 0 && !all) return saved;
  const std::vector<Stretch> stretches = stretches_of(pieces);
  Lacks lacks(data, stretches);
  uint64_t block = 0, sum = 0, counted = 0;  // up to there
  for (const Stretch &p : stretches) {
    auto lacking = all ? std::nullopt : lacks.in(p.begin, p.end);
    if (!lacking && (all || has_hole(data, p))) lacking = {p};
    if (!lacking || lacking->empty()) continue;
    if (block == 0) block = room_of(data).block;
    for (const Stretch &s : *lacking) {
      const uint64_t begin = std::max(counted, round_down(s.begin, block));
      counted = std::max(begin, round_up(s.end, block));
      sum += counted - begin;
    }
  }
  return sum;
}

// Copy-on-write filesystems cannot be asked to set blocks aside for bytes that
// exist; that there is enough of them is the most that can be had.
Result<void> reserve_space(const os::File &data, const os::Filesystem &filesystem, std::span<const Piece> pieces,
                           const Control &control) {
  if (os::copies_on_write(filesystem.type)) return {};
  // On xfs extents may be shared by a reflink; this fills holes, too.
  const int mode = FALLOC_FL_KEEP_SIZE | (filesystem.type == "xfs" ? FALLOC_FL_UNSHARE_RANGE : 0);
  const std::vector<Stretch> stretches = stretches_of(pieces);
  Lacks lacks(data, stretches);
  for (const Stretch &p : stretches) {
    // No more than that: xfs asks for as much free space as it is told to allocate, though nothing may be missing.
    if (const auto lacking = lacks.in(p.begin, p.end)) {
      for (const Stretch &s : *lacking) ST_TRY(allocate(data, mode, s.begin, s.end - s.begin, control));
    } else if (filesystem.type == "xfs" || has_hole(data, p)) {
      ST_TRY(allocate(data, mode, p.begin, p.end - p.begin, control));
    }
  }
  return {};
}

}  // namespace st::write
