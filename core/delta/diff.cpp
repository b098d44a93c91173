#include "delta/diff.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/interrupt.h"
#include "delta/delta_file.h"
#include "delta/delta_hash.h"
#include "delta/spilled.h"
#include "delta/steps.h"
#include "file/writer.h"
#include "model/mode_of_copy.h"
#include "os/helper.h"

namespace st::store {
namespace {

// Less than a page is not worth it: any reader sees the tensor as it is.
constexpr uint64_t least_in_steps = 4096;

// Steps of a tensor's blocks, one after the other, made beside the caller.
class MakingSteps {
 public:
  MakingSteps(os::Helper &helper, StepWriter &writer, Dtype dtype) : helper_(helper), writer_(writer), dtype_(dtype) {}
  ~MakingSteps() { helper_.wait(); }
  MakingSteps(const MakingSteps &) = delete;
  MakingSteps &operator=(const MakingSteps &) = delete;

  // The bytes stay until it is made.
  void begin(uint64_t number, std::span<const std::byte> old, std::span<const std::byte> fresh) {
    helper_.begin([this, number, old, fresh]() noexcept {
      try {
        steps_ = writer_.steps_of(dtype_, number, old, fresh);
      } catch (const std::bad_alloc &) {
        has_memory_ = false;
      }
    });
  }
  // Those that were begun last: once, and until the next are begun.
  std::span<const std::byte> made() {
    helper_.wait();
    if (!has_memory_) throw std::bad_alloc();
    return std::exchange(steps_, {});
  }

 private:
  os::Helper &helper_;
  StepWriter &writer_;
  const Dtype dtype_;
  std::span<const std::byte> steps_;
  bool has_memory_ = true;
};

class Comparison {
 public:
  Comparison(os::Env &env, const ModelView &from, const ModelView &to, const std::string &path,
             const DiffOptions &options)
      : env_(env),
        from_(from),
        to_(to),
        path_(path),
        options_(options),
        control_(options.progress, nullptr),
        steps_(env, path),
        helper_(env),
        total_(to.data_bytes()) {}

  Result<void> compare();
  Result<void> write(const std::function<void()> &all_read);

 private:
  // A tensor that differs, and what the delta is to hold of it.
  struct Changed {
    NotedTensor noted;
    Spilled::Part steps;  // if it is these
  };
  using Found = std::optional<Changed>;  // none: the same bytes
  Result<Found> compare(const Place &before, const Place &after);
  Result<OldBytes> hash_old(const Place &p);
  Result<OldBytes> hash_new(const Place &p);
  // The caller may fork, and a child has no helper.
  Result<void> tell(uint64_t n) {
    helper_.wait();
    return control_.check(done_ += n, total_);
  }

  Result<std::span<const std::byte>> block(TensorWindow &window, const Place &p, uint64_t begin, uint64_t n,
                                           std::vector<std::byte> &whole);

