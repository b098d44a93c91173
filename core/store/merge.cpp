#include "store/merge.h"

#include "format/shard_index.h"
#include "store/copy_out.h"
#include "store/delta_chain.h"
#include "write/build.h"
#include "write/publish_plan.h"
#include "write/supplant.h"

namespace st::store {
namespace {

Result<write::PublishPlan> plan(const Snapshot &base, const Listing &listing, const write::SaveOptions &options,
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

// Planned as a publish of the base, so that as much as can be of its blocks is shared.
Result<void> build(os::Env &env, const Snapshot &base, std::span<const DeltaFile> layers, const Listing &listing,
                   const std::string &to, const write::SaveOptions &options, const Control &control) {
  auto target = write::find_destination(env, to);
  if (!target) return Failure(std::move(target.error()));
  auto made = write::Replacement::create(target->at, target->mode());
  if (!made) return Failure(std::move(made.error()));
  const os::File &file = (*made)->file();
  const uint64_t block = write::shareable_block(file);
  auto planned = plan(base, listing, options, block);
  if (!planned) return Failure(std::move(planned.error()));
  if (auto room = write::make_room_for(file, planned->size, planned->shared); !room) return room;
  std::vector<write::Segment> segments;
  segments.reserve(planned->segments.size());
  for (const write::PlannedSegment &s : planned->segments) {
    if (s.kept) {
      segments.push_back({s.to, s.length, &base.file, s.from, nullptr});
      continue;
    }
    const ListedTensor &t = listing.tensors[s.from];
    const Snapshot &layer = *layers[t.layer - 1].snapshot;
    segments.push_back({s.to, s.length, &layer.file, layer.file_offset(layer.header.index.at(t.index)), nullptr});
  }
  auto built = write::build(file, planned->header, segments, block, control);
  if (!built) return Failure(std::move(built.error()));
  return write::supplant(target->at, **made, options.lock_timeout_ms, control, options.log);
}

// Where the tensors of the result lie.
std::vector<Place> places_of(const Whole &base, std::span<const DeltaFile> layers, const Listing &listing) {
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

Result<void> merge(os::Env &env, const std::string &base, const std::vector<std::string> &deltas, const std::string &to,
                   const write::SaveOptions &options) {
  if (is_index_name(to))
    return fail(Status::invalid_argument, in_quotes(to),
                " is the name of an index, but deltas are merged into one file; give the path of a .safetensors file, "
                "and cut that into shards");
  OpenOptions open;
  open.map = read::MapMode::none;
  open.lock_timeout_ms = options.lock_timeout_ms;
  open.progress = options.progress;
  auto below = Collection::open(env, base, open);
  if (!below) return Failure(std::move(below.error()));
  auto whole = Whole::of(**below);
  if (!whole) return Failure(std::move(whole.error()));
  std::vector<DeltaFile> layers;
  for (const std::string &path : deltas) {
    auto delta = DeltaFile::open(env, path, open);
    if (!delta) return Failure(std::move(delta.error()));
    layers.push_back(std::move(*delta));
  }
  auto chained = chain(*whole, layers);
  if (!chained) return Failure(std::move(chained.error()));
  const Listing &listing = chained->listing;

  if (auto apart = whole->must_not_be(env, to); !apart) return apart;
  uint64_t total = 0, done = 0;
  for (const ListedTensor &t : listing.tensors) total += t.nbytes;
  for (const OldTensor &old : chained->old) total += whole->at(old.index).tensor().nbytes;
  for (const DeltaFile &layer : layers) {
    if (auto apart = Whole(*layer.file).must_not_be(env, to); !apart) return apart;
    total += layer.index().data_bytes();
  }
  const Control control(options.progress, nullptr);
  const auto tell = [&](uint64_t more) { return control.check(done += more, total); };
  if (auto begins = check_heads(*whole, chained->old); !begins) return begins;
  auto same = check_old(*whole, chained->old, [&](auto &, auto piece) { return tell(piece.size()); });
  if (!same) return same;
  for (const DeltaFile &layer : layers)
    if (auto bytes = layer.check_bytes(tell); !bytes) return Failure(std::move(bytes.error()));

  if (!(*below)->file()) {
    const write::NewMetadata metadata(listing.metadata.begin(), listing.metadata.end());
    auto target = write::find_destination(env, to);
    if (!target) return Failure(std::move(target.error()));
    return copy_out(std::move(*target), places_of(*whole, layers, listing), metadata, options, tell);
  }
  const Progress built_so_far = [&](uint64_t now, uint64_t) {
    return !options.progress || options.progress(std::min(done + now, total), total);
  };
  return build(env, *whole->files().front().snapshot, layers, listing, to, options, Control(built_so_far, nullptr));
}

}  // namespace st::store
