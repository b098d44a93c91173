#include "delta/delta_patch.h"

#include <algorithm>

#include "delta/delta_chain.h"
#include "model/model.h"

namespace st::store {
namespace {

class Patching {
 public:
  Patching(os::Env &env, Model &base, ModelView whole, DeltaFile delta, DeltaPatchOptions options)
      : env_(env), base_(base), whole_(std::move(whole)), delta_(std::move(delta)), options_(std::move(options)) {}

  Result<DeltaPatched> run();

 private:
  Result<void> check(const ModelView &base, TensorList *result) const;
  Result<NewBytes> value(size_t i) const;
  Result<void> stage(AnyTransaction &transaction, bool in_place);
  Result<void> stage_all(AnyTransaction &transaction, const TensorList &result);
  Result<void> check_and_save_old(const ModelView &now);
  Result<std::unique_ptr<write::Writer>> begin_reverse(const ModelView &now, const TensorList &result);
  Result<std::unique_ptr<AnyTransaction>> begin(const TensorList &result);
  Result<void> tell(uint64_t n) { return Control(options_.progress, nullptr).check(done_ += n, total_); }

  os::Env &env_;
  Model &base_;
  const ModelView whole_;  // base_, as it was opened
  const DeltaFile delta_;
  const DeltaPatchOptions options_;
  std::vector<uint64_t> heads_;  // of the delta's tensors
  uint64_t done_ = 0, total_ = 0;
};

// What can be told without reading much: the catalogue, and how the tensors begin.
Result<void> Patching::check(const ModelView &base, TensorList *result) const {
  *result = base.listing();
  if (auto fits = apply(result, delta_.index(), delta_.notes, 1); !fits) {
    fits.error().message += text(" (", in_quotes(base.path()), ")");
    return fits;
  }
  return check_heads(base, old_tensors(base, delta_.index(), delta_.notes));
}

Result<NewBytes> Patching::value(size_t i) const {
  const TensorView t = delta_.index().at(i);
  ST_TRY(auto bytes, delta_.file->view(*delta_.snapshot, i));
  return NewBytes{static_cast<uint32_t>(t.dtype), t.shape, bytes, t.nbytes};
}

// Tensors that are there and keep their form are updates where that makes a change in place, and what is added comes
// last: to a shard that is written anew for something else, if there is one.
Result<void> Patching::stage(AnyTransaction &transaction, bool in_place) {
  enum Kind { replaced, updated, added };
  const Index &delta = delta_.index();
  std::vector<std::pair<Kind, size_t>> steps;
  for (size_t i = 0; i < delta.size(); ++i) {
    const TensorView t = delta.at(i);
    const auto place = whole_.find(t.name);
    const TensorView old = place ? whole_.at(*place).tensor() : t;
    const bool same_form = old.dtype == t.dtype && std::ranges::equal(old.shape, t.shape);
    steps.emplace_back(!place ? added : same_form && in_place ? updated : replaced, i);
  }
  std::sort(steps.begin(), steps.end());
  for (const auto &[name, old] : delta_.notes.deleted) ST_TRY(transaction.remove(name));
  for (const auto &[kind, i] : steps) {
    const std::string_view name = delta.at(i).name;
    auto bytes = value(i);
    if (!bytes) return Failure(std::move(bytes.error()).about_tensor(name));
    ST_TRY(kind == updated ? transaction.update(name, *bytes) : transaction.put(name, *bytes));
  }
  return {};
}

Result<void> Patching::stage_all(AnyTransaction &transaction, const TensorList &result) {
  const DeltaNotes &notes = delta_.notes;
  const bool is_file = base_.file() != nullptr;
  if (!is_file && result.tensors.empty() && whole_.size() > 0)
    return fail(Status::unsupported, "the delta would leave no tensor in the shards of ", in_quotes(whole_.path()),
                ", and an index without shards takes none back; merge into a file instead");
  ST_TRY(stage(transaction, !is_file || (notes.changes_bytes_only() && same_forms(whole_, delta_.index()))));
  ST_TRY(transaction.replace_metadata(result.metadata));
  return notes.order.empty() ? Result<void>() : transaction.arrange(notes.order);
}

// The delta that leads back: what it holds is known before its bytes are read.
Result<std::unique_ptr<write::Writer>> Patching::begin_reverse(const ModelView &now, const TensorList &result) {
  const Index &delta = delta_.index();
  const TensorList before = now.listing();
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
                     0, options_.lock_timeout_ms, [this](uint64_t, uint64_t) { return tell(0).has_value(); });
}

// With the base locked: is it the one, to the last byte that will be replaced?
// What is read for that is what the reverse delta holds.
Result<void> Patching::check_and_save_old(const ModelView &now) {
  TensorList result;
  ST_TRY(check(now, &result));
  std::unique_ptr<write::Writer> reverse;
  if (!options_.reverse.empty()) {
    ST_TRY(now.must_not_be(env_, options_.reverse));
    ST_TRY(reverse, begin_reverse(now, result));
  }
  const auto keep = [&](const TensorView &t, std::span<const std::byte> piece) -> Result<void> {
    if (reverse) ST_TRY(reverse->add(t.name, piece.data(), piece.size()));
    return tell(piece.size());
  };
  const auto old = old_tensors(now, delta_.index(), delta_.notes);
  ST_TRY(check_old(now, old, keep));
  return reverse ? reverse->finish() : Result<void>();
}

// A transaction with all of it staged, which looks at the base before it is changed.
Result<std::unique_ptr<AnyTransaction>> Patching::begin(const TensorList &result) {
  TransactionOptions options;
  options.lock_timeout_ms = options_.lock_timeout_ms;
  options.publish = options_.publish;
  options.break_links = options_.break_links;
  if (options_.progress) options.progress = [this](uint64_t, uint64_t) { return options_.progress(done_, total_); };
  ST_TRY(auto begun, base_.begin(std::move(options)));
  begun->before_change([this](std::span<const Snapshot *const> now) {
    return now.empty() ? check_and_save_old(whole_) : check_and_save_old(whole_.as_in(now));
  });
  ST_TRY(stage_all(*begun, result));
  return begun;
}

Result<DeltaPatched> Patching::run() {
  TensorList result;
  ST_TRY(check(whole_, &result));
  if (!options_.reverse.empty())
    for (const ModelView &read : {whole_, ModelView(*delta_.file)}) ST_TRY(read.must_not_be(env_, options_.reverse));
  total_ = delta_.index().data_bytes();
  for (const OldTensor &old : old_tensors(whole_, delta_.index(), delta_.notes))
    total_ += whole_.at(old.index).tensor().nbytes;
  ST_TRY(heads_, delta_.check_bytes([this](uint64_t more) { return tell(more); }));

  ST_TRY(auto transaction, begin(result));
  ST_TRY(auto plan, transaction->plan());
  ST_TRY(transaction->commit());
  DeltaPatched patched{std::move(plan)};
  patched.written = base_.account().counters.bytes_written;
  patched.journal_bytes = base_.account().counters.journal_bytes;
  return patched;
}

}  // namespace

Result<DeltaPatched> patch(os::Env &env, Model &base, DeltaFile delta, DeltaPatchOptions options) {
  ST_TRY(auto whole, ModelView::of(base));
  return Patching(env, base, std::move(whole), std::move(delta), std::move(options)).run();
}

}  // namespace st::store
