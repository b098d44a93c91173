#include "delta/delta_patch.h"

#include <algorithm>
#include <cerrno>
#include <map>

#include "base/interrupt.h"
#include "delta/delta_chain.h"
#include "delta/delta_hash.h"
#include "delta/stepped.h"
#include "journal/journal_plan.h"
#include "model/mode_of_copy.h"
#include "newfile/room.h"
#include "newfile/transfer.h"

namespace st::store {
namespace {

class Patching {
 public:
  Patching(os::Env &env, Model &base, ModelView whole, DeltaFile delta, DeltaPatchOptions options)
      : env_(env),
        base_(base),
        whole_(std::move(whole)),
        delta_(std::move(delta)),
        options_(std::move(options)),
        control_(options_.progress, &base.account().interrupts),
        helper_(env) {}

  Result<DeltaPatched> run();

 private:
  Result<void> check(const ModelView &base, TensorList *result) const;
  Result<NewBytes> value(size_t i) const;
  Result<void> stage(AnyTransaction &transaction, bool in_place);
  Result<void> stage_all_steps(AnyTransaction &transaction);
  const Place &place_of(size_t i) const { return whole_.at(*whole_.find(delta_.index().at(i).name)); }
  struct NewFile {
    bool is_planned;     // for other work
    uint64_t block = 0;  // of those that it may share with the old one; 0: it shares none
    uint64_t free = 0;   // on its storage
  };
  using NewFiles = std::map<const Snapshot *, NewFile>;
  Result<NewFiles> new_files(AnyTransaction &transaction, std::span<const size_t> staged) const;
  Result<void> check_room(AnyTransaction &transaction, std::span<const size_t> staged);
  Result<void> stage_steps(AnyTransaction &transaction, size_t i);
  Result<void> remake_later(AnyTransaction &transaction, size_t i);
  Result<void> stage_all(AnyTransaction &transaction, const TensorList &result);
  Result<void> check_and_save_old(const ModelView &now);
  Result<void> name_reverse() { return reverse_ ? reverse_->finish() : Result<void>(); }
  Result<std::unique_ptr<write::Writer>> begin_reverse(const ModelView &now, const TensorList &result);
  Result<void> copy_steps();
  bool has_steps(std::string_view name) const;
  bool is_remade(std::string_view name) const;
  Result<std::unique_ptr<AnyTransaction>> begin(const TensorList &result);
  Result<std::unique_ptr<AnyTransaction>> prepare();
  bool in_place() const { return delta_.notes.changes_bytes_only() && same_forms(whole_, delta_); }
  // What has steps: is the file patched, or, on shards, all files? Then none of it is staged.
  bool remakes_all() const { return !options_.publish && in_place(); }
  Result<CommitPlan> change();
  Error changed_meanwhile(std::string_view tensor) const;
  Error about_the_delta(Error failed) const;
  // What is made twice, as the journal was lost, counts once. The caller may fork, and a child has no helper.
  Result<void> tell(uint64_t n) {
    helper_.wait();
    done_ = std::min(done_ + n, total_);
    return control_.check(done_, total_);
  }

