#include "file/writer.h"

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/joined_progress.h"
#include "file/pending_catalogue.h"
#include "newfile/build.h"
#include "newfile/data_offset.h"
#include "newfile/room.h"
#include "newfile/stream.h"
#include "newfile/units.h"
#include "os/descriptors.h"
#include "os/random.h"

namespace st::write {
namespace {

constexpr uint64_t gap = uint64_t{64} << 10;  // for the header, where tensors are not declared

Error duplicate(std::string_view name) {
  return error(Status::duplicate_name, "a tensor named ", in_quotes(name), " is given twice; names must be distinct")
      .about_tensor(name);
}

uint64_t alignment_of(const SaveOptions &options) {
  return options.alignment == 0 && options.layout == Layout::stock ? 8 : options.alignment;
}

Result<void> check(const SaveOptions &options, const NewMetadata &metadata) {
  ST_TRY(check_data_begin(alignment_of(options), options.reserve));
  std::vector<std::string_view> keys;
  for (const auto &[key, value] : metadata) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) return fail(Status::metadata, "the metadata key ", in_quotes(*twice), " is given twice");
  return {};
}

}  // namespace

Writer::Writer(os::Env &env, SaveOptions options)
    : env_(env), options_(std::move(options)), by_name_(0, SeededHash(os::hash_seed(env))) {}

Result<std::unique_ptr<Writer>> Writer::open(os::Env &env, const std::string &path, std::vector<NewTensor> declared,
                                             NewMetadata metadata, SaveOptions options) {
  ST_TRY(auto to, find_destination(env, path));
  return open(std::move(to), std::move(declared), std::move(metadata), std::move(options));
}

Result<std::unique_ptr<Writer>> Writer::plan(os::Env &env, std::vector<NewTensor> declared, NewMetadata metadata,
                                             SaveOptions options) {
  ST_TRY(check(options, metadata));
  std::unique_ptr<Writer> w(new Writer(env, std::move(options)));
  w->metadata_ = std::move(metadata);
  ST_TRY(w->declare(std::move(declared)));
  return w;
}

Result<std::unique_ptr<Writer>> Writer::open(Destination to, std::vector<NewTensor> declared, NewMetadata metadata,
                                             SaveOptions options, const Shares &shares) {
  ST_TRY(auto w, plan(to.at.env(), std::move(declared), std::move(metadata), std::move(options)));
  ST_TRY(w->made_, create_for(to, w->options_.mode));
  w->target_ = std::move(to.at);
  if (w->declared_ == 0) return w;
  uint64_t shared = 0;
  if (shares) {
    ST_TRY(shared, shares(*w, w->made_->file()));
  }
  ST_TRY(reserve_space_for(w->made_->file(), w->size(), shared));
  ST_TRY(w->write_header(std::move(w->header_)));
  return w;
}

Result<void> Writer::may_go_on() const {
  if (!made_in_.this_process())
    return fail(Status::forked, "this writer was opened by the parent process; open another one here");
  if (failed_) return fail(Status::txn_failed, "an earlier call of this writer failed; abort it and begin another");
  return {};
}

Result<void> Writer::declare(std::vector<NewTensor> declared) {
  if (options_.layout != Layout::keep)
    std::sort(declared.begin(), declared.end(), [](const NewTensor &a, const NewTensor &b) {
      return canonical_before(a.dtype, a.name, b.dtype, b.name);
    });
  else if (options_.align)
    align(&declared);
  declared_ = declared.size();
  for (NewTensor &t : declared) ST_TRY(append(std::move(t)));
  std::vector<NewTensor>().swap(declared);  // to have their memory for the header
  std::vector<const Slot *> order;
  order.reserve(declared_);
  for (const Slot &s : slots_) order.push_back(&s);
  ST_TRY(header_, header(order, &data_offset_));  // also checks what was declared
  header_end_ = header_.size();
  if (declared_ == 0) data_offset_ = data_offset_behind(std::max(gap, data_offset_), alignment_of(options_));
  return {};
}

