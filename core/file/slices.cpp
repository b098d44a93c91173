// The part of Transaction that changes parts of tensors. New bytes go to the journal during the call. What they are for
// is kept in maps (slice_map.h), so that the last wins; the commit makes pieces of it, or writes it into a new file.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "base/round.h"
#include "file/transaction.h"

namespace st::store {
namespace {

// With more ranges than this, a transaction locks the bytes between the nearest of them too: a lock is a system call,
// and the kernel walks a list of them.
constexpr size_t most_slice_locks = 1024;
constexpr uint64_t page = 4096;  // what shorter gaps do not keep apart, where bytes are asked for by the page or block

Result<void> check_values(std::string_view name, const Form &form, const Selection &selection, const NewBytes &value) {
  std::string why;
  Status status = Status::ok;
  if (value.dtype != static_cast<uint32_t>(form.dtype)) {
    status = Status::dtype_mismatch;
    why = text("the tensor is ", dtype_name(form.dtype), " but the new values are ",
               is_dtype(value.dtype) ? dtype_name(static_cast<Dtype>(value.dtype)) : "of no dtype");
  } else if (!std::ranges::equal(value.shape, selection.shape())) {
    const auto list = [](std::span<const uint64_t> dims) {
      std::string out = "[";
      for (size_t i = 0; i < dims.size(); ++i) out += text(i ? ", " : "", dims[i]);
      return out + "]";
    };
    status = Status::shape_mismatch;
    why = text("it has shape ", list(selection.shape()), " but the new values have ", list(value.shape));
  } else if (value.nbytes != selection.nbytes()) {
    status = Status::nbytes_mismatch;
    why = text("it has ", selection.nbytes(), " bytes but the new values have ", value.nbytes);
  } else {
    return {};
  }
  return Failure(
      error(status, "a slice of tensor ", in_quotes(name), " cannot be updated so: ", why).about_tensor(name));
}

// Strips that are less than a page apart, as one.
std::vector<Covered> by_pages(const SliceMap &map) {
  std::vector<Covered> strips;
  map.each([&](const Strip &s) { strips.push_back({s.begin, s.end()}); });
  return cover(std::move(strips), page);
}

}  // namespace

// The bytes of strips, from payloads that were found to be what was staged.
class Transaction::SliceReader {
  // Staged bytes, read ahead where strips follow one another in their payload, forwards or backwards.
  class StagedBytes {
   public:
    explicit StagedBytes(const write::Journal &journal)
        : journal_(journal), window_(std::make_unique_for_overwrite<std::byte[]>(window_bytes)) {}

    // n bytes of `payload`, `skip` behind its begin.
    Result<void> copy(const write::Payload &payload, uint64_t skip, uint64_t n, std::byte *to) {
      const uint64_t at = payload.offset + skip;
      if (n > window_bytes) return journal_.read(to, n, at);
      if (at < begin_ || at + n > end_) {
        const uint64_t end = payload.offset + payload.length;
        begin_ = at < begin_ ? std::max(payload.offset, at + n - std::min(at + n, window_bytes)) : at;
        end_ = std::min(end, begin_ + window_bytes);
        ST_TRY(journal_.read(window_.get(), end_ - begin_, begin_));
      }
      std::memcpy(to, window_.get() + (at - begin_), n);
      return {};
    }

   private:
    static constexpr uint64_t window_bytes = uint64_t{16} << 10;
    const write::Journal &journal_;
    std::unique_ptr<std::byte[]> window_;
    uint64_t begin_ = 0, end_ = 0;  // what of the journal lies in it
  };

  // Asks now and then whether to go on, however short the strips are.
  class Pace {
   public:
    Pace(const Control &control, uint64_t total) : control_(control), total_(total) {}
    Result<void> went_on(uint64_t n) {
      done_ += n;
      if (++steps_ % 1024 != 0 && done_ - told_ < write::write_chunk_bytes) return {};
      told_ = done_;
      return control_.check(done_, total_);
    }

