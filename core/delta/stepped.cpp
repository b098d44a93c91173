#include "delta/stepped.h"

#include <algorithm>
#include <cstring>

#include "delta/steps.h"

namespace st::store {
namespace {

constexpr uint64_t page = 4096;

// One delta's steps, with the way to its file.
class OpenSteps {
 public:
  static Result<std::unique_ptr<OpenSteps>> open(const StepsAt &at, const TensorView &t) {
    ST_TRY(auto reach, at.delta->snapshot->here());
    std::unique_ptr<OpenSteps> steps(new OpenSteps(at, std::move(reach)));
    const TensorView held = at.delta->index().at(at.index);
    uint64_t next = at.delta->snapshot->file_offset(held);
    auto reader = StepReader::begin(t.dtype, t.nbytes, held.nbytes,
                                    [file = &steps->reach_.file, next](void *to, uint64_t n) mutable -> Result<void> {
                                      next += n;
                                      return file->read(to, n, next - n);
                                    });
    if (!reader) return steps->failed(std::move(reader.error()));
    steps->reader_.emplace(std::move(*reader));
    return steps;
  }

  bool has(uint64_t number) const { return reader_->has(number); }
  Result<void> take(std::span<std::byte> block) {
    if (auto taken = reader_->take(block); !taken) return failed(std::move(taken.error()));
    return {};
  }

 private:
  OpenSteps(const StepsAt &at, Access reach) : at_(at), reach_(std::move(reach)) {}
  Failure failed(Error e) const {
    if (e.status == Status::delta || e.status == Status::unsupported)
      e.message +=
          text(" (tensor ", in_quotes(at_.delta->index().at(at_.index).name), " of ", in_quotes(at_.delta->path), ")");
    return Failure(std::move(e));
  }

  const StepsAt at_;
  const Access reach_;
  std::optional<StepReader> reader_;
};

class Stepping {
 public:
  Stepping(const Snapshot &file, const TensorView &t) : file_(file), t_(t) {}

  Result<SteppedHashes> run(std::span<const StepsAt> steps, const TakeBlock &take) {
    for (const StepsAt &at : steps) {
      ST_TRY(auto opened, OpenSteps::open(at, t_));
      steps_.push_back(std::move(opened));
    }
    ST_TRY(auto reach, file_.here());
    TensorHasher before, after;
    const uint64_t most = std::min(step_block_bytes, t_.nbytes);
    const auto old = std::make_unique_for_overwrite<std::byte[]>(most);
    fresh_ = std::make_unique_for_overwrite<std::byte[]>(most);
    for (uint64_t begin = 0; begin < t_.nbytes; begin += step_block_bytes) {
      const uint64_t n = std::min(step_block_bytes, t_.nbytes - begin);
      ST_TRY(reach.file.read(old.get(), n, file_.file_offset(t_) + begin));
      const std::span<const std::byte> was(old.get(), n);
      ST_TRY(auto is, stepped(begin / step_block_bytes, was));
      before.add(was);
      after.add(is);
      ST_TRY(take(begin, was, is));
    }
    return SteppedHashes{before.digest(), after.digest()};
  }

 private:
  Result<std::span<const std::byte>> stepped(uint64_t number, std::span<const std::byte> old) {
    bool copied = false;
    for (const auto &steps : steps_) {
      if (!steps->has(number)) continue;
      if (!copied) std::memcpy(fresh_.get(), old.data(), old.size());
      copied = true;
      ST_TRY(steps->take({fresh_.get(), old.size()}));
    }
    return copied ? std::span<const std::byte>(fresh_.get(), old.size()) : old;
  }

  const Snapshot &file_;
  const TensorView &t_;
  std::vector<std::unique_ptr<OpenSteps>> steps_;
  std::unique_ptr<std::byte[]> fresh_;
};

}  // namespace

Result<SteppedHashes> step_through(const Snapshot &file, const TensorView &t, std::span<const StepsAt> steps,
                                   const TakeBlock &take) {
  auto hashes = Stepping(file, t).run(steps, take);
  if (!hashes) return Failure(std::move(hashes.error()).about_tensor_at_least(t.name));
  return hashes;
}

SteppedTensor stepped_tensor(const ModelView &base, std::span<const DeltaFile> deltas, const ListedTensor &t) {
  SteppedTensor out{};
  if (t.layer == 0) {
    out.file = base.at(t.index).snapshot;
    out.tensor = base.at(t.index).tensor();
    out.path = base.at(t.index).member->path();
  } else {
    out.file = deltas[t.layer - 1].snapshot.get();
    out.tensor = deltas[t.layer - 1].index().at(t.index);
    out.path = deltas[t.layer - 1].path;
  }
  for (const auto &[layer, index] : t.steps) out.steps.push_back({&deltas[layer - 1], index});
  return out;
}

Result<void> step_to_the_end(const SteppedTensor &t, const TakeBlock &take) {
  ST_TRY(auto hashes, step_through(*t.file, t.tensor, t.steps, take));
  const StepsAt &first = t.steps.front(), &last = t.steps.back();
  if (hashes.old.all != first.delta->notes.tensors[first.index].old->all)
    return Failure(wrong_base(t.tensor.name, t.path));
  if (hashes.fresh.all == last.delta->notes.tensors[last.index].bytes) return {};
  return Failure(wrong_steps(t.tensor.name, last.delta->path));
}

std::vector<ByteRange> changed_pages(uint64_t at, std::span<const std::byte> old, std::span<const std::byte> fresh) {
  std::vector<ByteRange> ranges;
  if (old.data() == fresh.data()) return ranges;
  for (uint64_t done = 0; done < old.size();) {
    const uint64_t n = std::min(page - (at + done) % page, old.size() - done);
    if (std::memcmp(old.data() + done, fresh.data() + done, n) != 0) {
      if (ranges.empty() || ranges.back().begin + ranges.back().length != done) ranges.push_back({done, 0});
      ranges.back().length += n;
    }
    done += n;
  }
  return ranges;
}

}  // namespace st::store