  os::Env &env_;
  Model &base_;
  const ModelView whole_;  // base_, as it was opened
  const DeltaFile delta_;
  const DeltaPatchOptions options_;
  const Control control_;                    // of the whole call
  std::vector<DeltaFile::Checked> checked_;  // the tensors that the delta gives
  std::vector<bool> remade_;  // of these: those that are made of their steps under the locks, and not staged
  StepRoom room_;
  std::unique_ptr<write::Writer> reverse_;  // once the base is locked; none, if no way back is wanted
  os::Helper helper_;
  uint64_t done_ = 0, total_ = 0;
};

// What can be told without reading much: the catalogue, and how the tensors begin.
Result<void> Patching::check(const ModelView &base, TensorList *result) const {
  *result = base.listing();
  if (auto fits = apply(result, delta_.index(), delta_.notes, 1, base.fresh_seed()); !fits) {
    fits.error().message += text(" (delta ", in_quotes(delta_.path), " on ", in_quotes(base.path()), ")");
    return fits;
  }
  return check_heads(base, old_tensors(base, delta_.index(), delta_.notes));
}

Result<NewBytes> Patching::value(size_t i) const {
  const TensorView t = delta_.index().at(i);
  ST_TRY(auto bytes, delta_.file->view(*delta_.snapshot, i));
  return NewBytes{static_cast<uint32_t>(t.dtype), t.shape, bytes, t.nbytes, checked_[i].all};
}

// Tensors that are there and keep their form are updates where that makes a change in place, and what is added comes
// last: to a shard that is written anew for something else, if there is one.
Result<void> Patching::stage(AnyTransaction &transaction, bool in_place) {
  enum Kind { replaced, updated, added };
  const Index &delta = delta_.index();
  std::vector<std::pair<Kind, size_t>> steps;
  for (size_t i = 0; i < delta.size(); ++i) {
    const TensorView t = delta.at(i);
    const bool updates = in_place && same_form(whole_, delta_, i);
    steps.emplace_back(!whole_.find(t.name) ? added : updates ? updated : replaced, i);
  }
  std::sort(steps.begin(), steps.end());
  for (const auto &[name, old] : delta_.notes.deleted) ST_TRY(transaction.remove(name));
  for (const auto &[kind, i] : steps) {
    const std::string_view name = delta.at(i).name;
    if (delta_.notes.tensors[i].steps) continue;
    auto bytes = value(i);
    if (!bytes) return Failure(std::move(bytes.error()).about_tensor(name));
    ST_TRY(kind == updated ? transaction.update(name, *bytes) : transaction.put(name, *bytes));
  }
  return {};
}

// When all else is staged: by then it is known which shards are published.
Result<void> Patching::stage_all_steps(AnyTransaction &transaction) {
  const bool may_be_remade = !base_.file() || remakes_all();
  remade_.assign(delta_.index().size(), false);
  std::vector<size_t> staged;
  for (size_t i = 0; i < delta_.index().size(); ++i) {
    if (!delta_.notes.tensors[i].steps) continue;
    ST_TRY(auto may, may_be_remade ? transaction.may_remake(delta_.index().at(i).name) : Result<bool>(false));
    remade_[i] = may;
    if (may)
      ST_TRY(remake_later(transaction, i));
    else
      staged.push_back(i);
  }
  if (!staged.empty()) ST_TRY(check_room(transaction, staged));
  for (const size_t i : staged) ST_TRY(stage_steps(transaction, i));
  return {};
}

// The new files with these tensors, by the old ones.
Result<Patching::NewFiles> Patching::new_files(AnyTransaction &transaction, std::span<const size_t> staged) const {
  NewFiles files;
  for (const size_t i : staged) {
    const Place &place = place_of(i);
    if (files.contains(place.snapshot)) continue;
    ST_TRY(const auto is_planned, transaction.publishes(delta_.index().at(i).name));
    ST_TRY(auto file, open_regular(place.member->location(), O_RDWR, nullptr, {options_.lock_timeout_ms, &control_}));
    const write::Room room = write::room_of(file);
    files.emplace(place.snapshot, NewFile{is_planned, write::may_share(file, file) ? room.block : 0, room.free});
  }
  return files;
}

// The journal would take these pages before the commit looks for room. Where the new file shares its other blocks, the
// pages take new ones there, too, and each range may begin amid one. To count them, their steps are read once more:
// only where the whole tensors would be too long. A plan knows of no file that these pages alone make anew.
Result<void> Patching::check_room(AnyTransaction &transaction, std::span<const size_t> staged) {
  ST_TRY(const auto plan, transaction.plan());
  ST_TRY(const auto files, new_files(transaction, staged));
  struct Pages {
    uint64_t in_journal = 0, in_file = 0;
  };
  using Taken = std::map<const Snapshot *, Pages>;
  const auto add = [&](Taken *sum, size_t i, const PagesToChange &pages) {
    const Snapshot *const of = place_of(i).snapshot;
    (*sum)[of].in_journal += pages.bytes;
    (*sum)[of].in_file += pages.bytes + (pages.ranges + 1) * files.at(of).block;
  };
  const auto needed_for = [&](const Taken &taken) {
    uint64_t sum = plan.space_needed;
    for (const auto &[snapshot, pages] : taken) {
      write::JournalPlan journal;
      journal.append(pages.in_journal);
      sum += journal.cost().room;
      const NewFile &file = files.at(snapshot);
      if (file.is_planned && plan.cost.shared == plan.cost.staged_shared) continue;  // the plan has all of it
      if (file.block > 0)
        sum += std::min(pages.in_file, snapshot->file_size());
      else if (!file.is_planned)
        sum += snapshot->file_size();
    }
    const std::string &type = place_of(staged.front()).snapshot->filesystem.type;
    return plan.kind == CommitPlan::nothing ? write::room_with_metadata(type, sum) : sum;
  };
  Taken most, pages;
  for (const size_t i : staged) {
    const uint64_t n = place_of(i).tensor().nbytes;
    add(&most, i, {n, n / page_to_change + 1});
  }
  // Shards may lie on other storage than their index, and each on its own: the commit looks there.
  uint64_t free = plan.space_free;
  if (plan.kind == CommitPlan::nothing) {
    free = 0;
    for (const auto &[snapshot, file] : files) free = std::max(free, file.free);
  }
  if (free >= needed_for(most)) return {};
  for (const size_t i : staged) {
    const TensorView t = place_of(i).tensor();
    ST_TRY(const auto changed,
           pages_to_change({&delta_, i}, t, place_of(i).snapshot->file_offset(t), room_, [this] { return tell(0); }));
    add(&pages, i, changed);
  }
  if (free >= needed_for(pages)) return {};
  return Failure(write::too_little_room(std::string(whole_.path()), needed_for(pages), free));
}

// When the base is locked, its old bytes are read once: they are hashed, and what the steps make of them, and what
// changes goes to the journal.
Result<void> Patching::remake_later(AnyTransaction &transaction, size_t i) {
  const TensorView held = delta_.index().at(i);
  const auto make = [this, i, name = held.name](const os::File &file, uint64_t at, TakesRemade &to) -> Result<void> {
    const InterruptScope waits([this] { return tell(0); });
    const Place &place = whole_.at(*whole_.find(name));
    const SteppedTensor stepped{place.snapshot, place.tensor(), place.member->place(), {{&delta_, i}}};
    const uint64_t reads = remakes_all() ? 1 : 2;  // as if it was staged
    ST_TRY(auto fresh, remake(stepped, file, at, helper_, room_, to, [&](uint64_t n) { return tell(n * reads); }));
    checked_[i].head = fresh.head;
    return {};
  };
  constexpr uint64_t unpacked = 4;  // by which values without compression are longer
  return transaction.remake(held.name, make, unpacked * held.nbytes);
}

// The pages that the steps change, as they will be. The base is not locked: before the change it must have the same old
// bytes, to the hash, and then these pages are right.
Result<void> Patching::stage_steps(AnyTransaction &transaction, size_t i) {
  const std::string_view name = delta_.index().at(i).name;
  const Place &place = whole_.at(*whole_.find(name));
  const TensorView t = place.tensor();
  const uint64_t at = place.snapshot->file_offset(t);
  std::vector<std::byte> pages;
  const auto stage_block = [&](const SteppedBlock &block) -> Result<void> {
    ST_TRY(tell(block.bytes.size()));
    std::vector<ByteRange> ranges = block.changed_pages(at + block.begin);
    if (ranges.empty()) return {};
    pages.clear();
    for (ByteRange &r : ranges) {
      const auto page = block.bytes.subspan(r.begin, r.length);
      pages.insert(pages.end(), page.begin(), page.end());
      r.begin += block.begin;
    }
    return transaction.update_ranges(name, ranges, pages);
  };
  const SteppedTensor stepped{place.snapshot, t, place.member->place(), {{&delta_, i}}};
  ST_TRY(auto fresh, step_to_the_end(stepped, room_, stage_block));
  checked_[i].head = fresh.head;
  return {};
}

Result<void> Patching::stage_all(AnyTransaction &transaction, const TensorList &result) {
  const DeltaNotes &notes = delta_.notes;
  const bool is_file = base_.file() != nullptr;
  if (!is_file && result.tensors.empty() && whole_.size() > 0)
    return fail(Status::unsupported, "the delta would leave no tensor in the shards of ", in_quotes(whole_.path()),
                ", and an index without shards takes none back; merge into a file instead");
  ST_TRY(stage(transaction, !is_file || in_place()));
  ST_TRY(transaction.replace_metadata(result.metadata));
  ST_TRY(stage_all_steps(transaction));
  return notes.order.empty() ? Result<void>() : transaction.arrange(notes.order);
}

// The delta that leads back: what it holds is known before its bytes are read.
Result<std::unique_ptr<write::Writer>> Patching::begin_reverse(const ModelView &now, const TensorList &result) {
  const Index &delta = delta_.index();
  const TensorList before = now.listing();
  std::vector<HeldTensor> tensors;
  std::vector<std::pair<std::string, OldBytes>> deleted;
  for (size_t i = 0; i < delta.size(); ++i) {
    const DeltaTensor &t = delta_.notes.tensors[i];
    const TensorView held = delta.at(i);
    const OldBytes replaced{t.bytes, checked_[i].head};
    if (!t.old) {
      deleted.emplace_back(held.name, replaced);
      continue;
    }
    const size_t place = now.find(held.name).value();
    tensors.push_back(
        {write::declaration(t.steps ? held : now.at(place).tensor()), {place, {t.old->all, replaced, t.steps}}});
  }
  for (const auto &[name, old] : delta_.notes.deleted) {
    const size_t place = now.find(name).value();
    tensors.push_back({write::declaration(now.at(place).tensor()), {place, {old.all, std::nullopt}}});
  }
  const auto describe_back = [&](auto noted) { return describe(result, before, noted, std::move(deleted)); };
  ST_TRY(const mode_t mode, mode_of_copy(now));
  return write_delta(env_, options_.reverse, std::move(tensors), describe_back, 0, mode, options_.lock_timeout_ms,
                     [this](uint64_t, uint64_t) { return tell(0).has_value(); });
}

// The delta may be locked, but not everybody asks for locks.
Error Patching::changed_meanwhile(std::string_view tensor) const {
  return error(Status::file_changed, "tensor ", in_quotes(tensor), " of the delta ", in_quotes(delta_.path),
               " was changed while it was applied; apply it again")
      .about_tensor(tensor);
}

// Steps lead back as they lead forth. They were read before, so these are hashed once more.
Result<void> Patching::copy_steps() {
  TensorWindow window(false);
  for (size_t i = 0; i < delta_.index().size(); ++i) {
    if (!delta_.notes.tensors[i].steps) continue;
    const TensorView held = delta_.index().at(i);
    const auto add = [&](std::span<const std::byte> piece) -> Result<void> {
      ST_TRY(reverse_->add(held.name, piece.data(), piece.size()));
      return tell(0);
    };
    ST_TRY(auto copied, hash_tensor(window, *delta_.snapshot, held, add));
    if (copied.all != *delta_.notes.tensors[i].steps) return Failure(changed_meanwhile(held.name));
  }
  return {};
}

bool Patching::has_steps(std::string_view name) const {
  const auto found = delta_.index().find(name);
  return found && delta_.notes.tensors[*found].steps;
}

bool Patching::is_remade(std::string_view name) const {
  const auto found = delta_.index().find(name);
  return found && remade_[*found];
}

// With the base locked: is it the one, to the last byte that will be replaced?
// What is read for that is what the reverse delta holds.
Result<void> Patching::check_and_save_old(const ModelView &now) {
  const InterruptScope waits([this] { return tell(0); });
  TensorList result;
  ST_TRY(check(now, &result));
  if (!options_.reverse.empty()) {
    ST_TRY(now.must_not_be(env_, options_.reverse));
    ST_TRY(reverse_, begin_reverse(now, result));
  }
  const auto keep = [&](const TensorView &t, std::span<const std::byte> piece) -> Result<void> {
    if (reverse_ && !has_steps(t.name)) ST_TRY(reverse_->add(t.name, piece.data(), piece.size()));
    return tell(piece.size());
  };
  auto old = old_tensors(now, delta_.index(), delta_.notes);
  std::erase_if(old, [&](const OldTensor &t) { return is_remade(now.at(t.index).tensor().name); });
  ST_TRY(check_old(now, old, keep));
  return reverse_ ? copy_steps() : Result<void>();
}

// A transaction with all of it staged, which looks at the base before it is changed.
Result<std::unique_ptr<AnyTransaction>> Patching::begin(const TensorList &result) {
  TransactionOptions options;
  options.lock_timeout_ms = options_.lock_timeout_ms;
  options.publish = options_.publish;
  options.break_links = options_.break_links;
  options.journal_only = options_.journal_only;
  if (options_.progress) options.progress = [this](uint64_t, uint64_t) { return options_.progress(done_, total_); };
  ST_TRY(auto begun, base_.begin_on(whole_.catalogue(), std::move(options)));
  begun->before_change([this](std::span<const Snapshot *const> now) {
    return now.empty() ? check_and_save_old(whole_) : check_and_save_old(whole_.as_in(now));
  });
  begun->at_last([this] { return name_reverse(); });
  ST_TRY(stage_all(*begun, result));
  return begun;
}

// All that goes before the locks.
Result<std::unique_ptr<AnyTransaction>> Patching::prepare() {
  const InterruptScope waits([this] { return tell(0); });
  // It would wait for its own lock on the delta.
  for (const Opened &f : whole_.files())
    if (os::same_inode(f.snapshot->identity, delta_.snapshot->identity))
      return fail(Status::delta_base, "the delta ", in_quotes(delta_.path), " is itself a file of its base ",
                  in_quotes(whole_.path()), "; give the base that it was made for");
  TensorList result;
  ST_TRY(check(whole_, &result));
  if (!options_.reverse.empty())
    for (const ModelView &read : {whole_, ModelView(*delta_.file)}) ST_TRY(read.must_not_be(env_, options_.reverse));
  const bool once = remakes_all();
  total_ = delta_.index().data_bytes();
  for (const OldTensor &old : old_tensors(whole_, delta_.index(), delta_.notes))
    total_ += whole_.at(old.index).tensor().nbytes * (!once && has_steps(whole_.at(old.index).tensor().name) ? 2 : 1);
  ST_TRY(checked_, delta_.check_bytes([this](uint64_t more) { return tell(more); }, true));
  return begin(result);
}

// New bytes lie in the delta's mapping. Where they are gone the file is shorter, and reading its end says so. Where
// they are others than those that were checked, the transaction has named their tensor.
Error Patching::about_the_delta(Error failed) const {
  if (failed.status == Status::invalid_argument && delta_.index().find(failed.tensor))
    return changed_meanwhile(failed.tensor);
  if (failed.status != Status::io || failed.os_errno != EFAULT) return failed;
  std::byte last;
  auto reach = delta_.snapshot->here();
  auto is_whole = reach ? reach->file.read(&last, 1, delta_.snapshot->file_size() - 1) : Result<void>();
  return is_whole ? failed : is_whole.error();
}

Result<CommitPlan> Patching::change() {
  ST_TRY(auto transaction, prepare());
  ST_TRY(auto plan, transaction->plan());
  ST_TRY(transaction->commit());
  return plan;
}

Result<DeltaPatched> Patching::run() {
  const Counters &counters = base_.account().counters;
  const uint64_t written = counters.bytes_written, journal_bytes = counters.journal_bytes;
  auto plan = change();
  if (!plan) return Failure(about_the_delta(std::move(plan.error())));
  return DeltaPatched{std::move(*plan), counters.bytes_written - written, counters.journal_bytes - journal_bytes};
}

}  // namespace

Result<DeltaPatched> patch(os::Env &env, Model &base, DeltaFile delta, DeltaPatchOptions options) {
  ST_TRY(base.begin({}));  // may it be changed at all?
  ST_TRY(auto whole, ModelView::of(base));
  return Patching(env, base, std::move(whole), std::move(delta), std::move(options)).run();
}

}  // namespace st::store
