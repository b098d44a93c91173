#include "store/merge.h"

#include <cerrno>

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

}  // namespace

Result<void> merge(os::Env &env, const std::string &base, const std::vector<std::string> &deltas, const std::string &to,
                   const write::SaveOptions &options) {
  OpenOptions open;
  open.map = read::MapMode::none;
  open.lock_timeout_ms = options.lock_timeout_ms;
  auto below = Checkpoint::open(env, base, open);
  if (!below) return Failure(std::move(below.error()));
  const Snapshot &bottom = (*below)->snapshot();
  std::vector<DeltaFile> layers;
  for (const std::string &path : deltas) {
    auto delta = DeltaFile::open(env, path, open);
    if (!delta) return Failure(std::move(delta.error()));
    layers.push_back(std::move(*delta));
  }
  const Whole whole(**below);
  auto chained = chain(whole, layers);
  if (!chained) return Failure(std::move(chained.error()));
  const Listing &listing = chained->listing;

  if (auto apart = whole.must_not_be(env, to); !apart) return apart;
  uint64_t total = 0, done = 0;
  for (const ListedTensor &t : listing.tensors) total += t.nbytes;
  for (const OldTensor &old : chained->old) total += bottom.header.index.at(old.index).nbytes;
  for (const DeltaFile &layer : layers) {
    if (auto apart = Whole(*layer.file).must_not_be(env, to); !apart) return apart;
    total += layer.index().data_bytes();
  }
  const Control control(options.progress, nullptr);
  const auto tell = [&](uint64_t more) { return control.check(done += more, total); };
  if (auto begins = check_heads(whole, chained->old); !begins) return begins;
  auto same = check_old(whole, chained->old, [&](auto &, auto piece) { return tell(piece.size()); });
  if (!same) return same;
  for (const DeltaFile &layer : layers)
    if (auto whole = layer.check_bytes(tell); !whole) return Failure(std::move(whole.error()));

  auto target = write::resolve_target(env, to);
  if (!target) return Failure(std::move(target.error()));
  struct stat old;
  const bool exists = env.fstatat(AT_FDCWD, target->c_str(), &old, 0) == 0;
  if (exists && !S_ISREG(old.st_mode))
    return fail(Status::not_regular, quoted(to), " is no plain file; give the path of a .safetensors file");
  auto made = write::Replacement::create(env, *target, exists ? 0600 : 0666);
  if (!made) return Failure(std::move(made.error()));
  const os::File &file = (*made)->file();
  const uint64_t block = write::shareable_block(file);
  auto planned = plan(bottom, listing, options, block);
  if (!planned) return Failure(std::move(planned.error()));
  if (auto room = write::make_room_for(file, planned->size, planned->fresh()); !room) return room;
  std::vector<write::Segment> segments;
  segments.reserve(planned->segments.size());
  for (const write::PlannedSegment &s : planned->segments) {
    if (s.kept) {
      segments.push_back({s.to, s.length, &bottom.file, s.from, nullptr});
      continue;
    }
    const ListedTensor &t = listing.tensors[s.from];
    const Snapshot &layer = *layers[t.layer - 1].snapshot;
    segments.push_back({s.to, s.length, &layer.file, layer.file_offset(layer.header.index.at(t.index)), nullptr});
  }
  const Progress built_so_far = [&](uint64_t now, uint64_t) {
    return !options.progress || options.progress(std::min(done + now, total), total);
  };
  auto built = write::build(file, planned->header, segments, block, Control(built_so_far, nullptr));
  if (!built) return Failure(std::move(built.error()));
  return write::supplant(env, *target, **made, options.lock_timeout_ms, options.log);
}

}  // namespace st::store
