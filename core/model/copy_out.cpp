#include "model/copy_out.h"

#include "newfile/room.h"

namespace st::store {

namespace {

std::vector<write::NewTensor> declarations(std::span<const Place> places) {
  std::vector<write::NewTensor> declared;
  declared.reserve(places.size());
  for (const Place &p : places) declared.push_back(write::declaration(p.tensor()));
  return declared;
}

// Tensors in turn that lie in one file.
class OneFile {
 public:
  using Act = std::function<Result<void>(const os::File &file, std::span<const write::CopiedTensor> tensors)>;
  explicit OneFile(Act act) : act_(std::move(act)) {}
  Result<void> add(const Place &p) {
    if (p.snapshot != of_) ST_TRY(end());
    of_ = p.snapshot;
    const TensorView t = p.tensor();
    tensors_.push_back({t.name, of_->file_offset(t)});
    return {};
  }
  // To be called at the end.
  Result<void> end() {
    if (tensors_.empty()) return {};
    ST_TRY(auto here, of_->here());
    ST_TRY(act_(here.file, tensors_));
    tensors_.clear();
    return {};
  }

 private:
  const Act act_;
  const Snapshot *of_ = nullptr;
  std::vector<write::CopiedTensor> tensors_;
};

// How many bytes of `planned` can share blocks, in the filesystem of `beside`.
Result<uint64_t> shared_by(std::span<const Place> places, write::Writer &planned, const os::File &beside) {
  uint64_t shared = 0;
  const uint64_t block = write::shareable_block(beside);
  if (block == 0) return shared;
  OneFile look([&](const os::File &file, std::span<const write::CopiedTensor> tensors) -> Result<void> {
    if (!write::may_share(file, beside)) return {};
    ST_TRY(const auto runs, planned.runs_of(tensors));
    for (const auto &run : runs) shared += write::expect_transfer(run.range, block).shared;
    return {};
  });
  for (const Place &p : places) ST_TRY(look.add(p));
  ST_TRY(look.end());
  return shared;
}

}  // namespace

Result<uint64_t> room_of_copy(std::span<const Place> places, const write::NewMetadata &metadata,
                              const write::SaveOptions &options, const os::File &beside) {
  ST_TRY(auto plan, write::Writer::plan(beside.env(), declarations(places), metadata, options));
  ST_TRY(const uint64_t shared, shared_by(places, *plan, beside));
  return write::room_of_new_file(plan->size(), shared, write::room_of(beside).block);
}

Result<void> copy_out(write::Destination to, std::span<const Place> places, const write::NewMetadata &metadata,
                      write::SaveOptions options, const std::function<Result<void>(uint64_t more)> &tell,
                      const GiveBytes &give, const std::function<void()> &all_read) {
  options.progress = [&tell](uint64_t, uint64_t) { return tell(0).has_value(); };
  write::Writer::Shares shares;  // what `give` writes shares none, and which tensors it writes is not known yet
  if (!give) shares = [&](write::Writer &planned, const os::File &made) { return shared_by(places, planned, made); };
  ST_TRY(auto writer, write::Writer::open(std::move(to), declarations(places), metadata, std::move(options), shares));
  OneFile copy([&](const os::File &file, std::span<const write::CopiedTensor> tensors) {
    return writer->copy(file, tensors, tell);
  });
  for (size_t i = 0; i < places.size(); ++i) {
    if (give) {
      ST_TRY(auto given, give(*writer, i));
      if (given) continue;
    }
    ST_TRY(copy.add(places[i]));
  }
  ST_TRY(copy.end());
  if (all_read) all_read();
  return writer->finish();
}

}  // namespace st::store
