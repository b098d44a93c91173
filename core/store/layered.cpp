#include "store/layered.h"

#include <algorithm>
#include <numeric>

#include "store/delta_chain.h"

namespace st::store {
namespace {

// A base of the same names and forms but other bytes is told by how some of its
// tensors begin: so many are looked at, of those that the deltas replace.
constexpr size_t samples = 8;

// What the layers make together. A name is looked up from the top: the first
// layer that has it decides, whether that tensor is shown or was deleted above.
class LayeredCatalogue final : public Merged {
 public:
  // The listing's strings that are not the snapshots' are those of `deltas`.
  LayeredCatalogue(const std::vector<Checkpoint *> &layers, const Snapshot &base, std::vector<DeltaFile> deltas,
                   const Listing &listing);

  size_t size() const override { return tensors_.size(); }
  Result<Place> at(size_t i) const override { return place(i); }
  Result<std::optional<Place>> find(std::string_view name) const override;
  size_t metadata_size() const override { return metadata_.size(); }
  MetadataPair metadata_at(size_t i) const override { return metadata_[i]; }
  std::optional<std::string_view> metadata_find(std::string_view key) const override;
  size_t index_bytes() const;

 private:
  static constexpr uint32_t hidden = UINT32_MAX;
  struct Layer {
    const Checkpoint *file;
    const Snapshot *snapshot;
    std::vector<uint32_t> shown_as;  // of each of its tensors, the number here, or hidden
  };
  struct Source {
    uint32_t layer, index;
  };
  Place place(size_t i) const {
    const Source s = tensors_[i];
    return {i, s.layer, layers_[s.layer].file, layers_[s.layer].snapshot, s.index};
  }

  const std::vector<DeltaFile> deltas_;
  std::vector<Layer> layers_;
  std::vector<Source> tensors_;
  std::vector<MetadataPair> metadata_;
  std::vector<uint32_t> by_key_;  // numbers of metadata_, sorted by key
};

LayeredCatalogue::LayeredCatalogue(const std::vector<Checkpoint *> &layers, const Snapshot &base,
                                   std::vector<DeltaFile> deltas, const Listing &listing)
    : deltas_(std::move(deltas)), metadata_(listing.metadata), by_key_(metadata_.size()) {
  for (size_t n = 0; n < layers.size(); ++n) {
    const Snapshot *snapshot = n == 0 ? &base : deltas_[n - 1].snapshot;
    layers_.push_back({layers[n], snapshot, std::vector<uint32_t>(snapshot->header.index.size(), hidden)});
  }
  tensors_.reserve(listing.tensors.size());
  for (const ListedTensor &t : listing.tensors) {
    layers_[t.layer].shown_as[t.index] = static_cast<uint32_t>(tensors_.size());
    tensors_.push_back({t.layer, static_cast<uint32_t>(t.index)});
  }
  std::iota(by_key_.begin(), by_key_.end(), 0u);
  std::sort(by_key_.begin(), by_key_.end(),
            [this](uint32_t a, uint32_t b) { return metadata_[a].first < metadata_[b].first; });
}

Result<std::optional<Place>> LayeredCatalogue::find(std::string_view name) const {
  for (size_t n = layers_.size(); n-- > 0;) {
    const auto found = layers_[n].snapshot->header.index.find(name);
    if (!found) continue;
    const uint32_t i = layers_[n].shown_as[*found];
    return i == hidden ? std::nullopt : std::optional(place(i));
  }
  return std::nullopt;
}

std::optional<std::string_view> LayeredCatalogue::metadata_find(std::string_view key) const {
  const auto found = std::lower_bound(by_key_.begin(), by_key_.end(), key,
                                      [this](uint32_t i, std::string_view k) { return metadata_[i].first < k; });
  if (found == by_key_.end() || metadata_[*found].first != key) return std::nullopt;
  return metadata_[*found].second;
}

size_t LayeredCatalogue::index_bytes() const {
  size_t bytes = tensors_.size() * sizeof(Source) + metadata_.size() * (sizeof(MetadataPair) + sizeof(uint32_t));
  for (const Layer &layer : layers_) bytes += layer.shown_as.size() * sizeof(uint32_t);
  return bytes;
}

std::vector<OldTensor> spread(const std::vector<OldTensor> &all) {
  if (all.size() <= samples) return all;
  std::vector<OldTensor> some;
  some.reserve(samples);
  for (size_t i = 0; i < samples; ++i) some.push_back(all[i * (all.size() - 1) / (samples - 1)]);
  return some;
}

}  // namespace

Result<std::unique_ptr<Collection>> Layered::open(os::Env &env, const std::string &path, OpenOptions options) {
  if (options.writable)
    return fail(Status::invalid_argument, quoted(path),
                " was asked for with deltas and for writing, but an overlay is for reading only; patch the base, or "
                "merge into a new file");
  std::unique_ptr<Layered> layered(new Layered(env, path, std::move(options)));
  std::vector<std::string> paths{path};
  paths.insert(paths.end(), layered->options().deltas.begin(), layered->options().deltas.end());
  for (const std::string &each : paths) {
    auto opened = layered->add_member(each)->open(env, layered->member_options());
    if (!opened) return Failure(std::move(opened.error()));
    layered->layers_.push_back(*opened);
  }
  if (auto stacked = layered->stack(); !stacked) return Failure(std::move(stacked.error()));
  return layered;
}

Result<void> Layered::stack() {
  std::vector<DeltaFile> deltas;
  for (size_t n = 1; n < layers_.size(); ++n) {
    auto delta = DeltaFile::of(*layers_[n]);
    if (!delta) return Failure(std::move(delta.error()));
    deltas.push_back(std::move(*delta));
  }
  const Whole whole(*layers_[0]);
  auto chained = chain(whole, deltas);
  if (!chained) return Failure(std::move(chained.error()));
  if (auto fits = check_heads(whole, spread(chained->old)); !fits) return fits;
  show(std::make_unique<LayeredCatalogue>(layers_, *whole.files()[0].snapshot, std::move(deltas), chained->listing));
  return {};
}

Result<std::unique_ptr<Collection>> Layered::reopen() const {
  auto opened = open(env(), path_, options());
  if (!opened) return opened;
  const auto &again = static_cast<const Layered &>(**opened);
  for (size_t n = 0; n < layers_.size(); ++n)
    if (!os::same_inode(layers_[n]->snapshot().identity, again.layers_[n]->snapshot().identity))
      return fail(Status::file_changed, quoted(layers_[n]->path()),
                  " now names another file; open it anew by its path");
  return opened;
}

Result<void> Layered::refresh() {
  for (Checkpoint *layer : layers_)
    if (auto refreshed = layer->refresh(); !refreshed) return refreshed;
  return stack();
}

Result<std::unique_ptr<AnyTransaction>> Layered::begin(TransactionOptions) {
  return fail(Status::read_only, "an overlay of deltas on ", quoted(path_),
              " is for reading only; patch the base, or merge into a new file");
}

size_t Layered::index_bytes() const {
  return static_cast<const LayeredCatalogue &>(shown()).index_bytes();
}

}  // namespace st::store
