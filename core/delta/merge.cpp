#include "delta/merge.h"

#include "base/interrupt.h"
#include "delta/delta_chain.h"
#include "delta/stepped.h"
#include "file/replace_file.h"
#include "model/copy_out.h"
#include "model/mode_of_copy.h"
#include "newfile/build.h"
#include "newfile/publish_plan.h"

namespace st::store {
namespace {

Result<write::PublishPlan> plan(const Snapshot &base, const TensorList &listing, const write::SaveOptions &options,
                                uint64_t block) {
  std::vector<write::PlannedTensor> tensors;
  tensors.reserve(listing.tensors.size());
  for (size_t i = 0; i < listing.tensors.size(); ++i) {
    const ListedTensor &t = listing.tensors[i];
    const bool kept = t.layer == 0;
    tensors.push_back({t.name, t.dtype, t.shape, t.nbytes, kept,
                       kept ? base.file_offset(base.header.index.at(t.index)) : uint64_t{i}});
  }
  const bool as_stock = options.layout == write::Layout::stock && options.alignment == 0;
  return write::plan_publish(base.header.data_offset(), std::move(tensors), listing.metadata,
                             {options.layout, as_stock ? 8 : options.alignment, options.reserve, block});
}

Result<std::shared_ptr<const os::File>> reach(const Snapshot &file) {
  ST_TRY(auto here, file.here());
  return here.held ? std::move(here.held) : std::shared_ptr<const os::File>(std::shared_ptr<void>(), &here.file);
}

using Tell = std::function<Result<void>(uint64_t more)>;

// Over what they lead on from, which lies in the new file by then.
Result<void> write_steps(const os::File &made, const write::PublishPlan &planned, const ModelView &base,
                         std::span<const DeltaFile> layers, const TensorList &listing, const Tell &tell) {
  const auto has_steps = [](const ListedTensor &t) { return !t.steps.empty(); };
  if (std::none_of(listing.tensors.begin(), listing.tensors.end(), has_steps)) return {};
  std::string json = planned.header.substr(length_bytes);
  const uint64_t n = json.size();
  json.resize(n + header_padding);
  ST_TRY(const auto header, parse_header(json.data(), n, planned.size, 0));
  StepRoom room;
  for (const ListedTensor &t : listing.tensors) {
    if (!has_steps(t)) continue;
    const uint64_t at = header.data_offset() + header.index.at(header.index.find(t.name).value()).begin;
    const auto write_block = [&](const SteppedBlock &block) -> Result<void> {
      const uint64_t begin = at + block.begin;
      for (const ByteRange &r : block.changed_pages(begin))
        ST_TRY(made.write(block.bytes.data() + r.begin, r.length, begin + r.begin));
      return tell(block.bytes.size());
    };
    ST_TRY(step_to_the_end(stepped_tensor(base, layers, t), room, write_block));
  }
  return {};
}

// Planned as a publish of the base, so that as much as can be of its blocks is shared.
Result<void> build(os::Env &env, const ModelView &whole, std::span<const DeltaFile> layers, const TensorList &listing,
                   const std::string &to, const write::SaveOptions &options, const Control &control, const Tell &tell,
                   const std::function<void()> &all_read) {
  const Snapshot &base = *whole.files().front().snapshot;
  ST_TRY(auto target, write::find_destination(env, to));
  ST_TRY(auto made, write::create_for(target, options.mode));
  const os::File &file = made->file();
  const uint64_t block = write::shareable_block(file);
  ST_TRY(auto planned, plan(base, listing, options, block));
  ST_TRY(write::reserve_space_for(file, planned.size, planned.shared));
  std::vector<write::Segment> segments;
  segments.reserve(planned.segments.size());
  for (const write::PlannedSegment &s : planned.segments) {
    if (s.kept) {
      segments.push_back({s.to, s.length, &base.file, s.from, nullptr});
      continue;
    }
    const ListedTensor &t = listing.tensors[s.from];
    const Snapshot &layer = *layers[t.layer - 1].snapshot;
    const uint64_t from = layer.file_offset(layer.header.index.at(t.index));
    segments.push_back({s.to, s.length, nullptr, from, nullptr, [&layer] { return reach(layer); }});
  }
  ST_TRY(write::build(file, planned.header, segments, block, control));
  ST_TRY(write_steps(file, planned, whole, layers, listing, tell));
  all_read();
  return write::replace_file(target.at, made, options.mode, options.lock_timeout_ms, control, options.log);
}

Result<mode_t> mode_of_merged(const ModelView &base, std::span<const DeltaFile> layers) {
  std::vector<ModelView> views;
  views.reserve(layers.size());
  std::vector<const ModelView *> all = {&base};
  for (const DeltaFile &layer : layers) all.push_back(&views.emplace_back(*layer.file));
  return mode_of_copy(all);
}

// Where the tensors of the result lie.
std::vector<Place> places_of(const ModelView &base, std::span<const DeltaFile> layers, const TensorList &listing) {
  std::vector<Place> places;
  places.reserve(listing.tensors.size());
  for (const ListedTensor &t : listing.tensors) {
    if (t.layer == 0) {
      places.push_back(base.at(t.index));
      continue;
    }
    const DeltaFile &layer = layers[t.layer - 1];
    places.push_back({t.index, 0, layer.file.get(), layer.snapshot.get(), t.index});
  }
  return places;
}

}  // namespace

Result<void> merge(os::Env &env, const Model &base, std::span<const DeltaFile> layers, const std::string &to,
                   write::SaveOptions options, const std::function<void()> &all_read) {
  ST_TRY(auto whole, ModelView::of(base));
  ST_TRY(options.mode, mode_of_merged(whole, layers));
  ST_TRY(auto chained, chain(whole, layers));
  const TensorList &listing = chained.listing;

  ST_TRY(whole.must_not_be(env, to));
  uint64_t total = 0, done = 0;
  for (const ListedTensor &t : listing.tensors) total += t.nbytes * (base.file() && !t.steps.empty() ? 2 : 1);
  const std::vector<OldTensor> to_hash = chained.old_without_steps();
  for (const OldTensor &old : to_hash) total += whole.at(old.index).tensor().nbytes;
  for (const DeltaFile &layer : layers) {
    ST_TRY(ModelView(*layer.file).must_not_be(env, to));
    total += layer.index().data_bytes();
  }
  const Control control(options.progress, nullptr);
  const auto tell = [&](uint64_t more) { return control.check(done = std::min(done + more, total), total); };
  const InterruptScope waits([&] { return tell(0); });
  ST_TRY(check_heads(whole, chained.old));
  ST_TRY(check_old(whole, to_hash, [&](auto &, auto piece) { return tell(piece.size()); }));
  for (const DeltaFile &layer : layers) ST_TRY(layer.check_bytes(tell));

  if (!base.file()) {
    const write::NewMetadata metadata(listing.metadata.begin(), listing.metadata.end());
    ST_TRY(auto target, write::find_destination(env, to));
    StepRoom room;
    const auto give_stepped = [&](write::Writer &writer, size_t i) -> Result<bool> {
      const ListedTensor &t = listing.tensors[i];
      if (t.steps.empty()) return false;
      const auto add = [&](const SteppedBlock &block) -> Result<void> {
        ST_TRY(writer.add(t.name, block.bytes.data(), block.bytes.size()));
        return tell(block.bytes.size());
      };
      ST_TRY(step_to_the_end(stepped_tensor(whole, layers, t), room, add));
      return true;
    };
    return copy_out(std::move(target), places_of(whole, layers, listing), metadata, options, tell, give_stepped,
                    all_read);
  }
  const uint64_t checked = done;
  const Progress built_so_far = [&](uint64_t now, uint64_t) {
    done = std::max(done, std::min(checked + now, total));  // the last of it comes after the steps
    return !options.progress || options.progress(done, total);
  };
  return build(env, whole, layers, listing, to, options, Control(built_so_far, nullptr), tell, all_read);
}

}  // namespace st::store
