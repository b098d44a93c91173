#include "file/staging.h"

#include <algorithm>

#include "base/check.h"
#include "file/slices.h"
#include "os/random.h"

namespace st::store {
namespace {

// A view changes with its file, which another tensor of this very transaction may
// do: its bytes are taken at once.
bool is_view(const Staged &staged, const NewBytes &value) {
  return staged.file.lends(value.bytes, value.nbytes) ||
         (staged.options.is_view && staged.options.is_view(value.bytes, value.nbytes));
}

Result<void> check_hash(std::string_view name, const NewBytes &value, uint64_t hash) {
  if (!value.hash || hash == *value.hash) return {};
  return Failure(changed_payload(name));
}

// Where the old bytes can be saved instead, the new ones are but noted: the
// caller keeps them until commit.
Result<void> borrow(Staged &staged, write::Piece *piece, std::string_view name, const NewBytes &value) {
  Hasher hasher;
  ST_TRY(piece->table, staged.journal.journal->note_new(piece->offset, value.bytes, value.nbytes, staged.control,
                                                        value.hash ? &hasher : nullptr));
  piece->bytes = value.bytes;
  return value.hash ? check_hash(name, value, hasher.digest()) : Result<void>();
}

Result<void> stage_in_place(Staged &staged, size_t index, const TensorView &tensor, const NewBytes &value) {
  ST_TRY(staged.need_journal());
  const auto [found, fresh] = staged.by_index.try_emplace(index, staged.tensors.size());
  if (fresh)
    staged.tensors.push_back({tensor.name, index, {staged.snapshot->file_offset(tensor), {0, value.nbytes, 0}}});
  write::Piece &piece = staged.tensors[found->second].piece;
  const bool may_borrow = !staged.options.copy && value.nbytes >= staged.file.undo_from() && !is_view(staged, value);
  if (may_borrow && !piece.staged()) return borrow(staged, &piece, tensor.name, value);
  ST_TRY(auto payload, piece.staged() ? staged.journal.journal->overwrite(piece.payload, value.bytes, staged.control)
                                      : staged.journal.journal->append(value.bytes, value.nbytes, staged.control));
  piece = {piece.offset, payload};
  return check_hash(tensor.name, value, payload.hash);
}

// The payload in the journal whose place new bytes of a tensor may take: its own, as a rename takes a payload along.
std::optional<size_t> replaced_payload(const Staged &staged, const std::string &name, uint64_t nbytes) {
  const PendingTensor *t = staged.draft->find(name);
  if (!t || !t->slices.empty()) return std::nullopt;
  const bool fits =
      t->payload && !staged.payloads[*t->payload].bytes && staged.payloads[*t->payload].journal.length == nbytes;
  return fits ? t->payload : std::nullopt;
}

Result<void> stage_in_draft(Staged &staged, Change change, const NewBytes &value) {
  ST_TRY(staged.may_go_on());
  if (!is_dtype(value.dtype))
    return Failure(error(Status::dtype, "the new value of tensor ", in_quotes(change.name), " has dtype ", value.dtype,
                         ", which is none")
                       .about_tensor(change.name));
  change.form = {static_cast<Dtype>(value.dtype), {value.shape.begin(), value.shape.end()}, value.nbytes};
  auto nbytes = tensor_nbytes(change.form.dtype, change.form.shape);
  if (!nbytes) {
    nbytes.error().message = text("tensor ", in_quotes(change.name), " ", nbytes.error().message);
    return Failure(std::move(nbytes.error()).about_tensor_at_least(change.name));
  }
  if (change.kind == Change::put && *nbytes != value.nbytes)
    return Failure(error(Status::nbytes_mismatch, "tensor ", in_quotes(change.name), " has ", value.nbytes,
                         " bytes; its dtype and shape need ", *nbytes)
                       .about_tensor(change.name));
  if (change.kind == Change::update) {
    // Refused before its bytes are taken.
    const auto form = form_of(staged, change.name);
    if (!form) return Failure(no_such_tensor(change.name, staged.file.path()));
    ST_TRY(
        check_same_form(change.name, form->dtype, form->shape, form->nbytes, value.dtype, value.shape, value.nbytes));
  }
  if (change.kind == Change::update && value.nbytes == 0) return {};  // nothing, as in place
  ST_TRY(make_publish(staged));
  std::optional<size_t> replaced;
  StagedPayload payload{value.bytes, {}, value.nbytes, {}, value.hash};
  if (staged.options.copy && value.nbytes > 0) {
    staged.begin_call();
    staged.failed = true;
    if (auto ok = staged.need_journal(); !ok) return Failure(std::move(ok.error()).about_tensor_at_least(change.name));
    write::Journal &journal = *staged.journal.journal;
    replaced = replaced_payload(staged, change.name, value.nbytes);
    auto copied = replaced ? journal.overwrite(staged.payloads[*replaced].journal, value.bytes, staged.control)
                           : journal.append(value.bytes, value.nbytes, staged.control);
    if (!copied) return Failure(std::move(copied.error()).about_tensor_at_least(change.name));
    ST_TRY(check_hash(change.name, value, copied->hash));
    staged.failed = false;
    payload = {nullptr, *copied, value.nbytes};
  }
  change.payload = replaced.value_or(staged.payloads.size());
  if (replaced)
    staged.payloads[*replaced] = payload;
  else
    staged.payloads.push_back(payload);
  return stage_change(staged, std::move(change));
}

}  // namespace

std::optional<Form> form_of(const Staged &staged, const std::string &name) {
  if (staged.draft) {
    const PendingTensor *t = staged.draft->find(name);
    return t ? std::optional(t->form) : std::nullopt;
  }
  const Index &index = staged.snapshot->header.index;
  const auto found = index.find(name);
  if (!found) return std::nullopt;
  return form_of(index.at(*found));
}

Result<void> stage_update(Staged &staged, std::string_view name, const NewBytes &value) {
  ST_TRY(staged.may_go_on());
  if (staged.options.publish || staged.draft)
    return stage_in_draft(staged, {Change::update, std::string(name), {}}, value);
  const auto index = staged.snapshot->header.index.find(name);
  if (!index) return Failure(no_such_tensor(name, staged.file.path()));
  const TensorView t = staged.snapshot->header.index.at(*index);
  ST_TRY(check_same_form(name, t.dtype, t.shape, t.nbytes, value.dtype, value.shape, value.nbytes));
  if (t.nbytes == 0) return {};
  staged.begin_call();
  staged.failed = true;         // also if memory runs out
  staged.slices.erase(*index);  // all of it is new
  auto taken = stage_in_place(staged, *index, t, value);
  if (!taken) return Failure(std::move(taken.error()).about_tensor_at_least(name));
  staged.failed = false;
  return {};
}

Result<void> restage_if_gone(Staged &staged) {
  // Where other hosts write, one of them would have taken the journal from us, and it may have our locks, too. So
  // nothing is staged anew there, and whether it is gone is asked before the commit record.
  if (staged.journal.journal->file().reads_past_cache() || staged.check_journal_is_there()) return {};
  ST_TRY(auto taken, staged.file.journals().take());
  const write::JournalFolder::Taken gone = std::exchange(staged.journal, std::move(taken));
  staged.journal_start = staged.journal.journal->bytes_written();
  for (StagedTensor &t : staged.tensors) {
    write::SectorTable &table = t.piece.table;
    const bool in_journal = t.piece.staged();
    const uint64_t sectors = write::sectors_of(table.noted_for, t.piece.payload.length);
    const write::Payload was =
        in_journal ? t.piece.payload : write::Payload{table.offset, sectors * sizeof(uint32_t), table.hash};
    ST_TRY(auto again, staged.journal.journal->take_over(*gone.journal, was, staged.control));
    if (in_journal)
      t.piece.payload = again;
    else
      table.offset = again.offset;
  }
  staged.remade.clear();  // they are made anew
  return restage_slices(staged, *gone.journal);
}

Error changed_payload(std::string_view name) {
  return error(Status::invalid_argument, "the new bytes of tensor ", in_quotes(name),
               " changed between staging and commit, so nothing was written; leave them alone until then, or begin the "
               "transaction with ST_TXN_COPY")
      .about_tensor(name);
}

Result<void> stage_borrowed(Staged &staged, StagedTensor *t) {
  write::Journal &journal = *staged.journal.journal;
  ST_TRY(auto payload, journal.append(t->piece.bytes, t->piece.payload.length, staged.control));
  ST_TRY(journal.flush());
  const auto go_on = [&](uint64_t done) { return staged.control.check(done, payload.length); };
  ST_TRY(auto same, journal.was_noted(t->piece.table, journal.file(), payload.offset, payload.length, go_on));
  if (!same) return Failure(changed_payload(t->name));
  t->piece = {t->piece.offset, payload};
  return {};
}

Result<void> stage_borrowed(Staged &staged) {
  for (StagedTensor &t : staged.tensors)
    if (!t.piece.staged()) ST_TRY(stage_borrowed(staged, &t));
  return {};
}

namespace {

// The index of a staged tensor in a file that took the place of ours.
Result<size_t> place_in(const Staged &staged, const Index &now, std::string_view name, size_t index) {
  const TensorView old = staged.snapshot->header.index.at(index);
  const auto found = now.find(name);
  if (!found || now.at(*found).dtype != old.dtype || !std::ranges::equal(now.at(*found).shape, old.shape))
    return Failure(error(Status::file_changed, in_quotes(staged.file.path()), " was replaced, and tensor ",
                         in_quotes(name), " is gone from it or has another form; open it anew")
                       .about_tensor(name));
  return *found;
}

// What is staged, as it lies in another file.
struct Fitted {
  std::unique_ptr<PendingCatalogue> draft;
  std::vector<size_t> tensors, remakes;  // their indices there
  std::map<size_t, StagedSlices> slices;
};

Result<Fitted> fit(const Staged &staged, const Snapshot &to) {
  const Index &index = to.header.index;
  Fitted fitted;
  if (staged.draft) {
    fitted.draft = std::make_unique<PendingCatalogue>(index, os::hash_seed(staged.file.env()), staged.file.path());
    for (const Change &change : staged.changes)
      if (auto applied = fitted.draft->apply(change); !applied) {
        Error e = std::move(applied.error());
        e.status = Status::file_changed;
        e.message = text(in_quotes(staged.file.path()), " was replaced, and the staged changes do not fit it (",
                         e.message, "); open it anew");
        return Failure(std::move(e));
      }
  }
  for (const StagedTensor &t : staged.tensors) {
    ST_TRY(auto place, place_in(staged, index, t.name, t.index));
    fitted.tensors.push_back(place);
  }
  for (const auto &[old, s] : staged.slices) {
    ST_TRY(auto place, place_in(staged, index, s.name, old));
    fitted.slices.emplace(place, s);
  }
  for (const StagedRemake &r : staged.remakes) {
    ST_TRY(auto place, place_in(staged, index, r.name, r.index));
    fitted.remakes.push_back(place);
  }
  return fitted;
}

void move_to(Staged &staged, HeldSnapshot shown, Fitted fitted) {
  if (staged.draft) staged.draft = std::move(fitted.draft);
  staged.slices = std::move(fitted.slices);
  for (size_t k = 0; k < staged.remakes.size(); ++k) staged.remakes[k].index = fitted.remakes[k];
  staged.by_index.clear();
  for (size_t k = 0; k < staged.tensors.size(); ++k) {
    const TensorView t = shown->header.index.at(fitted.tensors[k]);
    staged.tensors[k].name = t.name;
    staged.tensors[k].index = fitted.tensors[k];
    staged.tensors[k].piece.offset = shown->file_offset(t);
    staged.by_index[fitted.tensors[k]] = k;
  }
  staged.snapshot = std::move(shown);
}

}  // namespace

Result<void> follow_to(Staged &staged, HeldSnapshot shown) {
  ST_TRY(auto fitted, fit(staged, *shown));
  move_to(staged, std::move(shown), std::move(fitted));
  return {};
}

Result<void> follow_to(Staged &staged, const DataFile::Look &look, std::unique_ptr<Snapshot> found) {
  ST_TRY(auto fitted, fit(staged, *found));
  ST_TRY(auto adopted, staged.file.adopt_found(look, std::move(found)));
  if (adopted) move_to(staged, std::move(adopted), std::move(fitted));
  return {};
}

Result<void> make_publish(Staged &staged, const Change *first) {
  if (staged.draft) return {};
  ST_ASSERT(staged.remakes.empty());
  const uint64_t seed = os::hash_seed(staged.file.env());
  auto draft = std::make_unique<PendingCatalogue>(staged.snapshot->header.index, seed, staged.file.path());
  std::vector<Change> changes;
  std::vector<StagedPayload> payloads;
  for (const StagedTensor &s : staged.tensors) {
    const TensorView t = staged.snapshot->header.index.at(s.index);
    Change change{Change::update, std::string(s.name), {}, form_of(t), payloads.size()};
    ST_TRY(draft->apply(change));
    payloads.push_back({s.piece.bytes, s.piece.payload, t.nbytes, s.piece.table});
    changes.push_back(std::move(change));
  }
  std::vector<SliceMap> maps;
  ST_TRY(draft_slices(staged, draft.get(), &changes, &maps));
  if (first) ST_TRY(draft->apply(*first));
  staged.slices.clear();
  staged.slice_maps = std::move(maps);
  staged.tensors.clear();
  staged.by_index.clear();
  staged.changes = std::move(changes);
  staged.payloads = std::move(payloads);
  staged.draft = std::move(draft);
  return {};
}

Result<void> stage_change(Staged &staged, Change change) {
  ST_TRY(staged.may_go_on());
  staged.failed = true;  // if memory runs out
  auto applied = staged.draft ? staged.draft->apply(change) : make_publish(staged, &change);
  if (applied) staged.changes.push_back(std::move(change));
  staged.failed = false;
  return applied;
}

Result<void> stage_put(Staged &staged, std::string_view name, const NewBytes &value) {
  ST_TRY(check_new_name(name));
  return stage_in_draft(staged, {Change::put, std::string(name), {}}, value);
}

}  // namespace st::store
