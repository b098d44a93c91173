// The bulk reads of a checkpoint: many tensors at once, in the order in which
// they lie in the file.
#include <algorithm>
#include <cstring>
#include <new>

#include "base/round.h"
#include "file/data_file.h"
#include "read/warm.h"

namespace st::store {
namespace {

constexpr uint64_t arena_alignment = 4096;

read::Piece piece_of(const Snapshot &s, const TensorView &t, std::byte *to, bool fresh = false) {
  return {s.file_offset(t), t.nbytes, to, fresh};
}

void in_file_order(std::vector<size_t> *tensors) {
  std::sort(tensors->begin(), tensors->end());
  tensors->erase(std::unique(tensors->begin(), tensors->end()), tensors->end());
}

// One run of the slice's bytes, if they are one.
bool is_one_run(const SlicePlan &plan) {
  return plan.nbytes() > 0 && plan.run_bytes() == plan.nbytes();
}

}  // namespace

Result<void> DataFile::read_many(const Snapshot &s, const std::vector<BulkRequest> &requests, const Progress &progress,
                                 const Share &share) const {
  const Control control = control_of(progress);
  ST_TRY(auto from, reach(s));
  std::vector<read::Piece> pieces;
  std::vector<const BulkRequest *> scattered;  // slices of many runs: each for itself
  uint64_t total = 0, scattered_bytes = 0;
  for (const BulkRequest &r : requests) {
    const TensorView t = s.header.index.at(r.index);
    if (!r.slice) {
      pieces.push_back(piece_of(s, t, r.to, r.fresh));
      total += t.nbytes;
    } else if (is_one_run(*r.slice)) {
      const SlicePlan::Cursor run(*r.slice);
      pieces.push_back({s.file_offset(t) + run.source(), r.slice->nbytes(), r.to + run.destination(), r.fresh});
      total += r.slice->nbytes();
    } else if (r.slice->nbytes() > 0) {
      scattered.push_back(&r);
      scattered_bytes += r.slice->nbytes();
    }
  }
  total += scattered_bytes;
  // Progress of a part is progress of the whole call.
  auto part_from = [&](uint64_t before) {
    return control.with([&control, before, total](uint64_t done, uint64_t) {
      return !control.progress() || control.progress()(before + done, total);
    });
  };
  const bool from_memory = !from.bytes.file;
  if (from_memory) {
    uint64_t copied = 0;
    for (const read::Piece &p : pieces) {
      ST_TRY(read::copy(from.bytes, p.offset, p.length, p.to, part_from(copied)));
      copied += p.length;
    }
  } else {
    ST_TRY(auto done,
           read::read_pieces(*from.bytes.file, std::move(pieces), strategy_of(share), limit_of(share), part_from(0)));
    count(done);
  }
  std::sort(scattered.begin(), scattered.end(),
            [](const BulkRequest *a, const BulkRequest *b) { return a->index < b->index; });
  uint64_t before = total - scattered_bytes;
  if (source_) {
    ST_TRY(gather_slices(s, *from.bytes.file, scattered, scattered_bytes, part_from(before), share));
    scattered.clear();
  }
  for (const BulkRequest *r : scattered) {
    ST_TRY(read_slice_with(s, r->index, *r->slice, r->to, part_from(before)));
    before += r->slice->nbytes();
  }
  return scattered.empty() && !from_memory ? Result<void>() : control.check(total, total);
}

std::vector<size_t> DataFile::own_part(const Snapshot &s) const {
  const Index &index = s.header.index;
  const WorkersPart part(options_, index.data_bytes());
  std::vector<size_t> mine;
  for (size_t i = 0; i < index.size(); ++i)
    if (part.has(index.at(i).begin)) mine.push_back(i);
  return mine;
}

Result<void> DataFile::prefetch(const Snapshot &s, std::vector<size_t> tensors, const Progress &progress,
                                const Share &share) const {
  ST_TRY(const auto here, here_unless_mapped(s));
  if (!here || !s.env || strategy_.prefetch == read::Prefetch::none) return {};
  in_file_order(&tensors);
  const bool mapped = here->content.map() != read::MapMode::none;
  std::vector<read::Piece> pieces;
  std::vector<size_t> whole;  // tensors that fit
  uint64_t room = std::min(options_.memory_limit ? options_.memory_limit : UINT64_MAX, share.room);
  for (size_t i : tensors) {
    read::Piece p = piece_of(s, s.header.index.at(i), nullptr);
    const bool fits = p.length <= room;
    p.length = std::min(p.length, room);
    room -= p.length;
    if (fits) whole.push_back(i);
    if (p.length > 0) pieces.push_back(p);
    if (fits) continue;
    if (options_.log && share.room == UINT64_MAX)
      options_.log(LogLevel::info, text("memory_limit ends this prefetch after ", options_.memory_limit, " bytes"));
    break;
  }
  if (!mapped) return load(s, std::move(whole), false, false, progress, share);
  const Control control = control_of(progress);
  ST_TRY(auto done, read::warm(here->file, here->content, std::move(pieces), strategy_of(share), control));
  counters_.bytes_prefetched += done.bytes;
  count(done);
  return {};
}

// Tensors whose views lie in a mapping that may be written stay there, as views with what was written may be out.
// Answers the others.
Result<std::vector<size_t>> DataFile::own_in_place(const Snapshot &s, const Access &here, std::vector<size_t> tensors,
                                                   const Control &control, const Share &share) const {
  if (here.content.map() != read::MapMode::copy_on_write) return tensors;
  const Index &index = s.header.index;
  const auto is_mapped = [&](size_t i) { return here.content.try_view(i, s.file_offset(index.at(i))) != nullptr; };
  const auto others = std::stable_partition(tensors.begin(), tensors.end(), is_mapped);
  std::vector<read::Piece> pieces;
  for (auto i = tensors.begin(); i != others; ++i) pieces.push_back(piece_of(s, index.at(*i), nullptr));
  tensors.erase(tensors.begin(), others);
  if (pieces.empty()) return tensors;
  ST_TRY(auto done, read::own(here.file, here.content, std::move(pieces), strategy_of(share), control));
  count(done);
  return tensors;
}

// What another load is reading is waited for, once there is nothing else to do. If that load fails it is read here.
Result<void> DataFile::load(const Snapshot &s, std::vector<size_t> tensors, bool reserved_pages, bool direct,
                            const Progress &progress, const Share &share) const {
  if (!s.env) return {};
  const Control control = control_of(progress);
  ST_TRY(const auto here, s.here());  // also where it is mapped: a load is to outlive a truncation
  const auto bytes_of = [&](size_t i) { return s.header.index.at(i).nbytes; };
  in_file_order(&tensors);
  std::erase_if(tensors, [&](size_t i) { return bytes_of(i) == 0 || here.content.in_own_memory(i); });

  uint64_t total = 0, done = 0;
  for (const size_t i : tensors) total += bytes_of(i);
  const Control part = control.with([&](uint64_t of_part, uint64_t) {
    return !control.progress() || control.progress()(std::min(done + of_part, total), total);
  });
  const InterruptScope waits([&] { return part.check(0, total); });
  ST_TRY(tensors, own_in_place(s, here, std::move(tensors), part, share));
  done = total;
  for (const size_t i : tensors) done -= bytes_of(i);
  while (!tensors.empty()) {
    ST_TRY(const auto mine, here.content.claim(tensors));
    if (mine.slots().empty()) return control.check(total, total);
    ST_TRY(load_claimed(s, here, mine.slots(), reserved_pages, direct, part, share));
    for (const size_t i : mine.slots()) done += bytes_of(i);
    std::erase_if(tensors, [&](size_t i) { return std::ranges::binary_search(mine.slots(), i); });
  }
  return {};
}

// Runs of tensors that lie near each other in the file keep their distances in
// the arena, and each run its place within a page: so whole runs are read in
// one go, past the page cache too, straight to where they stay.
Result<void> DataFile::load_claimed(const Snapshot &s, const Access &here, const std::vector<size_t> &tensors,
                                    bool reserved_pages, bool direct, const Control &control,
                                    const Share &share) const {
  const Index &index = s.header.index;
  struct Run {
    uint64_t offset, length, at;  // in the file; in the arena
  };
  std::vector<Run> runs;
  std::vector<std::pair<size_t, uint64_t>> places;  // tensor, and where in the arena
  for (size_t i : tensors) {
    const TensorView t = index.at(i);
    const uint64_t offset = s.file_offset(t);
    if (runs.empty() || offset - (runs.back().offset + runs.back().length) > arena_alignment) {
      const uint64_t end = runs.empty() ? 0 : runs.back().at + runs.back().length;
      const uint64_t page = round_up(end, arena_alignment);
      runs.push_back({offset, 0, page + offset % arena_alignment});
    }
    runs.back().length = offset + t.nbytes - runs.back().offset;
    places.emplace_back(i, runs.back().at + (offset - runs.back().offset));
  }
  const uint64_t size = runs.back().at + runs.back().length;
  if (size > SIZE_MAX / 2) throw std::bad_alloc();
  read::Arena arena = read::Arena::of(*s.env, static_cast<size_t>(size), reserved_pages);
  std::vector<read::Piece> pieces;
  pieces.reserve(runs.size());
  for (const Run &run : runs) pieces.push_back({run.offset, run.length, arena.data() + run.at, true});
  std::vector<read::Content::Loaded> loaded;
  for (auto [i, at] : places) {
    const TensorView t = index.at(i);
    loaded.push_back({i, s.file_offset(t), t.nbytes, arena.data() + at});
  }
  here.content.expect(loaded);
  read::Strategy strategy = strategy_of(share);
  if (direct) strategy.direct = read::Direct::on;
  ST_TRY(auto done, read::read_pieces(here.file, std::move(pieces), strategy, limit_of(share), control));
  count(done);
  return here.content.adopt(here.file, std::move(arena), loaded);
}

}  // namespace st::store
