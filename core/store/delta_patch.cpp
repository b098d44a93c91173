#include "store/delta_patch.h"

#include <algorithm>
#include <map>

#include "store/delta_chain.h"
#include "store/shard_transaction.h"

namespace st::store {
namespace {

class Patching {
 public:
  Patching(os::Env &env, Collection &base, Whole whole, DeltaFile delta, DeltaPatchOptions options)
      : env_(env), base_(base), whole_(std::move(whole)), delta_(std::move(delta)), options_(std::move(options)) {}

  Result<DeltaPatched> run();

 private:
  Result<void> check(const Whole &base, Listing *result) const;
  Result<NewBytes> value(size_t i) const;
  Result<void> stage(AnyTransaction &transaction, bool in_place);
  Result<void> stage_in_file(Transaction &transaction);
  Result<void> stage_in_shards(ShardTransaction &transaction, const Listing &result);
  Result<void> check_and_save_old(const Whole &now);
  Result<std::unique_ptr<write::Writer>> begin_reverse(const Whole &now, const Listing &result);
  Result<std::unique_ptr<AnyTransaction>> begin(const Listing &result);
  Result<void> tell(uint64_t n) { return Control(options_.progress, nullptr).check(done_ += n, total_); }

  os::Env &env_;
  Collection &base_;
  const Whole whole_;  // base_, as it was opened
  const DeltaFile delta_;
  const DeltaPatchOptions options_;
  std::vector<uint64_t> heads_;  // of the delta's tensors
  uint64_t done_ = 0, total_ = 0;
};

// What can be told without reading much: the catalogue, and how the tensors begin.
Result<void> Patching::check(const Whole &base, Listing *result) const {
  *result = base.listing();
  if (auto fits = apply(result, delta_.index(), delta_.notes, 1); !fits) {
    fits.error().message += text(" (", in_quotes(base.path()), ")");
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
  for (const auto &[name, old] : delta_.notes.deleted)
    if (auto ok = transaction.remove(name); !ok) return ok;
  for (const auto &[kind, i] : steps) {
    const std::string_view name = delta.at(i).name;
    auto bytes = value(i);
    if (!bytes) return Failure(std::move(bytes.error()).about_tensor(name));
    auto staged = kind == updated ? transaction.update(name, *bytes) : transaction.put(name, *bytes);
    if (!staged) return staged;
  }
  return {};
}

Result<void> Patching::stage_in_file(Transaction &transaction) {
  const DeltaNotes &notes = delta_.notes;
  const bool in_place = notes.changes_bytes_only() && same_forms(whole_, delta_.index());
  if (auto ok = stage(transaction, in_place); !ok) return ok;
  for (const std::string &key : notes.removed)
    if (auto ok = transaction.set_metadata(key, std::nullopt); !ok) return ok;
  for (const auto &[key, text] : notes.set)
    if (auto ok = transaction.set_metadata(key, text); !ok) return ok;
  return notes.order.empty() ? Result<void>() : transaction.arrange(notes.order);
}

// Shards have the order of their names, so that of the delta is nothing to them. The metadata that are to be are
// brought about in the index; a header is changed where it says what is to go.
Result<void> Patching::stage_in_shards(ShardTransaction &transaction, const Listing &result) {
  if (result.tensors.empty() && whole_.size() > 0)
    return fail(Status::unsupported, "the delta would leave no tensor in the shards of ", in_quotes(whole_.path()),
                ", and an index without shards takes none back; merge into a file instead");
  if (auto ok = stage(transaction, true); !ok) return ok;
  const std::map<std::string_view, std::string_view> wanted(result.metadata.begin(), result.metadata.end());
  std::map<std::string_view, std::string_view> found;
  if (const auto first = transaction.first_shard()) {
    const Index &header = whole_.files()[*first].snapshot->header.index;
    for (size_t i = 0; i < header.metadata_size(); ++i) {
      const auto pair = header.metadata_at(i);
      found.insert(pair);
      if (wanted.contains(pair.first)) continue;
      if (auto ok = transaction.remove_header_metadata(*first, pair.first); !ok) return ok;
    }
  }
  for (const auto &[key, text] : whole_.of_index()) {
    found.insert_or_assign(key, text);
    if (wanted.contains(key)) continue;
    if (auto ok = transaction.set_metadata(key, std::nullopt); !ok) return ok;
  }
  for (const auto &[key, text] : wanted) {
    const auto now = found.find(key);
    if (now != found.end() && now->second == text) continue;
    if (auto ok = transaction.set_metadata(key, text); !ok) return ok;
  }
  return {};
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
                     0, options_.lock_timeout_ms, [this](uint64_t, uint64_t) { return tell(0).has_value(); });
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

// A transaction with all of it staged, which looks at the base before it is changed.
Result<std::unique_ptr<AnyTransaction>> Patching::begin(const Listing &result) {
  TransactionOptions options;
  options.lock_timeout_ms = options_.lock_timeout_ms;
  options.publish = options_.publish;
  options.break_links = options_.break_links;
  if (options_.progress) options.progress = [this](uint64_t, uint64_t) { return options_.progress(done_, total_); };
  auto begun = base_.begin(std::move(options));
  if (!begun) return begun;
  Result<void> staged;
  if (base_.file()) {
    auto &transaction = static_cast<Transaction &>(**begun);
    transaction.before_change([this](const Snapshot &now) {
      const Snapshot *const as_locked[] = {&now};
      return check_and_save_old(whole_.as_in(as_locked));
    });
    staged = stage_in_file(transaction);
  } else {
    auto &transaction = static_cast<ShardTransaction &>(**begun);
    transaction.before_change([this] { return check_and_save_old(whole_); });
    staged = stage_in_shards(transaction, result);
  }
  if (!staged) return Failure(std::move(staged.error()));
  return begun;
}

Result<DeltaPatched> Patching::run() {
  Listing result;
  if (auto fits = check(whole_, &result); !fits) return Failure(std::move(fits.error()));
  if (!options_.reverse.empty())
    for (const Whole &read : {whole_, Whole(*delta_.file)})
      if (auto apart = read.must_not_be(env_, options_.reverse); !apart) return Failure(std::move(apart.error()));
  total_ = delta_.index().data_bytes();
  for (const OldTensor &old : old_tensors(whole_, delta_.index(), delta_.notes))
    total_ += whole_.at(old.index).tensor().nbytes;
  auto heads = delta_.check_bytes([this](uint64_t more) { return tell(more); });
  if (!heads) return Failure(std::move(heads.error()));
  heads_ = std::move(*heads);

  auto transaction = begin(result);
  if (!transaction) return Failure(std::move(transaction.error()));
  auto plan = (*transaction)->plan();
  if (!plan) return Failure(std::move(plan.error()));
  if (auto done = (*transaction)->commit(); !done) return Failure(std::move(done.error()));
  DeltaPatched patched{std::move(*plan)};
  patched.written = base_.account().counters.bytes_written;
  patched.journal_bytes = base_.account().counters.journal_bytes;
  return patched;
}

}  // namespace

Result<DeltaPatched> patch(os::Env &env, const std::string &base, const std::string &delta, DeltaPatchOptions options) {
  OpenOptions open;
  open.lock_timeout_ms = options.lock_timeout_ms;
  open.progress = options.progress;
  auto changes = DeltaFile::open(env, delta, open);
  if (!changes) return Failure(std::move(changes.error()));
  open.writable = true;
  open.map = read::MapMode::none;
  auto opened = Collection::open(env, base, open);
  if (!opened) return Failure(std::move(opened.error()));
  auto whole = Whole::of(**opened);
  if (!whole) return Failure(std::move(whole.error()));
  return Patching(env, **opened, std::move(*whole), std::move(*changes), std::move(options)).run();
}

}  // namespace st::store
