// The half of Transaction that takes what a caller changes: payloads, into the journal or borrowed, and the catalogue
// that a publish makes. Takes no lock on the file.
#include <algorithm>

#include "file/transaction.h"

namespace st::store {
namespace {

Error about(Error e, std::string_view name) {
  return e.has_tensor ? e : std::move(e).about_tensor(name);
}

}  // namespace

Result<void> Transaction::update(std::string_view name, const NewBytes &value) {
  ST_TRY(may_go_on());
  if (options_.publish || draft_) return put_bytes({Change::update, std::string(name), {}}, value);
  const auto index = snapshot_->header.index.find(name);
  if (!index)
    return Failure(error(Status::not_found, "no tensor is named ", in_quotes(name), " in ", in_quotes(data_file_.path_))
                       .about_tensor(name));
  const TensorView t = snapshot_->header.index.at(*index);
  ST_TRY(check_same_form(name, t.dtype, t.shape, t.nbytes, value.dtype, value.shape, value.nbytes));
  if (t.nbytes == 0) return {};
  control_ = Control(options_.progress, &data_file_.interrupts_);
  auto staged = stage(*index, t, value);
  if (!staged) {
    failed_ = true;
    if (!staged.error().has_tensor) staged.error() = std::move(staged.error()).about_tensor(name);
  }
  return staged;
}

Result<void> Transaction::need_journal() {
  if (journal_.journal) return {};
  ST_TRY(journal_, data_file_.journals_->take());
  journal_start_ = journal_.journal->bytes_written();
  return {};
}

Result<void> Transaction::check_journal_is_there() const {
  return data_file_.journals_->check_beside(journal_);
}

// Staging may take hours, and something may clean up meanwhile. What was staged can still be read. Where other hosts
// write, one of them took the journal from us: it may have our locks, too.
Result<void> Transaction::restage_if_gone() {
  auto there = check_journal_is_there();
  if (there || journal_.journal->file().reads_past_cache()) return there;
  ST_TRY(auto taken, data_file_.journals_->take());
  const write::JournalFolder::Taken gone = std::exchange(journal_, std::move(taken));
  journal_start_ = journal_.journal->bytes_written();
  for (Staged &s : staged_) {
    write::SectorTable &table = s.piece.table;
    const bool staged = s.piece.staged();
    const uint64_t sectors = write::sectors_of(table.noted_for, s.piece.payload.length);
    const write::Payload was =
        staged ? s.piece.payload : write::Payload{table.offset, sectors * sizeof(uint32_t), table.hash};
    ST_TRY(auto again, journal_.journal->take_over(*gone.journal, was, control_));
    if (staged)
      s.piece.payload = again;
    else
      table.offset = again.offset;
  }
  return {};
}

Result<void> Transaction::stage(size_t index, const TensorView &tensor, const NewBytes &value) {
  ST_TRY(need_journal());
  const auto [found, fresh] = by_index_.try_emplace(index, staged_.size());
  if (fresh) staged_.push_back({tensor.name, index, {snapshot_->file_offset(tensor), {0, value.nbytes, 0}}});
  write::Piece &piece = staged_[found->second].piece;
  const bool may_borrow = !options_.copy && value.nbytes >= data_file_.undo_from_ && !is_view(value);
  if (may_borrow && !piece.staged()) return borrow(&piece, value.bytes);
  ST_TRY(auto payload, piece.staged() ? journal_.journal->overwrite(piece.payload, value.bytes, control_)
                                      : journal_.journal->append(value.bytes, value.nbytes, control_));
  piece = {piece.offset, payload};
  return {};
}

// A view changes with its file, which another tensor of this very transaction may
// do: its bytes are taken at once.
bool Transaction::is_view(const NewBytes &value) const {
  return data_file_.lends(value.bytes, value.nbytes) ||
         (options_.is_view && options_.is_view(value.bytes, value.nbytes));
}

// Where the old bytes can be saved instead, the new ones are but noted: the
// caller keeps them until commit.
Result<void> Transaction::borrow(write::Piece *piece, const void *bytes) {
  ST_TRY(piece->table, journal_.journal->note_new(piece->offset, bytes, piece->payload.length, control_));
  piece->bytes = bytes;
  return {};
}

// As they follow each other in the file.
void Transaction::sort_by_offset(std::vector<write::Piece> *pieces) {
  std::sort(pieces->begin(), pieces->end(),
            [](const write::Piece &a, const write::Piece &b) { return a.offset < b.offset; });
}

std::vector<write::Piece> Transaction::pieces() const {
  std::vector<write::Piece> pieces;
  for (const Staged &s : staged_) pieces.push_back(s.piece);
  sort_by_offset(&pieces);
  return pieces;
}

Error Transaction::changed_payload(std::string_view name) {
  return error(Status::invalid_argument, "the new bytes of tensor ", in_quotes(name),
               " changed between staging and commit, so nothing was written; leave them alone until then, or begin the "
               "transaction with ST_TXN_COPY")
      .about_tensor(name);
}

Result<void> Transaction::stage_borrowed(Staged *s) {
  write::Journal &journal = *journal_.journal;
  ST_TRY(auto payload, journal.append(s->piece.bytes, s->piece.payload.length, control_));
  ST_TRY(journal.flush());
  const auto go_on = [&](uint64_t done) { return control_.check(done, payload.length); };
  ST_TRY(auto same, journal.was_noted(s->piece.table, journal.file(), payload.offset, payload.length, go_on));
  if (!same) return Failure(changed_payload(s->name));
  s->piece = {s->piece.offset, payload};
  return {};
}

Result<void> Transaction::stage_borrowed() {
  for (Staged &s : staged_)
    if (!s.piece.staged()) ST_TRY(stage_borrowed(&s));
  return {};
}

// The path names another file by now, or the file has another header: stage the
// same values there, if they still fit.
Result<void> Transaction::follow_to(std::unique_ptr<Snapshot> snapshot) {
  const Index &index = snapshot->header.index;
  if (draft_) {
    auto draft = std::make_unique<PendingCatalogue>(index);
    for (const Change &change : changes_)
      if (auto applied = draft->apply(change); !applied) {
        Error e = std::move(applied.error());
        e.status = Status::file_changed;
        e.message = text(in_quotes(data_file_.path_), " was replaced, and the staged changes do not fit it (",
                         e.message, "); open it anew");
        return Failure(std::move(e));
      }
    draft_ = std::move(draft);
  }
  std::vector<size_t> now;  // of each staged tensor its index there
  for (const Staged &s : staged_) {
    const TensorView old = snapshot_->header.index.at(s.index);
    const auto found = index.find(s.name);
    if (!found || index.at(*found).dtype != old.dtype || !std::ranges::equal(index.at(*found).shape, old.shape))
      return Failure(error(Status::file_changed, in_quotes(data_file_.path_), " was replaced, and tensor ",
                           in_quotes(s.name), " is gone from it or has another form; open it anew")
                         .about_tensor(s.name));
    now.push_back(*found);
  }
  by_index_.clear();
  for (size_t k = 0; k < staged_.size(); ++k) {
    const TensorView t = index.at(now[k]);
    staged_[k].name = t.name;
    staged_[k].index = now[k];
    staged_[k].piece.offset = snapshot->file_offset(t);
    by_index_[now[k]] = k;
  }
  snapshot_ = data_file_.adopt(std::move(snapshot));
  return {};
}

bool Transaction::publishes() const {
  const bool relays =
      options_.compact || options_.layout != write::Layout::keep || options_.alignment != 0 || options_.reserve != 0;
  return draft_ || relays;
}

// From now on a publish: what was staged for a patch is the first part of it. With
// a first change that is refused the patch stays one.
Result<void> Transaction::draft(const Change *first) {
  if (draft_) return {};
  auto draft = std::make_unique<PendingCatalogue>(snapshot_->header.index);
  std::vector<Change> changes;
  std::vector<Payload> payloads;
  for (const Staged &s : staged_) {
    const TensorView t = snapshot_->header.index.at(s.index);
    Change change{Change::update,
                  std::string(s.name),
                  {},
                  {t.dtype, {t.shape.begin(), t.shape.end()}, t.nbytes},
                  payloads.size()};
    ST_TRY(draft->apply(change));
    payloads.push_back({s.piece.bytes, s.piece.payload, t.nbytes, s.piece.table});
    changes.push_back(std::move(change));
  }
  if (first) ST_TRY(draft->apply(*first));
  staged_.clear();
  by_index_.clear();
  changes_ = std::move(changes);
  payloads_ = std::move(payloads);
  draft_ = std::move(draft);
  return {};
}

Result<void> Transaction::apply(Change change) {
  ST_TRY(may_go_on());
  ST_TRY(draft_ ? draft_->apply(change) : draft(&change));
  changes_.push_back(std::move(change));
  return {};
}

// A tensor's form, as the calls before left it.
std::optional<Form> Transaction::form_of(const std::string &name) const {
  if (draft_) {
    const PendingTensor *t = draft_->find(name);
    return t ? std::optional(t->form) : std::nullopt;
  }
  const Index &index = snapshot_->header.index;
  const auto found = index.find(name);
  if (!found) return std::nullopt;
  const TensorView t = index.at(*found);
  return Form{t.dtype, {t.shape.begin(), t.shape.end()}, t.nbytes};
}

Result<void> Transaction::put_bytes(Change change, const NewBytes &value) {
  ST_TRY(may_go_on());
  if (!is_dtype(value.dtype))
    return Failure(error(Status::dtype, "the new value of tensor ", in_quotes(change.name), " has dtype ", value.dtype,
                         ", which is none")
                       .about_tensor(change.name));
  change.form = {static_cast<Dtype>(value.dtype), {value.shape.begin(), value.shape.end()}, value.nbytes};
  auto nbytes = tensor_nbytes(change.form.dtype, change.form.shape);
  if (!nbytes) {
    nbytes.error().message = text("tensor ", in_quotes(change.name), " ", nbytes.error().message);
    return Failure(about(std::move(nbytes.error()), change.name));
  }
  if (change.kind == Change::put && *nbytes != value.nbytes)
    return Failure(error(Status::nbytes_mismatch, "tensor ", in_quotes(change.name), " has ", value.nbytes,
                         " bytes; its dtype and shape need ", *nbytes)
                       .about_tensor(change.name));
  if (change.kind == Change::update) {
    // Refused before its bytes are taken.
    const auto form = form_of(change.name);
    if (!form)
      return Failure(
          error(Status::not_found, "no tensor is named ", in_quotes(change.name), " in ", in_quotes(data_file_.path_))
              .about_tensor(change.name));
    ST_TRY(
        check_same_form(change.name, form->dtype, form->shape, form->nbytes, value.dtype, value.shape, value.nbytes));
  }
  ST_TRY(draft());
  if (change.kind == Change::update && value.nbytes == 0) return {};  // nothing, as in place
  Payload payload{value.bytes, {}, value.nbytes};
  if (options_.copy && value.nbytes > 0) {
    control_ = Control(options_.progress, &data_file_.interrupts_);
    failed_ = true;
    if (auto ok = need_journal(); !ok) return Failure(about(std::move(ok.error()), change.name));
    auto copied = journal_.journal->append(value.bytes, value.nbytes, control_);
    if (!copied) return Failure(about(std::move(copied.error()), change.name));
    failed_ = false;
    payload = {nullptr, *copied, value.nbytes};
  }
  change.payload = payloads_.size();
  payloads_.push_back(payload);
  return apply(std::move(change));
}

Result<void> Transaction::put(std::string_view name, const NewBytes &value) {
  ST_TRY(check_new_name(name));
  return put_bytes({Change::put, std::string(name), {}}, value);
}

Result<void> Transaction::remove(std::string_view name) {
  return apply({Change::remove, std::string(name), {}});
}

Result<void> Transaction::rename(std::string_view from, std::string_view to) {
  ST_TRY(check_new_name(to));
  return apply({Change::rename, std::string(from), std::string(to)});
}

Result<void> Transaction::set_metadata(std::string_view key, std::optional<std::string_view> value) {
  return apply({value ? Change::set_metadata : Change::remove_metadata, std::string(key),
                std::string(value.value_or(std::string_view()))});
}

Result<void> Transaction::arrange(std::vector<std::string> names) {
  return apply({Change::order, {}, {}, {}, 0, std::move(names)});
}

}  // namespace st::store