// Else the end of hours of writing would tell.
Result<uint64_t> Writer::header_end_with(const NewTensor &tensor) const {
  ST_TRY(store::check_new_name(tensor.name));
  ST_TRY(const uint64_t n, header_bytes_of({tensor.name, tensor.dtype, tensor.shape, end_, tensor.nbytes}));
  const uint64_t comma = slots_.empty() && metadata_.empty() ? 0 : 1;
  const uint64_t end = header_end_ + comma + n;
  if (data_offset_behind(end + options_.reserve, alignment_of(options_)) <= length_bytes + max_header_bytes) return end;
  return Failure(error(Status::header_too_large, "with tensor ", in_quotes(tensor.name), " the header would have ",
                       end - length_bytes, " bytes, and with its padding more than the format's ", max_header_bytes,
                       "; the tensors before it can be finished")
                     .about_tensor(tensor.name));
}

Result<Writer::Slot *> Writer::append(NewTensor tensor) {
  if (tensor.nbytes > INT64_MAX - data_offset_ - end_)
    return Failure(error(Status::offsets, "tensor ", in_quotes(tensor.name), " would end beyond 2^63 bytes")
                       .about_tensor(tensor.name));
  const uint64_t n = tensor.nbytes;
  slots_.push_back({std::move(tensor), end_, 0});
  end_ += n;
  return &slots_.back();
}

Result<void> Writer::write(Slot *slot, const void *bytes, uint64_t n) {
  uint64_t done = 0;
  const Control control(options_.progress, nullptr);
  const uint64_t at = data_offset_ + slot->begin + slot->written;
  // How long the file becomes may not be known before, and a write beyond the limit may end the process.
  Result<void> put = n == 0 ? Result<void>() : made_->file().may_reach(at + n);
  if (put)
    put = write_stream(made_->file(), bytes, n, at, [&](uint64_t more) { return control.check(done += more, n); });
  slot->written += n;
  failed_ = !put;
  if (!put) return Failure(std::move(put.error()).about_tensor(slot->tensor.name));
  return {};
}

std::optional<size_t> Writer::find(std::string_view name) {
  while (by_name_.size() < slots_.size()) by_name_.emplace(slots_[by_name_.size()].tensor.name, by_name_.size());
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

Result<Writer::Slot *> Writer::declared_slot(std::string_view name) {
  if (const auto i = find(name)) return &slots_[*i];
  return Failure(error(Status::not_found, "no tensor named ", in_quotes(name),
                       " was declared; declare it, or give its dtype and shape with its bytes")
                     .about_tensor(name));
}

Result<std::vector<Writer::Run>> Writer::runs_of(std::span<const CopiedTensor> tensors) {
  std::vector<Run> runs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    ST_TRY(const auto found, declared_slot(tensors[i].name));
    const Range range{tensors[i].offset, data_offset_ + found->begin, found->tensor.nbytes};
    Range *last = runs.empty() ? nullptr : &runs.back().range;
    const bool follows = last && last->to + last->length == range.to && last->from + last->length == range.from;
    if (follows)
      last->length += range.length;
    else
      runs.push_back({range, 0});
    runs.back().end = i + 1;
  }
  return runs;
}

Result<void> Writer::copy(const os::File &from, std::span<const CopiedTensor> tensors,
                          const std::function<Result<void>(uint64_t done)> &tell) {
  ST_TRY(may_go_on());
  ST_TRY(const auto runs, runs_of(tensors));
  if (!block_) block_ = shareable_block(made_->file());
  size_t i = 0;
  failed_ = true;
  for (const Run &run : runs) {
    uint64_t done = 0;
    const auto note = [&](uint64_t more) { return done += more, tell(more); };
    auto moved =
        run.range.length == 0 ? Result<Transferred>() : transfer(from, made_->file(), run.range, *block_, note);
    for (; i < run.end; ++i) {
      Slot &slot = slots_[*find(tensors[i].name)];
      const uint64_t n = slot.tensor.nbytes;
      if (!moved && (done < n || i + 1 == run.end))
        return Failure(std::move(moved.error()).about_tensor(slot.tensor.name));
      done -= n;
      slot.written = n;
    }
  }
  failed_ = false;
  return {};
}