   private:
    const Control &control_;
    const uint64_t total_;
    uint64_t done_ = 0, told_ = 0, steps_ = 0;
  };

 public:
  SliceReader(const Transaction &of, uint64_t total)
      : of_(of),
        staged_(*of.journal_.journal),
        checked_(of.slice_payloads_.size()),
        pace_(of.control_, total),
        buffer_(std::make_unique_for_overwrite<std::byte[]>(longest_gathered)) {}

  std::byte *buffer() const { return buffer_.get(); }
  // Into the buffer, which has the bytes that the stretch is laid over.
  Result<void> lay_over(const SliceMap::Stretch &stretch) {
    for (auto at = stretch.first; at != stretch.behind; ++at) {
      const Strip &strip = at->second;
      ST_TRY(read(strip, 0, strip.length, buffer() + (strip.begin - stretch.begin)));
    }
    return {};
  }
  // take(bytes, n, done) for a bufferful after the other.
  using Take = std::function<Result<void>(const std::byte *bytes, uint64_t n, uint64_t done)>;
  Result<void> each(const Strip &strip, const Take &take) {
    for (uint64_t done = 0; done < strip.length;) {
      const uint64_t n = std::min(longest_gathered, strip.length - done);
      ST_TRY(read(strip, done, n, buffer()));
      ST_TRY(take(buffer(), n, done));
      done += n;
    }
    return {};
  }

 private:
  Result<void> read(const Strip &strip, uint64_t done, uint64_t n, std::byte *to) {
    if (!checked_[strip.payload]) ST_TRY(of_.check_slice_payload(strip.payload));
    checked_[strip.payload] = true;
    ST_TRY(pace_.went_on(n));
    return staged_.copy(of_.slice_payloads_[strip.payload], strip.skip + done, n, to);
  }

