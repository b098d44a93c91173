#include "store/delta_patch.h"

#include <algorithm>

#include "format/listing.h"
#include "store/delta_chain.h"

namespace st::store {
namespace {

class Patching {
 public:
  Patching(os::Env &env, Checkpoint &base, DeltaFile delta, DeltaPatchOptions options)
      : env_(env), base_(base), delta_(std::move(delta)), options_(std::move(options)) {}

  Result<DeltaPatched> run();

 private:
  Result<void> check(const Whole &base, Listing *result) const;
  Result<void> stage(Transaction &transaction);
  Result<NewBytes> value(size_t i) const;
  Result<void> stage_changes(Transaction &transaction);
  Result<void> check_and_save_old(const Whole &now);
  Result<std::unique_ptr<write::Writer>> begin_reverse(const Whole &now, const Listing &result);
  Result<void> tell(uint64_t n) { return Control(options_.progress, nullptr).check(done_ += n, total_); }

  os::Env &env_;
  Checkpoint &base_;
  const DeltaFile delta_;
  const DeltaPatchOptions options_;
  std::vector<uint64_t> heads_;  // of the delta's tensors
  uint64_t done_ = 0, total_ = 0;
};

// What can be told without reading much: the catalogue, and how the tensors begin.
Result<void> Patching::check(const Whole &base, Listing *result) const {
  *result = base.listing();
  if (auto fits = apply(result, delta_.index(), delta_.notes, 1); !fits) {
    fits.error().message += text(" (", quoted(base.path()), ")");
    return fits;
  }
  return check_heads(base, old_tensors(base, delta_.index(), delta_.notes));
}

Result<NewBytes> Patching::value(size_t i) const {
  const TensorView t = delta_.index().at(i);
  auto bytes = delta_.file->view(*delta_.snapshot, i);
  if (!bytes) return Failure(std::move(bytes.error()));
  return NewBytes{static_cast<uint32_t>(t.dtype), t.shape, *bytes, t.nbytes};
}

Result<void> Patching::stage(Transaction &transaction) {
  const bool update = delta_.notes.changes_bytes_only() && same_forms(Whole(base_), delta_.index());
  for (size_t i = 0; i < delta_.index().size(); ++i) {
    const std::string_view name = delta_.index().at(i).name;
    auto bytes = value(i);
    if (!bytes) return Failure(std::move(bytes.error()).about_tensor(name));
    auto staged = update ? transaction.update(name, *bytes) : transaction.put(name, *bytes);
    if (!staged) return staged;
  }
  return stage_changes(transaction);
}

Result<void> Patching::stage_changes(Transaction &transaction) {
  const DeltaNotes &notes = delta_.notes;
  for (const auto &[name, old] : notes.deleted)
    if (auto ok = transaction.remove(name); !ok) return ok;
  for (const std::string &key : notes.removed)
    if (auto ok = transaction.set_metadata(key, std::nullopt); !ok) return ok;
  for (const auto &[key, text] : notes.set)
    if (auto ok = transaction.set_metadata(key, text); !ok) return ok;
  return notes.order.empty() ? Result<void>() : transaction.arrange(notes.order);
}

// The delta that leads back: what it holds is known before its bytes are read.
Result<std::unique_ptr<write::Writer>> Patching::begin_reverse(const Whole &now, const Listing &result) {
  const Index &delta = delta_.index();
  const Listing before = now.listing();
  std::vector<NotedTensor> tensors;
  std::vector<std::pair<std::string, OldBytes>> deleted;
  for (size_t i = 0; i < delta.size(); ++i) {
    const DeltaTensor &t = delta_.notes.tensors[i];
    const OldBytes replaced{t.bytes, heads_[i]};
    if (t.old)
      tensors.push_back({now.find(delta.at(i).name).value(), {t.old->all, replaced}});
    else
      deleted.emplace_back(delta.at(i).name, replaced);
  }
  for (const auto &[name, old] : delta_.notes.deleted)
    tensors.push_back({now.find(name).value(), {old.all, std::nullopt}});
  std::sort(tensors.begin(), tensors.end(), [&](const NotedTensor &a, const NotedTensor &b) {
    const TensorView x = now.at(a.tensor).tensor(), y = now.at(b.tensor).tensor();
    return write::canonical_before(x.dtype, x.name, y.dtype, y.name);
  });
  std::vector<write::NewTensor> declared;
  declared.reserve(tensors.size());
  for (const NotedTensor &t : tensors) declared.push_back(write::declaration(now.at(t.tensor).tensor()));
  return write_delta(env_, options_.reverse, std::move(declared), describe(result, before, tensors, std::move(deleted)),
                     0, options_.lock_timeout_ms);
}

// With the base locked: is it the one, to the last byte that will be replaced?
// What is read for that is what the reverse delta holds.
Result<void> Patching::check_and_save_old(const Whole &now) {
  Listing result;
  if (auto fits = check(now, &result); !fits) return fits;
  std::unique_ptr<write::Writer> reverse;
  if (!options_.reverse.empty()) {
    if (auto apart = now.must_not_be(env_, options_.reverse); !apart) return apart;
    auto begun = begin_reverse(now, result);
    if (!begun) return Failure(std::move(begun.error()));
    reverse = std::move(*begun);
  }
  const auto keep = [&](const TensorView &t, std::span<const std::byte> piece) -> Result<void> {
    if (reverse)
      if (auto kept = reverse->add(t.name, piece.data(), piece.size()); !kept) return kept;
    return tell(piece.size());
  };
  const auto old = old_tensors(now, delta_.index(), delta_.notes);
  if (auto same = check_old(now, old, keep); !same) return same;
  return reverse ? reverse->finish() : Result<void>();
}

Result<DeltaPatched> Patching::run() {
  const Whole base(base_);
  Listing result;
  if (auto fits = check(base, &result); !fits) return Failure(std::move(fits.error()));
  if (!options_.reverse.empty())
    for (const Whole &read : {base, Whole(*delta_.file)})
      if (auto apart = read.must_not_be(env_, options_.reverse); !apart) return Failure(std::move(apart.error()));
  total_ = delta_.index().data_bytes();
  for (const OldTensor &old : old_tensors(base, delta_.index(), delta_.notes))
    total_ += base.at(old.index).tensor().nbytes;
  auto heads = delta_.check_bytes([this](uint64_t more) { return tell(more); });
  if (!heads) return Failure(std::move(heads.error()));
  heads_ = std::move(*heads);

  TransactionOptions options;
  options.lock_timeout_ms = options_.lock_timeout_ms;
  options.publish = options_.publish;
  options.break_links = options_.break_links;
  if (options_.progress) options.progress = [this](uint64_t, uint64_t) { return options_.progress(done_, total_); };
  auto transaction = Transaction::begin(base_, std::move(options));
  if (!transaction) return Failure(std::move(transaction.error()));
  (*transaction)->before_change([&](const Snapshot &now) {
    const Snapshot *const as_locked[] = {&now};
    return check_and_save_old(base.as_in(as_locked));
  });
  if (auto staged = stage(**transaction); !staged) return Failure(std::move(staged.error()));
  auto plan = (*transaction)->plan();
  if (!plan) return Failure(std::move(plan.error()));
  if (auto done = (*transaction)->commit(); !done) return Failure(std::move(done.error()));
  return DeltaPatched{std::move(*plan), base_.counters().bytes_written, base_.counters().journal_bytes};
}

}  // namespace

Result<DeltaPatched> patch(os::Env &env, const std::string &base, const std::string &delta, DeltaPatchOptions options) {
  OpenOptions open;
  open.lock_timeout_ms = options.lock_timeout_ms;
  auto changes = DeltaFile::open(env, delta, open);
  if (!changes) return Failure(std::move(changes.error()));
  open.writable = true;
  open.map = read::MapMode::none;
  auto file = Checkpoint::open(env, base, open);
  if (!file) return Failure(std::move(file.error()));
  return Patching(env, **file, std::move(*changes), std::move(options)).run();
}

}  // namespace st::store