Result<void> Writer::add(std::string_view name, const void *bytes, uint64_t n) {
  ST_TRY(may_go_on());
  ST_TRY(auto found, declared_slot(name));
  Slot &slot = *found;
  if (n > slot.tensor.nbytes - slot.written)
    return Failure(error(Status::nbytes_mismatch, "tensor ", in_quotes(name), " has ", slot.tensor.nbytes,
                         " bytes, of which ", slot.written, " were written; ", n, " more are too many")
                       .about_tensor(name));
  return write(&slot, bytes, n);
}

Result<void> Writer::put(NewTensor tensor) {
  ST_TRY(may_go_on());
  const void *bytes = tensor.bytes;
  const uint64_t n = tensor.nbytes;
  if (const auto i = find(tensor.name)) {
    Slot &slot = slots_[*i];
    if (*i >= declared_ || slot.written > 0) return Failure(duplicate(tensor.name));
    if (slot.tensor.dtype != tensor.dtype || slot.tensor.shape != tensor.shape || slot.tensor.nbytes != n)
      return Failure(error(Status::shape_mismatch, "tensor ", in_quotes(tensor.name),
                           " was declared with another dtype, shape or size")
                         .about_tensor(tensor.name));
    return write(&slot, bytes, n);
  }
  auto nbytes = tensor_nbytes(tensor.dtype, tensor.shape);
  if (!nbytes) return Failure(std::move(nbytes.error()).about_tensor(tensor.name));
  if (*nbytes != n)
    return Failure(error(Status::nbytes_mismatch, "tensor ", in_quotes(tensor.name), " has ", n,
                         " bytes; its dtype and shape need ", *nbytes)
                       .about_tensor(tensor.name));
  if (arranged_)
    return Failure(error(Status::invalid_argument, "tensor ", in_quotes(tensor.name),
                         " comes too late: the file is made, and waits for its name; finish the writer again")
                       .about_tensor(tensor.name));
  ST_TRY(const uint64_t header_end, header_end_with(tensor));
  ST_TRY(auto slot, append(std::move(tensor)));
  header_end_ = header_end;
  return write(slot, bytes, n);
}

// What was to be written there tells which tensor it is about.
Failure Writer::failed_to_write(Error e) const {
  if (e.offset == no_offset) return Failure(std::move(e));
  const auto beyond = std::upper_bound(slots_.begin(), slots_.end(), e.offset,
                                       [&](uint64_t at, const Slot &s) { return at < data_offset_ + s.begin; });
  return Failure(std::move(e).about_tensor(std::prev(beyond)->tensor.name));
}

Result<void> Writer::put_declared() {
  const Control control(options_.progress, nullptr);
  uint64_t done = 0;
  WriteStream stream(made_->file(), data_offset_, [&](uint64_t more) { return control.check(done += more, end_); });
  failed_ = true;
  for (Slot &slot : slots_) {
    if (auto put = stream.write(slot.tensor.bytes, slot.tensor.nbytes); !put)
      return failed_to_write(std::move(put.error()));
    slot.written = slot.tensor.nbytes;
  }
  if (auto put = stream.flush(); !put) return failed_to_write(std::move(put.error()));
  failed_ = false;
  return {};
}

// The header for slots in that order, and where data then begins at the earliest.
Result<std::string> Writer::header(const std::vector<const Slot *> &order, uint64_t *data_offset) const {
  std::vector<HeaderTensor> tensors;
  tensors.reserve(order.size());
  uint64_t at = 0;
  for (const Slot *s : order) {
    tensors.push_back({s->tensor.name, s->tensor.dtype, s->tensor.shape, at, s->tensor.nbytes});
    at += s->tensor.nbytes;
  }
  std::vector<std::pair<std::string_view, std::string_view>> metadata(metadata_.begin(), metadata_.end());
  ST_TRY(auto spelled, serialize_header(tensors, metadata));
  *data_offset = data_offset_behind(spelled.size() + options_.reserve, alignment_of(options_));
  return spelled;
}

