#include "delta/stepped.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/interrupt.h"
#include "delta/read_ahead.h"

namespace st::store {
namespace {

// One delta's steps of a tensor.
class OpenSteps {
 public:
  // `side_by_side`: so many deltas' steps are open at once.
  static Result<std::unique_ptr<OpenSteps>> open(const StepsAt &at, const TensorView &t, size_t side_by_side) {
    const TensorView held = at.delta->index().at(at.index);
    std::unique_ptr<OpenSteps> steps(new OpenSteps(at));
    ST_TRY(steps->with_file([&, all = steps.get()]() -> Result<void> {
      all->bytes_.emplace(*all->file_, at.delta->snapshot->file_offset(held), held.nbytes, side_by_side);
      const auto read = [all](void *to, uint64_t n) { return all->bytes_->read(*all->file_, to, n); };
      ST_TRY(auto reader, StepReader::begin(t.dtype, t.nbytes, held.nbytes, read));
      all->reader_.emplace(std::move(reader));
      return {};
    }));
    return steps;
  }

  const StepReader &reader() const { return *reader_; }
  Result<void> take(std::span<std::byte> block, StepRoom &room) {
    return with_file([&] { return reader_->take(block, room); });
  }

 private:
  explicit OpenSteps(const StepsAt &at) : at_(at) {}
  // Many deltas may have steps of one tensor, so no file is held open between two blocks.
  template <class Work>
  Result<void> with_file(Work work) {
    ST_TRY(const auto reach, at_.delta->snapshot->here());
    file_ = &reach.file;
    Result<void> done = work();
    if (!done && done.error().status == Status::delta)
      done.error().message +=
          text(" (tensor ", in_quotes(at_.delta->index().at(at_.index).name), " of ", in_quotes(at_.delta->path), ")");
    return done;
  }

  const StepsAt at_;
  const os::File *file_ = nullptr;
  std::optional<ReadAhead> bytes_;
  std::optional<StepReader> reader_;
};

}  // namespace

void ChangedPages::add(std::span<const uint32_t> places, uint32_t width) {
  for (const uint64_t place : places) {
    const uint64_t at = skip_ + place * width;
    changed_[at / page] = changed_[(at + width - 1) / page] = 1;
  }
}

std::vector<ByteRange> ChangedPages::ranges() const {
  std::vector<ByteRange> ranges;
  for (uint64_t i = 0; i < changed_.size(); ++i) {
    if (!changed_[i]) continue;
    const uint64_t begin = i == 0 ? 0 : i * page - skip_, end = std::min((i + 1) * page - skip_, n_);
    if (ranges.empty() || ranges.back().begin + ranges.back().length != begin) ranges.push_back({begin, 0});
    ranges.back().length = end - ranges.back().begin;
  }
  return ranges;
}

std::vector<ByteRange> SteppedBlock::changed_pages(uint64_t at) const {
  ChangedPages pages(at, bytes.size());
  for (const StepReader *steps : changed_by) pages.add(steps->places(), steps->width());
  return pages.ranges();
}

namespace {

Result<OldBytes> step_through(const Snapshot &file, const TensorView &t, std::span<const StepsAt> steps, StepRoom &room,
                              const TakeBlock &take, TensorHasher *below) {
  std::vector<std::unique_ptr<OpenSteps>> opened;
  for (const StepsAt &at : steps) {
    ST_TRY(auto one, OpenSteps::open(at, t, steps.size()));
    opened.push_back(std::move(one));
  }
  ST_TRY(auto reach, file.here());
  ReadAhead old(reach.file, file.file_offset(t), t.nbytes, 1);
  TensorHasher hasher;
  const auto block = std::make_unique_for_overwrite<std::byte[]>(std::min(step_block_bytes, t.nbytes));
  std::vector<const StepReader *> changed_by;
  for (uint64_t begin = 0; begin < t.nbytes; begin += step_block_bytes) {
    const std::span<std::byte> bytes(block.get(), std::min(step_block_bytes, t.nbytes - begin));
    ST_TRY(old.read(reach.file, bytes.data(), bytes.size()));
    if (below) below->add(bytes);
    changed_by.clear();
    for (const auto &one : opened) {
      if (!one->reader().has(begin / step_block_bytes)) continue;
      ST_TRY(one->take(bytes, room));
      changed_by.push_back(&one->reader());
    }
    hasher.add(bytes);
    ST_TRY(take({begin, bytes, changed_by}));
  }
  return hasher.digest();
}

// What the steps lead to is not what it is to be. Is that by what lies below them, by one delta's steps that are not
// those that were written, or by steps that never led there?
Result<OldBytes> astray(const SteppedTensor &t) {
  const auto goes_on = [](std::span<const std::byte>) -> Result<void> {
    if (InterruptCheck::stops()) return Failure(*InterruptCheck::stopped());
    return {};
  };
  const StepsAt &first = t.steps.front();
  TensorWindow window(false);
  if (t.holder) {
    ST_TRY(t.holder->check_tensor(*t.holder->index().find(t.tensor.name), window, goes_on));
  } else {
    ST_TRY(auto old, hash_tensor(window, *t.file, t.tensor, goes_on));
    const DeltaTensor &noted = first.delta->notes.tensors[first.index];
    if (old.all != noted.old->all) return Failure(wrong_base(t.tensor.name, t.path, old.all, noted.bytes));
  }
  for (const StepsAt &at : t.steps) ST_TRY(at.delta->check_tensor(at.index, window, goes_on));
  return Failure(wrong_steps(t.tensor.name, t.steps.back().delta->path));
}

// A block as it is and as it will be. There are two, so that one is looked at while the next one is made.
class BlockPair {
 public:
  explicit BlockPair(uint64_t n)
      : old_(std::make_unique_for_overwrite<std::byte[]>(n)), fresh_(std::make_unique_for_overwrite<std::byte[]>(n)) {}