  const Transaction &of_;
  StagedBytes staged_;
  std::vector<bool> checked_;
  Pace pace_;
  const std::unique_ptr<std::byte[]> buffer_;
};

Result<void> Transaction::update_slice(std::string_view name, const TensorPart &part, const NewBytes &value) {
  ST_TRY(may_go_on());
  const auto form = form_of(std::string(name));
  if (!form)
    return Failure(error(Status::not_found, "no tensor is named ", in_quotes(name), " in ", in_quotes(data_file_.path_))
                       .about_tensor(name));
  auto selection = Selection::make(form->dtype, form->shape, part);
  if (!selection) return Failure(std::move(selection.error()).about_tensor(name));
  ST_TRY(check_values(name, *form, *selection, value));
  if (options_.publish) ST_TRY(draft());
  if (value.nbytes == 0) return {};
  failed_ = true;
  control_ = Control(options_.progress, &data_file_.interrupts_);
  auto staged = stage_slice(name, *form, *selection, value);
  if (staged)
    failed_ = false;
  else if (!staged.error().has_tensor)
    staged.error() = std::move(staged.error()).about_tensor(name);
  return staged;
}

Result<void> Transaction::stage_slice(std::string_view name, const Form &form, const Selection &selection,
                                      const NewBytes &value) {
  ST_TRY(need_journal());
  const size_t number = slice_payloads_.size();
  ST_TRY(auto payload, journal_.journal->append(value.bytes, value.nbytes, control_));
  slice_payloads_.push_back(payload);
  SliceMap map;
  SliceMap *to = &map;
  if (!draft_) {
    ST_TRY(to, map_of(*snapshot_->header.index.find(name)));
  }
  selection.each_run([&](uint64_t begin, uint64_t skip, uint64_t length) { to->put({begin, length, number, skip}); });
  if (!draft_) return {};
  Change change{Change::update_slice, std::string(name), {}, form, slice_maps_.size()};
  slice_maps_.push_back(std::move(map));
  ST_TRY(draft_->apply(change));
  changes_.push_back(std::move(change));
  return {};
}

// What is staged of a tensor in parts. If all of it was staged before, that lies below them.
Result<SliceMap *> Transaction::map_of(size_t index) {
  if (const auto found = slices_.find(index); found != slices_.end()) return &found->second.map;
  StagedSlices fresh{std::string(snapshot_->header.index.at(index).name), {}};
  if (const auto whole = by_index_.find(index); whole != by_index_.end()) {
    Staged &s = staged_[whole->second];
    if (!s.piece.staged()) ST_TRY(stage_borrowed(&s));
    fresh.map.put({0, s.piece.payload.length, slice_payloads_.size(), 0});
    slice_payloads_.push_back(s.piece.payload);
    std::swap(s, staged_.back());
    by_index_[s.index] = whole->second;
    by_index_.erase(index);
    staged_.pop_back();
  }
  return &slices_.emplace(index, std::move(fresh)).first->second.map;
}

Result<void> Transaction::restage_slices(write::Journal &gone) {
  for (write::Payload &p : slice_payloads_) {
    ST_TRY(p, journal_.journal->take_over(gone, p, control_));
  }
  return {};
}

Result<void> Transaction::draft_slices(PendingCatalogue *draft, std::vector<Change> *changes,
                                       std::vector<SliceMap> *maps) const {
  for (const auto &[index, s] : slices_) {
    const TensorView t = snapshot_->header.index.at(index);
    Change change{
        Change::update_slice, s.name, {}, {t.dtype, {t.shape.begin(), t.shape.end()}, t.nbytes}, maps->size()};
    ST_TRY(draft->apply(change));
    maps->push_back(s.map);
    changes->push_back(std::move(change));
  }
  return {};
}

Result<void> Transaction::check_slice_payload(size_t number) const {
  const write::Payload &payload = slice_payloads_[number];
  const auto go_on = [&](uint64_t done) { return control_.check(done, payload.length); };
  ST_TRY(auto same, journal_.journal->holds(payload, go_on));
  if (same) return {};
  return fail(Status::journal, "new bytes of a slice were damaged in ", in_quotes(journal_.journal->file().path()),
              "; nothing was changed");
}

// Pieces of what is staged by slices. Under the locks, as bytes between short strips are the file's own. A strip that
// is no whole payload gets a hash of its own.
Result<void> Transaction::assemble_slices(const os::File &data) {
  if (slices_.empty()) return {};
  write::Journal &journal = *journal_.journal;
  ST_TRY(journal.flush());
  uint64_t total = 0;
  for (const auto &[index, s] : slices_) total += s.map.bytes();
  SliceReader reader(*this, total);
  for (const auto &[index, s] : slices_) {
    const uint64_t at = snapshot_->file_offset(snapshot_->header.index.at(index));
    ST_TRY(s.map.each_stretch([&](const SliceMap::Stretch &stretch) -> Result<void> {
      const Strip &first = stretch.first->second;
      write::Payload payload = slice_payloads_[first.payload];
      const uint64_t n = stretch.end - stretch.begin;
      if (stretch.gathered()) {
        ST_TRY(data.read(reader.buffer(), n, at + stretch.begin));
        ST_TRY(reader.lay_over(stretch));
        ST_TRY(payload, journal.append(reader.buffer(), n, control_));
      } else if (n != payload.length) {
        Hasher hasher;
        ST_TRY(reader.each(first, [&](const std::byte *bytes, uint64_t length, uint64_t) -> Result<void> {
          hasher.add(bytes, length);
          return {};
        }));
        payload = {payload.offset + first.skip, n, hasher.digest()};
      }
      slice_pieces_.push_back({at + stretch.begin, payload});
      return {};
    }));
  }
  return {};
}

std::vector<write::Piece> Transaction::slice_pieces(write::JournalPlan *journal) const {
  if (!slice_pieces_.empty()) return slice_pieces_;
  std::vector<write::Piece> pieces;
  for (const auto &[index, s] : slices_) {
    const uint64_t at = snapshot_->file_offset(snapshot_->header.index.at(index));
    static_cast<void>(s.map.each_stretch([&](const SliceMap::Stretch &stretch) -> Result<void> {
      const uint64_t n = stretch.end - stretch.begin;
      if (stretch.gathered() && journal) journal->append(n);
      pieces.push_back({at + stretch.begin, {write::header_bytes, n, 0}});  // staged by then, wherever
      return {};
    }));
  }
  return pieces;
}

std::vector<Covered> Transaction::bytes_to_lock() const {
  std::vector<write::Piece> pieces = slice_pieces(nullptr);
  for (const Staged &s : staged_) pieces.push_back(s.piece);
  sort_by_offset(&pieces);
  std::vector<Covered> ranges;
  ranges.reserve(pieces.size());
  for (const write::Piece &p : pieces) ranges.push_back({p.offset, p.offset + p.payload.length});
  return slices_.empty() ? ranges : cover(std::move(ranges), 0, staged_.size() + most_slice_locks);
}

// The name of the staged tensor that this byte of the file is of.
std::string_view Transaction::name_at(uint64_t offset) const {
  const auto begin_of = [&](size_t index) { return snapshot_->file_offset(snapshot_->header.index.at(index)); };
  for (const Staged &s : staged_)
    if (offset - s.piece.offset < s.piece.payload.length) return s.name;
  std::string_view name;
  for (const auto &[index, s] : slices_)
    if (begin_of(index) <= offset) name = s.name;
  return name;
}

void Transaction::show_slices() {
  for (const write::Piece &p : slice_pieces_) data_file_.counters_.bytes_written += p.payload.length;
  for (const auto &[index, s] : slices_) {
    const uint64_t at = snapshot_->file_offset(snapshot_->header.index.at(index));
    for (const Covered &c : by_pages(s.map)) show(index, at + c.begin, c.end - c.begin);
  }
}

// Slices are written over what lies in the new file by then. What is shared with the old file needs new blocks.
void Transaction::reckon_slices(write::Cost *cost, uint64_t block) const {
  const bool shares = cost->shared > 0;
  for (const PendingTensor *t : draft_->tensors())
    for (const size_t number : t->slices) {
      const SliceMap &map = slice_maps_[number];
      cost->written += map.bytes_gathered();
      if (!shares) continue;
      for (const Covered &c : by_pages(map))
        cost->room += round_up(c.end - c.begin, block) + block;  // wherever the tensor will begin
    }
}

Result<void> Transaction::write_slices(NewFile *made) const {
  if (slice_maps_.empty()) return {};
  const os::File &file = made->replacement->file();
  uint64_t total = 0;
  for (const PendingTensor *t : draft_->tensors())
    for (const size_t number : t->slices) total += slice_maps_[number].bytes();
  SliceReader reader(*this, total);
  const Index &index = made->snapshot->header.index;
  for (const PendingTensor *t : draft_->tensors())
    for (const size_t number : t->slices) {
      const uint64_t at = made->snapshot->file_offset(index.at(*index.find(t->name)));
      auto written = slice_maps_[number].each_stretch([&](const SliceMap::Stretch &stretch) -> Result<void> {
        const uint64_t n = stretch.end - stretch.begin;
        if (!stretch.gathered())
          return reader.each(stretch.first->second, [&](const std::byte *bytes, uint64_t length, uint64_t done) {
            return file.write(bytes, length, at + stretch.begin + done);
          });
        ST_TRY(file.read(reader.buffer(), n, at + stretch.begin));
        ST_TRY(reader.lay_over(stretch));
        return file.write(reader.buffer(), n, at + stretch.begin);
      });
      if (!written) return Failure(std::move(written.error()).about_tensor(t->name));
      made->built.written += slice_maps_[number].bytes_gathered();
    }
  return {};
}

}  // namespace st::store
