#include "file/remakes.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/hash.h"
#include "file/staging.h"
#include "journal/changes.h"

namespace st::store {
namespace {

constexpr uint64_t page = 4096;  // what the disk writes, and what is worth a range of its own
constexpr size_t most_ranges = longest_remade / page / 2 + 2;
constexpr size_t most_sectors = longest_remade / write::sector_bytes + 2 * most_ranges;
static_assert(longest_remade <= write::longest_sparse);

// The pages of the file in which elements of a block change, one run of them after the other.
class ChangedRuns {
 public:
  // `skip`: bytes of the block's first page before it.
  ChangedRuns(const RemadeBlock &block, uint64_t skip)
      : places_(block.places), width_(block.width), skip_(skip), n_(block.old.size()) {}
  bool more() const { return next_ < places_.size(); }
  // The next run, as bytes of the block.
  ByteRange take() {
    const uint64_t first = page_of(byte(next_));
    uint64_t behind = first;
    do {
      behind = page_of(byte(next_)) + 1;
      next_ = first_from(behind * page - skip_);
      // An element may lie on two pages.
      behind = page_of(byte(next_ - 1) + width_ - 1) + 1;
    } while (more() && page_of(byte(next_)) <= behind);
    const uint64_t begin = first == 0 ? 0 : first * page - skip_;
    return {begin, std::min(behind * page - skip_, n_) - begin};
  }

 private:
  uint64_t byte(size_t i) const { return uint64_t{places_[i]} * width_; }
  uint64_t page_of(uint64_t at) const { return (skip_ + at) / page; }
  // The first element, from the next one on, that begins at this byte or behind it. It is less than a page away.
  size_t first_from(uint64_t at) const {
    const auto near = places_.subspan(next_, std::min<size_t>(places_.size() - next_, page / width_ + 1));
    return next_ + static_cast<size_t>(std::partition_point(near.begin(), near.end(),
                                                            [&](uint32_t p) { return uint64_t{p} * width_ < at; }) -
                                       near.begin());
  }

  const std::span<const uint32_t> places_;
  const uint64_t width_, skip_, n_;
  size_t next_ = 0;
};

class ToJournal final : public TakesRemade {
 public:
  explicit ToJournal(Staged &staged)
      : staged_(staged),
        packed_(std::make_unique_for_overwrite<std::byte[]>(2 * longest_remade + write::changes_head * most_ranges)),
        tables_(std::make_unique_for_overwrite<uint32_t[]>(2 * most_sectors)),
        ranges_(std::make_unique<write::RangeRecord[]>(most_ranges)) {}

  // What comes next is of a tensor that lies there.
  void begin(uint64_t at) { at_ = at; }
  void note(const RemadeBlock &block) noexcept override {
    count_ = 0;
    std::byte *packed = packed_.get();
    uint32_t *table = tables_.get();
    size_t next = 0;
    for (ChangedRuns runs(block, (at_ + block.begin) % page); runs.more();) {
      const ByteRange run = runs.take();
      write::RangeRecord range;
      range.offset = at_ + block.begin + run.begin;
      range.length = run.length;
      range.packed =
          write::pack_changes({block.fresh, block.places, block.width}, run.begin, run.length, &next, packed);
      range.payload_hash = hash64(packed, range.packed);
      packed += range.packed;
      range.sectors_hash = hash_into(&table, range.offset, block.old.subspan(run.begin, run.length));
      range.fresh_hash = hash_into(&table, range.offset, block.fresh.subspan(run.begin, run.length));
      ranges_[count_++] = range;
    }
  }

  Result<void> keep() override {
    const std::byte *packed = packed_.get();
    const auto *table = reinterpret_cast<const std::byte *>(tables_.get());
    for (size_t i = 0; i < count_; ++i) {
      ST_TRY(auto range, staged_.journal.journal->append_changes(ranges_[i], packed, table));
      packed += range.packed;
      table += range.tables_bytes();
      write::Piece piece{range.offset, {range.payload, range.length, range.payload_hash}};
      piece.sparse = range;
      staged_.remade.push_back(piece);
    }
    staged_.journal.journal->start_writing();
    return {};
  }

 private:
  // The hash of each sector, and of all these.
  static uint64_t hash_into(uint32_t **table, uint64_t offset, std::span<const std::byte> bytes) {
    uint32_t *const begin = *table;
    while (!bytes.empty()) {
      const uint64_t n = write::up_to_sector(offset, write::sector_bytes, bytes.size());
      *(*table)++ = write::hash_sector(bytes.first(n));
      bytes = bytes.subspan(n);
      offset += n;
    }
    return hash64(begin, static_cast<size_t>(*table - begin) * sizeof *begin);
  }

  Staged &staged_;
  uint64_t at_ = 0;
  const std::unique_ptr<std::byte[]> packed_;
  const std::unique_ptr<uint32_t[]> tables_;
  const std::unique_ptr<write::RangeRecord[]> ranges_;
  size_t count_ = 0;
};

}  // namespace

Result<void> stage_remake(Staged &staged, std::string_view name, const Remake &make, uint64_t in_journal) {
  ST_TRY(staged.may_go_on());
  const auto index = staged.snapshot->header.index.find(name);
  if (!index) return Failure(no_such_tensor(name, staged.file.path()));
  staged.begin_call();
  ST_TRY(staged.need_journal());
  ST_ASSERT(!staged.by_index.contains(*index) && !staged.slices.contains(*index));
  staged.remakes.push_back({std::string(name), *index, make, in_journal});
  return {};
}

Result<void> assemble_remakes(Staged &staged, const os::File &data) {
  if (!staged.remade.empty() || staged.remakes.empty()) return {};
  ToJournal to(staged);
  for (const StagedRemake &r : staged.remakes) {
    const uint64_t at = staged.place_of(r.index).begin;
    to.begin(at);
    if (auto made = r.make(data, at, to); !made) return Failure(std::move(made.error()).about_tensor_at_least(r.name));
  }
  return staged.journal.journal->flush();
}

std::vector<write::Piece> remade_pieces(const Staged &staged, write::JournalPlan *journal) {
  if (!staged.remade.empty()) return staged.remade;
  std::vector<write::Piece> pieces;
  for (const StagedRemake &r : staged.remakes) {
    const ByteRange tensor = staged.place_of(r.index);
    if (journal) journal->append(std::min(r.in_journal, tensor.length));
    pieces.push_back({tensor.begin, {write::header_bytes, tensor.length, 0}});
  }
  return pieces;
}

void show_remade(Staged &staged) {
  for (const write::Piece &p : staged.remade) staged.file.counters().bytes_written += p.payload.length;
  for (const StagedRemake &r : staged.remakes) {
    const ByteRange tensor = staged.place_of(r.index);
    staged.show(r.index, tensor.begin, tensor.length);
  }
}

}  // namespace st::store