  os::Env &env_;
  const ModelView &from_, &to_;
  const std::string &path_;
  const DiffOptions &options_;
  const Control control_;
  struct Windows {
    TensorWindow old, fresh;
  };
  Windows ahead_{TensorWindow(true), TensorWindow(true)};
  Windows by_turns_[2] = {{TensorWindow(false), TensorWindow(false)}, {TensorWindow(false), TensorWindow(false)}};
  std::vector<std::byte> old_block_, new_block_;
  Spilled steps_;
  StepWriter step_writer_;
  os::Helper helper_;  // makes steps
  std::vector<Changed> changed_;
  std::vector<std::pair<std::string, OldBytes>> deleted_;
  uint64_t done_ = 0, total_;  // bytes of `to` that were looked at
};

Result<OldBytes> Comparison::hash_old(const Place &p) {
  return hash_tensor(ahead_.old, *p.snapshot, p.tensor(), [this](auto) { return tell(0); });
}

Result<OldBytes> Comparison::hash_new(const Place &p) {
  return hash_tensor(ahead_.fresh, *p.snapshot, p.tensor(), [this](auto piece) { return tell(piece.size()); });
}

// So many bytes of a tensor, which lie in two pieces where the window ends: these are put together in `whole`.
Result<std::span<const std::byte>> Comparison::block(TensorWindow &window, const Place &p, uint64_t begin, uint64_t n,
                                                     std::vector<std::byte> &whole) {
  const TensorView t = p.tensor();
  ST_TRY(auto piece, window.at(*p.snapshot, t, begin, n));
  if (piece.size() == n) return piece;
  whole.assign(piece.begin(), piece.end());
  while (whole.size() < n) {
    ST_TRY(piece, window.at(*p.snapshot, t, begin + whole.size(), n - whole.size()));
    whole.insert(whole.end(), piece.begin(), piece.end());
  }
  return std::span<const std::byte>(whole);
}

bool is_near(const Place &p) {
  const os::Storage storage = p.snapshot->filesystem.storage;
  return storage == os::Storage::local || storage == os::Storage::memory;
}

// Two tensors of one form. While they are equal one hash does for both. The delta holds the steps, as long as they are
// shorter than half of the tensor: whole ones are applied sooner, with less reading.
Result<Comparison::Found> Comparison::compare(const Place &before, const Place &after) {
  const TensorView is = after.tensor();
  TensorHasher old;
  std::optional<TensorHasher> fresh;
  MakingSteps making(helper_, step_writer_, is.dtype);
  bool in_steps = is.nbytes >= least_in_steps;
  // While one block is looked at, the next one is read, into other windows. Short tensors are read with those behind
  // them; and where reading has a latency, large pieces are worth more.
  const bool by_turns = is.nbytes > step_block_bytes && is_near(before) && is_near(after);
  steps_.begin_part();
  const auto add_made = [&]() -> Result<void> {
    const auto steps = making.made();
    in_steps &= steps_.part_size() + steps.size() < is.nbytes / 2;
    return in_steps ? steps_.add(steps) : Result<void>();
  };
  for (uint64_t done = 0; done < is.nbytes; done += step_block_bytes) {
    const uint64_t n = std::min(step_block_bytes, is.nbytes - done);
    Windows &windows = by_turns ? by_turns_[done / step_block_bytes % 2] : ahead_;
    if (!by_turns) ST_TRY(add_made());
    ST_TRY(auto b, block(windows.fresh, after, done, n, new_block_));
    ST_TRY(auto a, block(windows.old, before, done, n, old_block_));
    const bool same = std::memcmp(a.data(), b.data(), n) == 0;
    if (!fresh && !same) fresh = old;
    ST_TRY(add_made());
    ST_TRY(tell(n));
    if (!same && in_steps) making.begin(done / step_block_bytes, a, b);
    old.add(a);
    if (fresh) fresh->add(b);
  }
  ST_TRY(add_made());
  if (!fresh) return Found();
  Changed changed{{after.global, {fresh->digest().all, old.digest()}}, {}};
  if (in_steps) {
    changed.steps = steps_.end_part();
    changed.noted.hashes.steps = changed.steps.hash;
  }
  return changed;
}

Result<void> Comparison::compare() {
  const InterruptScope waits([this] { return tell(0); });
  for (const Place &after : to_.places()) {
    const TensorView is = after.tensor();
    const auto place = from_.find(is.name);
    if (place) {
      const TensorView was = from_.at(*place).tensor();
      if (was.dtype == is.dtype && std::ranges::equal(was.shape, is.shape)) {
        auto found = compare(from_.at(*place), after);
        if (!found) return Failure(std::move(found.error()).about_tensor(is.name));
        if (*found) changed_.push_back(**found);
        continue;
      }
    }
    ST_TRY(auto fresh, hash_new(after));
    DeltaTensor t{fresh.all, {}};
    if (place) {
      ST_TRY(t.old, hash_old(from_.at(*place)));
    }
    changed_.push_back({{after.global, t}, {}});
  }
  for (const Place &before : from_.places()) {
    const std::string_view name = before.tensor().name;
    if (to_.find(name)) continue;
    ST_TRY(auto old, hash_old(before));
    deleted_.emplace_back(name, old);
  }
  return {};
}

Result<void> Comparison::write(const std::function<void()> &all_read) {
  const InterruptScope waits([this] { return tell(0); });
  std::vector<HeldTensor> held;
  held.reserve(changed_.size());
  for (const Changed &c : changed_) {
    const TensorView t = to_.at(c.noted.tensor).tensor();
    held.push_back({write::declaration(t), c.noted});
    if (c.noted.hashes.steps) held.back().declared = {std::string(t.name), Dtype::U8, {c.steps.size}, c.steps.size};
  }
  const auto describe_all = [&](auto noted) {
    return describe(from_.listing(), to_.listing(), noted, std::move(deleted_));
  };
  const ModelView *const both[] = {&from_, &to_};
  ST_TRY(const mode_t mode, mode_of_copy(both));
  ST_TRY(auto writer,
         write_delta(env_, path_, std::move(held), describe_all, options_.alignment, mode, options_.lock_timeout_ms,
                     [this](uint64_t, uint64_t) { return tell(0).has_value(); }));

  TensorWindow again(false);
  for (const Changed &c : changed_) {
    const Place &place = to_.at(c.noted.tensor);
    const TensorView view = place.tensor();
    if (c.noted.hashes.steps) {
      const write::CopiedTensor steps{view.name, c.steps.begin};
      ST_TRY(writer->copy(steps_.file(), {&steps, 1}, [this](uint64_t) { return tell(0); }));
      continue;
    }
    const auto add = [&](auto piece) -> Result<void> {
      ST_TRY(tell(0));
      return writer->add(view.name, piece.data(), piece.size());
    };
    ST_TRY(auto hashed, hash_tensor(again, *place.snapshot, view, add));
    if (hashed.all != c.noted.hashes.bytes)
      return Failure(error(Status::file_changed, "tensor ", in_quotes(view.name), " of ",
                           in_quotes(place.member->place()), " was changed while it was compared; compare again")
                         .about_tensor(view.name));
  }
  all_read();
  return writer->finish();
}

}  // namespace

Result<void> diff(os::Env &env, const Model &from, const Model &to, const std::string &delta,
                  const DiffOptions &options, const std::function<void()> &all_read) {
  auto a = ModelView::of(from), b = ModelView::of(to);
  for (const auto *whole : {&a, &b}) {
    if (!*whole) return Failure(Error(whole->error()));
    ST_TRY((*whole)->must_not_be(env, delta));
  }
  Comparison comparison(env, *a, *b, delta, options);
  ST_TRY(comparison.compare());
  return comparison.write(all_read);
}

}  // namespace st::store