Result<void> Writer::write_header(std::string spelled) {
  ST_TRY(pad_header(&spelled, data_offset_));
  ST_TRY(made_->file().may_reach(spelled.size()));
  return made_->file().write(spelled.data(), spelled.size(), 0);
}

// The header, and every tensor where it says.
Result<void> Writer::arrange(const Control &control) {
  if (declared_ > 0 && slots_.size() == declared_) return {};
  std::vector<const Slot *> order;
  for (const Slot &s : slots_) order.push_back(&s);
  if (options_.layout != Layout::keep)
    std::sort(order.begin(), order.end(), [](const Slot *a, const Slot *b) {
      return canonical_before(a->tensor.dtype, a->tensor.name, b->tensor.dtype, b->tensor.name);
    });
  else if (options_.align)
    align(&order, [](const Slot *s) -> const NewTensor & { return s->tensor; });
  uint64_t least = 0;
  ST_TRY(auto spelled, header(order, &least));
  const bool in_order =
      std::is_sorted(order.begin(), order.end(), [](const Slot *a, const Slot *b) { return a->begin < b->begin; });
  if (slots_.empty()) data_offset_ = least;
  // A gap is no waste in a large file, and cheap to close in a small one.
  constexpr uint64_t small = uint64_t{8} << 20;
  const bool exact = options_.layout == Layout::stock || end_ <= small;
  const bool fits = exact ? least == data_offset_ : least <= data_offset_;
  if (in_order && fits) return write_header(std::move(spelled));

  ST_TRY(pad_header(&spelled, least));
  ST_TRY(auto target, destination_at(target_));
  ST_TRY(auto arranged, create_for(target, options_.mode, TemporaryFile::Stale::removed));
  std::vector<Segment> segments;
  uint64_t to = least;
  for (const Slot *s : order) {
    const uint64_t n = s->tensor.nbytes, from = data_offset_ + s->begin;
    if (!segments.empty() && segments.back().from + segments.back().length == from)
      segments.back().length += n;
    else
      segments.push_back({to, n, &made_->file(), from, nullptr});
    to += n;
  }
  const os::File &file = arranged->file();
  const uint64_t block = shareable_block(file);
  ST_TRY(reserve_space_for(file, to, expect_build(spelled, segments, block, room_of(file).block).shared));
  ST_TRY(build(file, spelled, segments, block, control));
  made_ = std::move(arranged);
  return {};
}

Result<void> Writer::finish() {
  ST_TRY(may_go_on());
  for (const Slot &s : slots_)
    if (s.written < s.tensor.nbytes)
      return Failure(error(Status::incomplete, "of tensor ", in_quotes(s.tensor.name), " only ", s.written, " of ",
                           s.tensor.nbytes, " bytes were written; write the rest, or give the file up")
                         .about_tensor(s.tensor.name));
  const Control control(options_.progress, nullptr);
  failed_ = true;
  auto done = arranged_ ? Result<void>() : arrange(control);
  arranged_ |= done.has_value();
  if (done) done = replace_file(target_, made_, options_.mode, options_.lock_timeout_ms, control, options_.log);
  if (!done) failed_ = done.error().status != Status::busy && !os::is_scarcity(done.error());
  return done;
}

Result<void> save(os::Env &env, const std::string &path, std::vector<NewTensor> tensors, NewMetadata metadata,
                  SaveOptions options) {
  uint64_t bytes = 0;
  for (const NewTensor &t : tensors) bytes += t.nbytes;
  JoinedProgress joined(std::move(options.progress), bytes);  // the file that is synced is longer, by its header
  joined.begin_part(bytes);
  options.progress = joined.of_part();
  ST_TRY(auto writer, Writer::open(env, path, std::move(tensors), std::move(metadata), std::move(options)));
  ST_TRY(writer->put_declared());
  return writer->finish();
}

}  // namespace st::write
