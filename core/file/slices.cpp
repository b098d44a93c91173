#include "file/slices.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>

#include "base/check.h"
#include "base/round.h"
#include "file/staging.h"
#include "os/given_memory.h"

namespace st::store {
namespace {

// With more ranges than this, a transaction locks the bytes between the nearest of them too: a lock is a system call,
// and the kernel walks a list of them.
constexpr size_t most_slice_locks = 1024;  // and one for each whole tensor
constexpr size_t most_locks = 4096;        // in all
constexpr uint64_t shortest_gap =
    4096;  // what shorter gaps do not keep apart, where bytes are asked for by the page or block

Result<void> check_values(std::string_view name, const Form &form, const Selection &selection, const NewBytes &value) {
  std::string why;
  Status status = Status::ok;
  if (value.dtype != static_cast<uint32_t>(form.dtype)) {
    status = Status::dtype_mismatch;
    why = text("the tensor is ", dtype_name(form.dtype), " but the new values are ", spell_dtype(value.dtype));
  } else if (!std::ranges::equal(value.shape, selection.shape())) {
    status = Status::shape_mismatch;
    why = text("it has shape ", spell(selection.shape()), " but the new values have ", spell(value.shape));
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
  return cover(strips, shortest_gap);
}

Result<void> check_slice_payload(const Staged &staged, size_t number) {
  const write::Payload &payload = staged.slice_payloads[number];
  const auto go_on = [&](uint64_t done) { return staged.control.check(done, payload.length); };
  ST_TRY(auto same, staged.journal.journal->holds(payload, go_on));
  if (same) return {};
  return fail(Status::journal, "new bytes of a slice were damaged in ",
              in_quotes(staged.journal.journal->file().path()), "; nothing was changed");
}

// The bytes of strips, from payloads that were found to be what was staged.
class SliceReader {
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
  SliceReader(const Staged &of, uint64_t total)
      : of_(of),
        bytes_(*of.journal.journal),
        checked_(of.slice_payloads.size()),
        pace_(of.control, total),
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
    if (!checked_[strip.payload]) ST_TRY(check_slice_payload(of_, strip.payload));
    checked_[strip.payload] = true;
    ST_TRY(pace_.went_on(n));
    return bytes_.copy(of_.slice_payloads[strip.payload], strip.skip + done, n, to);
  }

  const Staged &of_;
  StagedBytes bytes_;
  std::vector<bool> checked_;
  Pace pace_;
  const std::unique_ptr<std::byte[]> buffer_;
};

// What is staged of a tensor in parts. If all of it was staged before, that lies below them.
Result<SliceMap *> map_of(Staged &staged, size_t index) {
  if (const auto found = staged.slices.find(index); found != staged.slices.end()) return &found->second.map;
  StagedSlices fresh{std::string(staged.snapshot->header.index.at(index).name), {}};
  if (const auto whole = staged.by_index.find(index); whole != staged.by_index.end()) {
    StagedTensor &s = staged.tensors[whole->second];
    if (!s.piece.staged()) ST_TRY(stage_borrowed(staged, &s));
    fresh.map.put({0, s.piece.payload.length, staged.slice_payloads.size(), 0});
    staged.slice_payloads.push_back(s.piece.payload);
    std::swap(s, staged.tensors.back());
    staged.by_index[s.index] = whole->second;
    staged.by_index.erase(index);
    staged.tensors.pop_back();
  }
  return &staged.slices.emplace(index, std::move(fresh)).first->second.map;
}

// Bytes that follow each other in the tensor and among the values.
struct Run {
  uint64_t begin, skip, length;  // in the tensor; among the values
};

// By where they begin; those that begin together stay as they were. Digit by digit, from the lowest: a third of the
// time that comparing takes, as there may be millions.
void sort_by_begin(std::vector<Run> *runs) {
  constexpr unsigned digit_bits = 9;
  uint64_t varying = 0;  // bits that are not the same in all
  for (const Run &run : *runs) varying |= run.begin ^ runs->front().begin;
  std::vector<Run> sorted(runs->size());
  for (unsigned shift = 0; varying != 0; shift += digit_bits, varying >>= digit_bits) {
    std::array<size_t, 1 << digit_bits> places{};
    const auto digit = [&](const Run &run) { return run.begin >> shift & (places.size() - 1); };
    for (const Run &run : *runs) ++places[digit(run)];
    std::exclusive_scan(places.begin(), places.end(), places.begin(), size_t{0});
    for (const Run &run : *runs) sorted[places[digit(run)]++] = run;
    runs->swap(sorted);
  }
}

// As they lie in the tensor, and of those for the same bytes the last given. None if they overlap in part.
std::vector<Run> in_order(std::vector<Run> runs) {
  sort_by_begin(&runs);
  size_t kept = 0;
  for (const Run &run : runs) {
    const bool same = kept > 0 && runs[kept - 1].begin == run.begin && runs[kept - 1].length == run.length;
    if (!same && kept > 0 && run.begin < runs[kept - 1].begin + runs[kept - 1].length) return {};
    kept += same ? 0 : 1;
    runs[kept - 1] = run;
  }
  runs.resize(kept);
  return runs;
}

// Short runs that do not ascend, in order. None where they lie otherwise, or overlap in part: then the values stay in
// the order in which they were given.
template <class EachRun>
std::vector<Run> runs_to_sort(EachRun each_run) {
  constexpr uint64_t short_run = uint64_t{16} << 10;  // a longer one costs no more where it lies
  uint64_t count = 0, sum = 0, end = 0;
  bool ascend = true;
  each_run([&](uint64_t begin, uint64_t, uint64_t length) {
    ascend = ascend && begin >= end;
    end = begin + length;
    sum += length;
    ++count;
  });
  if (ascend || sum / count >= short_run) return {};
  std::vector<Run> runs;
  runs.reserve(count);
  each_run([&](uint64_t begin, uint64_t skip, uint64_t length) { runs.push_back({begin, skip, length}); });
  return in_order(std::move(runs));
}

// A chunk after the other is gathered, and is a payload.
Result<void> stage_sorted(Staged &staged, const std::vector<Run> &runs, std::span<const std::byte> bytes,
                          SliceMap *map) {
  constexpr uint64_t chunk = write::write_chunk_bytes;
  os::Env &env = staged.journal.journal->file().env();
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(std::min<uint64_t>(chunk, bytes.size()));
  // Memory that is gone is an error here; of a short run alone nobody would ask.
  for (uint64_t at = 0; at < bytes.size(); at += chunk)
    ST_TRY(os::copy_given(env, bytes.data() + at, std::min<uint64_t>(chunk, bytes.size() - at), buffer.get()));
  uint64_t total = 0, done = 0, held = 0;
  for (const Run &run : runs) total += run.length;
  const auto append = [&]() -> Result<void> {
    const auto part = staged.control.with(!staged.control.progress() ? Progress() : [&](uint64_t more, uint64_t) {
      return staged.control.progress()(done + more, total);
    });
    ST_TRY(auto payload, staged.journal.journal->append(buffer.get(), held, part));
    staged.slice_payloads.push_back(payload);
    done += held;
    held = 0;
    return {};
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    const Run &run = runs[i];
    // They lie anywhere among the values, and each would wait for the memory.
    __builtin_prefetch(bytes.data() + runs[std::min(i + 16, runs.size() - 1)].skip);
    for (uint64_t of = 0; of < run.length;) {
      const uint64_t n = std::min(run.length - of, chunk - held);
      ST_TRY(os::copy_given(env, bytes.data() + run.skip + of, n, buffer.get() + held));
      map->put({run.begin + of, n, staged.slice_payloads.size(), held});
      of += n;
      held += n;
      if (held == chunk) ST_TRY(append());
    }
  }
  return held == 0 ? Result<void>() : append();
}

// `each_run` calls what it is given with the place of each run in the tensor, and in the bytes, and its length.
template <class EachRun>
Result<void> stage_runs(Staged &staged, std::string_view name, const Form &form, std::span<const std::byte> bytes,
                        EachRun each_run) {
  ST_TRY(staged.need_journal());
  SliceMap map;
  SliceMap *to = &map;
  if (!staged.draft) {
    ST_TRY(to, map_of(staged, *staged.snapshot->header.index.find(name)));
  }
  if (const std::vector<Run> runs = runs_to_sort(each_run); !runs.empty()) {
    ST_TRY(stage_sorted(staged, runs, bytes, to));
  } else {
    const size_t number = staged.slice_payloads.size();
    ST_TRY(auto payload, staged.journal.journal->append(bytes.data(), bytes.size(), staged.control));
    staged.slice_payloads.push_back(payload);
    each_run([&](uint64_t begin, uint64_t skip, uint64_t length) { to->put({begin, length, number, skip}); });
  }
  if (!staged.draft) return {};
  Change change{Change::update_slice, std::string(name), {}, form, staged.slice_maps.size()};
  staged.slice_maps.push_back(std::move(map));
  ST_TRY(staged.draft->apply(change));
  staged.changes.push_back(std::move(change));
  return {};
}

template <class EachRun>
Result<void> stage(Staged &staged, std::string_view name, const Form &form, std::span<const std::byte> bytes,
                   EachRun each_run) {
  if (bytes.empty()) return {};
  if (staged.options.publish) ST_TRY(make_publish(staged));
  staged.failed = true;
  staged.begin_call();
  auto taken = stage_runs(staged, name, form, bytes, each_run);
  if (!taken) return Failure(std::move(taken.error()).about_tensor_at_least(name));
  staged.failed = false;
  return {};
}

}  // namespace

Result<void> stage_slice(Staged &staged, std::string_view name, const TensorPart &part, const NewBytes &value) {
  ST_TRY(staged.may_go_on());
  const auto form = form_of(staged, std::string(name));
  if (!form) return Failure(no_such_tensor(name, staged.file.path()));
  auto selection = Selection::make(form->dtype, form->shape, part);
  if (!selection) return Failure(naming_tensor(name, std::move(selection.error())));
  ST_TRY(check_values(name, *form, *selection, value));
  const std::span bytes(static_cast<const std::byte *>(value.bytes), value.nbytes);
  return stage(staged, name, *form, bytes, [&](auto take) { selection->each_run(take); });
}

Result<void> stage_ranges(Staged &staged, std::string_view name, std::span<const ByteRange> ranges,
                          std::span<const std::byte> bytes) {
  ST_TRY(staged.may_go_on());
  const auto form = form_of(staged, std::string(name));
  if (!form) return Failure(no_such_tensor(name, staged.file.path()));
  return stage(staged, name, *form, bytes, [&](auto take) {
    uint64_t skip = 0;
    for (const ByteRange &r : ranges) {
      ST_ASSERT(r.begin <= form->nbytes && r.length <= form->nbytes - r.begin);
      take(r.begin, skip, r.length);
      skip += r.length;
    }
    ST_ASSERT(skip == bytes.size());
  });
}

Result<void> restage_slices(Staged &staged, write::Journal &gone) {
  for (write::Payload &p : staged.slice_payloads) {
    ST_TRY(p, staged.journal.journal->take_over(gone, p, staged.control));
  }
  return {};
}

Result<void> draft_slices(const Staged &staged, PendingCatalogue *draft, std::vector<Change> *changes,
                          std::vector<SliceMap> *maps) {
  for (const auto &[index, s] : staged.slices) {
    const TensorView t = staged.snapshot->header.index.at(index);
    Change change{Change::update_slice, s.name, {}, form_of(t), maps->size()};
    ST_TRY(draft->apply(change));
    maps->push_back(s.map);
    changes->push_back(std::move(change));
  }
  return {};
}

// Pieces of what is staged by slices. Under the locks, as bytes between short strips are the file's own. A strip that
// is no whole payload gets a hash of its own.
Result<void> assemble_slices(Staged &staged, const os::File &data) {
  if (staged.slices.empty()) return {};
  write::Journal &journal = *staged.journal.journal;
  ST_TRY(journal.flush());
  uint64_t total = 0;
  for (const auto &[index, s] : staged.slices) total += s.map.bytes();
  SliceReader reader(staged, total);
  for (const auto &[index, s] : staged.slices) {
    const uint64_t at = staged.place_of(index).begin;
    ST_TRY(s.map.each_stretch([&](const SliceMap::Stretch &stretch) -> Result<void> {
      const Strip &first = stretch.first->second;
      write::Payload payload = staged.slice_payloads[first.payload];
      const uint64_t n = stretch.end - stretch.begin;
      if (stretch.gathered()) {
        ST_TRY(data.read(reader.buffer(), n, at + stretch.begin));
        ST_TRY(reader.lay_over(stretch));
        ST_TRY(payload, journal.append(reader.buffer(), n, staged.control));
      } else if (n != payload.length) {
        Hasher hasher;
        ST_TRY(reader.each(first, [&](const std::byte *bytes, uint64_t length, uint64_t) -> Result<void> {
          hasher.add(bytes, length);
          return {};
        }));
        payload = {payload.offset + first.skip, n, hasher.digest()};
      }
      staged.slice_pieces.push_back({at + stretch.begin, payload});
      return {};
    }));
  }
  return {};
}

std::vector<write::Piece> slice_pieces(const Staged &staged, write::JournalPlan *journal) {
  if (!staged.slice_pieces.empty()) return staged.slice_pieces;
  std::vector<write::Piece> pieces;
  for (const auto &[index, s] : staged.slices) {
    const uint64_t at = staged.place_of(index).begin;
    static_cast<void>(s.map.each_stretch([&](const SliceMap::Stretch &stretch) -> Result<void> {
      const uint64_t n = stretch.end - stretch.begin;
      if (stretch.gathered() && journal) journal->append(n);
      pieces.push_back({at + stretch.begin, {write::header_bytes, n, 0}});  // staged by then, wherever
      return {};
    }));
  }
  return pieces;
}

std::vector<Covered> bytes_to_lock(const Staged &staged) {
  std::vector<write::Piece> pieces = slice_pieces(staged, nullptr);
  for (const StagedTensor &s : staged.tensors) pieces.push_back(s.piece);
  for (const StagedRemake &r : staged.remakes) {
    const ByteRange tensor = staged.place_of(r.index);
    pieces.push_back({tensor.begin, {0, tensor.length, 0}});
  }
  sort_by_offset(&pieces);
  std::vector<Covered> ranges;
  ranges.reserve(pieces.size());
  for (const write::Piece &p : pieces) ranges.push_back({p.offset, p.offset + p.payload.length});
  const size_t most = staged.slices.empty() ? most_locks : staged.tensors.size() + most_slice_locks;
  return cover(ranges, 0, std::min(most, most_locks));
}

std::string_view name_in(const Staged &staged, const Covered &bytes) {
  std::string_view name;
  uint64_t first = UINT64_MAX;
  const auto take = [&](std::string_view of, uint64_t begin, uint64_t length) {
    if (begin >= first || begin >= bytes.end || bytes.begin >= begin + length) return;
    name = of;
    first = begin;
  };
  for (const StagedTensor &t : staged.tensors) take(t.name, t.piece.offset, t.piece.payload.length);
  const auto take_place = [&](std::string_view of, size_t index) {
    const ByteRange tensor = staged.place_of(index);
    take(of, tensor.begin, tensor.length);
  };
  for (const StagedRemake &r : staged.remakes) take_place(r.name, r.index);
  for (const auto &[index, s] : staged.slices) take_place(s.name, index);
  const Index &index = staged.snapshot->header.index;
  for (size_t i = 0; i < index.size() && first == UINT64_MAX; ++i) take_place(index.at(i).name, i);
  return name;
}

void show_slices(Staged &staged) {
  for (const write::Piece &p : staged.slice_pieces) staged.file.counters().bytes_written += p.payload.length;
  for (const auto &[index, s] : staged.slices) {
    const uint64_t at = staged.place_of(index).begin;
    for (const Covered &c : by_pages(s.map)) staged.show(index, at + c.begin, c.end - c.begin);
  }
}

// Slices are written over what lies in the new file by then. What is shared with the old file needs new blocks.
void reckon_slices(const Staged &staged, write::Cost *cost, uint64_t block) {
  uint64_t fresh = 0;
  for (const PendingTensor *t : staged.draft->tensors())
    for (const size_t number : t->slices) {
      const SliceMap &map = staged.slice_maps[number];
      cost->written += map.bytes_gathered();
      if (cost->shared == 0) continue;
      for (const Covered &c : by_pages(map))
        fresh += round_up(c.end - c.begin, block) + block;  // wherever the tensor will begin
    }
  cost->room += std::min(fresh, cost->shared);
}

Result<void> write_slices(const Staged &staged, const os::File &file, const Snapshot &made, write::Built *built) {
  if (staged.slice_maps.empty()) return {};
  uint64_t total = 0;
  for (const PendingTensor *t : staged.draft->tensors())
    for (const size_t number : t->slices) total += staged.slice_maps[number].bytes();
  SliceReader reader(staged, total);
  const Index &index = made.header.index;
  for (const PendingTensor *t : staged.draft->tensors())
    for (const size_t number : t->slices) {
      const uint64_t at = made.file_offset(index.at(*index.find(t->name)));
      auto written = staged.slice_maps[number].each_stretch([&](const SliceMap::Stretch &stretch) -> Result<void> {
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
      built->written += staged.slice_maps[number].bytes_gathered();
    }
  return {};
}

}  // namespace st::store