  Result<void> make(const os::File &file, uint64_t at, uint64_t begin, uint64_t n, OpenSteps &steps, StepRoom &room) {
    const std::span old(old_.get(), n), fresh(fresh_.get(), n);
    ST_TRY(file.read(old_.get(), n, at + begin));
    block_ = {begin, old, old, {}, steps.reader().width()};
    if (!steps.reader().has(begin / step_block_bytes)) return {};
    std::memcpy(fresh_.get(), old_.get(), n);
    ST_TRY(steps.take(fresh, room));
    block_.fresh = fresh;
    block_.places = steps.reader().places();
    return {};
  }
  const RemadeBlock &block() const { return block_; }

 private:
  std::unique_ptr<std::byte[]> old_, fresh_;
  RemadeBlock block_{};
};

}  // namespace

Result<OldBytes> remake(const SteppedTensor &t, const os::File &file, uint64_t at, os::Helper &helper, StepRoom &room,
                        TakesRemade &to, const std::function<Result<void>(uint64_t n)> &tell) {
  static_assert(step_block_bytes <= longest_remade);
  const StepsAt &steps = t.steps.front();
  const DeltaTensor &wanted = steps.delta->notes.tensors[steps.index];
  ST_TRY(auto opened, OpenSteps::open(steps, t.tensor, 1));
  TensorHasher old, fresh;
  const uint64_t most = std::min(step_block_bytes, t.tensor.nbytes);
  BlockPair pairs[] = {BlockPair(most), BlockPair(most)};
  bool noted = false;
  const auto keep = [&] {
    helper.wait();
    return std::exchange(noted, false) ? to.keep() : Result<void>();
  };
  const os::Helper::WaitsAtEnd waits{helper};
  for (uint64_t begin = 0; begin < t.tensor.nbytes; begin += step_block_bytes) {
    BlockPair &pair = pairs[begin / step_block_bytes % 2];
    const uint64_t n = std::min(step_block_bytes, t.tensor.nbytes - begin);
    ST_TRY(pair.make(file, at, begin, n, *opened, room));
    ST_TRY(keep());
    ST_TRY(tell(n));
    const RemadeBlock &block = pair.block();
    const bool changes = !block.places.empty();
    helper.begin([&old, &fresh, &to, &block, changes] {
      old.add(block.old);
      fresh.add(block.fresh);
      if (changes) to.note(block);
    });
    noted = changes;
  }
  ST_TRY(keep());
  const Hash128 found = old.digest().all;
  if (found != wanted.old->all) return Failure(wrong_base(t.tensor.name, t.path, found, wanted.bytes));
  if (fresh.digest().all != wanted.bytes) return Failure(wrong_steps(t.tensor.name, steps.delta->path));
  return fresh.digest();
}

Result<PagesToChange> pages_to_change(const StepsAt &steps, const TensorView &t, uint64_t at, StepRoom &room,
                                      const std::function<Result<void>()> &go_on) {
  ST_TRY(auto opened, OpenSteps::open(steps, t, 1));
  const auto any = std::make_unique<std::byte[]>(std::min(step_block_bytes, t.nbytes));
  PagesToChange sum;
  for (uint64_t begin = 0; begin < t.nbytes; begin += step_block_bytes) {
    ST_TRY(go_on());
    if (!opened->reader().has(begin / step_block_bytes)) continue;
    const std::span<std::byte> block(any.get(), std::min(step_block_bytes, t.nbytes - begin));
    ST_TRY(opened->take(block, room));
    ChangedPages pages(at + begin, block.size());
    pages.add(opened->reader().places(), opened->reader().width());
    const auto ranges = pages.ranges();
    for (const ByteRange &r : ranges) sum.bytes += r.length;
    sum.ranges += ranges.size();
  }
  return sum;
}

SteppedTensor stepped_tensor(const ModelView &base, std::span<const DeltaFile> deltas, const ListedTensor &t) {
  SteppedTensor out{};
  if (t.layer == 0) {
    out.file = base.at(t.index).snapshot;
    out.tensor = base.at(t.index).tensor();
    out.path = base.at(t.index).member->place();
  } else {
    out.holder = &deltas[t.layer - 1];
    out.file = out.holder->snapshot.get();
    out.tensor = out.holder->index().at(t.index);
    out.path = out.holder->path;
  }
  for (const auto &[layer, index] : t.steps) out.steps.push_back({&deltas[layer - 1], index});
  return out;
}

Result<OldBytes> step_to_the_end(const SteppedTensor &t, StepRoom &room, const TakeBlock &take, TensorHasher *old) {
  const StepsAt &last = t.steps.back();
  auto hashes = step_through(*t.file, t.tensor, t.steps, room, take, old);
  if (!hashes) return Failure(std::move(hashes.error()).about_tensor_at_least(t.tensor.name));
  return hashes->all == last.delta->notes.tensors[last.index].bytes ? hashes : astray(t);
}

}  // namespace st::store
