#include "delta/overlay.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "base/hash.h"
#include "base/interrupt.h"
#include "base/url.h"
#include "delta/delta_chain.h"
#include "delta/stepped_file.h"
#include "model/held_still.h"
#include "os/remote_source.h"

namespace st::store {
namespace {

// A base of the same names and forms but other bytes is told by how some of its
// tensors begin: so many are looked at, of those that the deltas replace.
constexpr size_t samples = 8;

// When a file was changed last, its bytes and the file itself: anybody may put the first of these back, and that is a
// change of the file. 0: a change from now on may leave it these times. This machine's clock has gone on after a second
// or two; other hosts have clocks of their own, and some filesystems keep no times. What lies in no folder is never
// changed.
uint64_t time_of(const Opened &file) {
  const os::Location &at = file.data_file->location();
  if (!at) return UINT64_MAX;
  struct stat s;
  if (!os::tells_times(file.snapshot->filesystem) || at.stat(&s) < 0 || !os::same_inode(s, file.snapshot->identity))
    return 0;
  if (!os::was_changed_before(s, at.env().unix_time())) return 0;
  const auto bytes = static_cast<uint64_t>(s.st_mtim.tv_sec), all = static_cast<uint64_t>(s.st_ctim.tv_sec);
  const uint64_t parts[] = {bytes, static_cast<uint64_t>(s.st_mtim.tv_nsec), all,
                            static_cast<uint64_t>(s.st_ctim.tv_nsec)};
  return std::max<uint64_t>(hash64(parts, sizeof parts), 1);
}

std::vector<uint64_t> times_of(std::span<const Opened> files) {
  std::vector<uint64_t> times(files.size());
  std::transform(files.begin(), files.end(), times.begin(), time_of);
  return times;
}

}  // namespace

// What the layers make together. A name is looked up from the top: the first
// layer that has it decides, whether that tensor is shown or was deleted above.
// Tensors that steps lead to are the top.
class OverlayCatalogue final : public Merged {
 public:
  // The listing's strings that are not the snapshots' are those of `deltas`. `times`: of the base's files and of the
  // deltas, before their bytes were looked at.
  OverlayCatalogue(ModelView base, std::span<const std::unique_ptr<DataFile>> files, std::vector<DeltaFile> deltas,
                   std::shared_ptr<const SteppedFile> stepped, const TensorList &listing,
                   const std::vector<uint64_t> &times);

  size_t size() const override { return tensors_.size(); }
  Result<Place> at(size_t i) const override { return place(i); }
  Result<std::optional<Place>> find(std::string_view name) const override;
  size_t metadata_size() const override { return metadata_.size(); }
  MetadataPair metadata_at(size_t i) const override { return metadata_[i]; }
  std::optional<std::string_view> metadata_find(std::string_view key) const override;
  std::string shown_name() const override {
    const std::string &path = base_.path();
    return text(path.empty() ? files_.front().data_file->shown_name() : in_quotes(path), " with its deltas");
  }
  // Those of the base, then the deltas. A tensor in memory counts as the delta's whose steps made it last.
  size_t members() const override { return files_.size(); }
  std::string_view member_path(size_t i) const override { return files_[i].data_file->place(); }
  Result<Opened> member(size_t i) const override { return files_[i]; }
  std::vector<Opened> opened() const override { return files_; }
  size_t index_bytes() const override;

  // Is it of these files, and the metadata of the base?
  bool is_of(const ModelView &base, std::span<const Opened> files) const;
  // May this file, which has that time, have other bytes than when it was looked at?
  bool may_have_changed(const Snapshot &file, uint64_t time) const;
  // The files had these times, and then the bytes that they are to have.
  void note_times(const std::vector<uint64_t> &times) const;
  const std::shared_ptr<const SteppedFile> &stepped() const { return stepped_; }

 private:
  static constexpr uint32_t hidden = UINT32_MAX;
  struct Source {
    uint32_t layer, index;
  };
  Place place(size_t i) const;
  std::optional<Place> shown(size_t layer, size_t index) const {
    const uint32_t i = shown_as_[layer][index];
    return i == hidden ? std::nullopt : std::optional(place(i));
  }

  const ModelView base_;
  const std::vector<DeltaFile> deltas_;
  const std::shared_ptr<const SteppedFile> stepped_;  // the top layer, if there is one
  std::vector<Opened> files_;                         // of the base, and the deltas
  mutable std::vector<std::atomic<uint64_t>> times_;  // of these
  std::vector<std::vector<uint32_t>> shown_as_;       // of each tensor of each layer the number here, or hidden
  std::vector<Source> tensors_;
  std::vector<MetadataPair> metadata_;
  std::vector<uint32_t> by_key_;  // numbers of metadata_, sorted by key
};

OverlayCatalogue::OverlayCatalogue(ModelView base, std::span<const std::unique_ptr<DataFile>> files,
                                   std::vector<DeltaFile> deltas, std::shared_ptr<const SteppedFile> stepped,
                                   const TensorList &listing, const std::vector<uint64_t> &times)
    : base_(std::move(base)),
      deltas_(std::move(deltas)),
      stepped_(std::move(stepped)),
      files_(base_.files().begin(), base_.files().end()),
      times_(times.size()),
      metadata_(listing.metadata),
      by_key_(metadata_.size()) {
  shown_as_.emplace_back(base_.size(), hidden);
  for (size_t n = 0; n < deltas_.size(); ++n) {
    files_.push_back({files[n].get(), deltas_[n].snapshot.get()});
    shown_as_.emplace_back(deltas_[n].index().size(), hidden);
  }
  note_times(times);
  if (stepped_) shown_as_.emplace_back(stepped_->index().size(), hidden);
  tensors_.reserve(listing.tensors.size());
  for (const ListedTensor &t : listing.tensors) {
    shown_as_[t.layer][t.index] = static_cast<uint32_t>(tensors_.size());
    tensors_.push_back({t.layer, static_cast<uint32_t>(t.index)});
  }
  std::iota(by_key_.begin(), by_key_.end(), 0u);
  std::sort(by_key_.begin(), by_key_.end(),
            [this](uint32_t a, uint32_t b) { return metadata_[a].first < metadata_[b].first; });
}

bool OverlayCatalogue::is_of(const ModelView &base, std::span<const Opened> files) const {
  const auto same = [](const Opened &a, const Opened &b) { return a.snapshot == b.snapshot; };
  return std::ranges::equal(files_, files, same) && base_.metadata() == base.metadata();
}

bool OverlayCatalogue::may_have_changed(const Snapshot &file, uint64_t time) const {
  const auto known = std::ranges::find(files_, &file, &Opened::snapshot);
  return time == 0 || known == files_.end() || times_[static_cast<size_t>(known - files_.begin())] != time;
}

void OverlayCatalogue::note_times(const std::vector<uint64_t> &times) const {
  for (size_t i = 0; i < times.size(); ++i) times_[i] = times[i];
}

Place OverlayCatalogue::place(size_t i) const {
  const Source s = tensors_[i];
  if (s.layer == 0) {
    Place p = base_.at(s.index);
    p.global = i;
    return p;
  }
  const bool in_memory = s.layer > deltas_.size();
  const uint32_t layer = in_memory ? stepped_->last_layer(s.index) : s.layer;
  const size_t number = base_.files().size() + layer - 1;
  if (in_memory) return {i, static_cast<uint32_t>(number), &stepped_->file(), &stepped_->snapshot(), s.index};
  return {i, static_cast<uint32_t>(number), files_[number].data_file, files_[number].snapshot, s.index};
}

Result<std::optional<Place>> OverlayCatalogue::find(std::string_view name) const {
  if (const auto found = stepped_ ? stepped_->index().find(name) : std::nullopt)
    return shown(deltas_.size() + 1, *found);
  for (size_t n = deltas_.size(); n > 0; --n)
    if (const auto found = deltas_[n - 1].index().find(name)) return shown(n, *found);
  if (const auto found = base_.find(name)) return shown(0, *found);
  return std::nullopt;
}

std::optional<std::string_view> OverlayCatalogue::metadata_find(std::string_view key) const {
  const auto found = std::lower_bound(by_key_.begin(), by_key_.end(), key,
                                      [this](uint32_t i, std::string_view k) { return metadata_[i].first < k; });
  if (found == by_key_.end() || metadata_[*found].first != key) return std::nullopt;
  return metadata_[*found].second;
}

size_t OverlayCatalogue::index_bytes() const {
  size_t bytes = base_.index_bytes() + tensors_.size() * sizeof(Source) +
                 metadata_.size() * (sizeof(MetadataPair) + sizeof(uint32_t));
  for (const auto &layer : shown_as_) bytes += layer.size() * sizeof(uint32_t);
  return bytes;
}

namespace {

std::vector<OldTensor> spread(const std::vector<OldTensor> &all) {
  if (all.size() <= samples) return all;
  std::vector<OldTensor> some;
  some.reserve(samples);
  for (size_t i = 0; i < samples; ++i) some.push_back(all[i * (all.size() - 1) / (samples - 1)]);
  return some;
}

// They are opened one by one, and their index may be replaced meanwhile: file_changed. Answers true.
Result<bool> open_shards(const Model &base) {
  if (base.file()) return true;
  ST_TRY(const auto places, base.catalogue().all());
  return true;
}

std::string from_any_folder(os::Env &env, const std::string &path) {
  return os::is_url(path) ? path : os::absolute(env, path).value_or(path);
}

std::vector<std::string> from_any_folder(os::Env &env, const std::vector<std::string> &paths) {
  std::vector<std::string> out;
  out.reserve(paths.size());
  for (const std::string &path : paths) out.push_back(from_any_folder(env, path));
  return out;
}

}  // namespace

Overlay::Overlay(os::Env &env, const std::string &path, OpenOptions options, OpenLayers open_layers)
    : MultiFileOf(env, std::move(options)),
      path_(from_any_folder(env, path)),
      deltas_(from_any_folder(env, this->options().deltas)),
      open_layers_(open_layers) {}

// Its catalogues hold what is in the layers.
Overlay::~Overlay() {
  MultiFileOf::close();
}

void Overlay::close() noexcept {
  MultiFileOf::close();
  layers_.base->close();
  for (const auto &delta : layers_.deltas) delta->close();
}

Result<std::unique_ptr<Model>> Overlay::open(os::Env &env, const std::string &path, OpenOptions options,
                                             OpenLayers open_layers) {
  if (options.writable)
    return fail(Status::invalid_argument, in_quotes(without_secrets(path)),
                " was asked for with deltas and for writing, but an overlay is for reading only; patch the base, or "
                "merge into a new file");
  std::unique_ptr<Overlay> overlay(new Overlay(env, path, std::move(options), open_layers));
  ST_TRY(HeldStill().repeat(path, [&]() -> Result<bool> {
    ST_TRY(overlay->layers_, open_layers(env, path, overlay->member_options()));
    return open_shards(*overlay->layers_.base);
  }));
  const Control control = overlay->control_of({});
  JoinedProgress joined(control.progress(), 0);
  ST_TRY(overlay->stack(control, joined));
  return overlay;
}

// Steps are taken anew only where what they lead from, or the steps themselves, lie in other files than before. In the
// same files the bytes may be others: those that may be are read, and compared by their hashes.
Result<bool> Overlay::stack(const Control &call, JoinedProgress &joined) {
  const Control control = call.with(joined.of_part());
  uint64_t done = 0, total = 0;
  const auto tell = [&](uint64_t more) { return control.check(done += more, total); };
  const InterruptScope waits([&] { return tell(0); });
  const Look look = begin_look();
  const OverlayCatalogue *const shown = look.shown.get();
  ST_TRY(auto base, ModelView::of(*layers_.base));
  std::vector<Opened> files(base.files().begin(), base.files().end());
  std::vector<DeltaFile> deltas;
  for (const auto &file : layers_.deltas) {
    ST_TRY(auto delta, DeltaFile::of(*file));
    files.push_back({file.get(), delta.snapshot.get()});
    deltas.push_back(std::move(delta));
  }
  const std::vector<uint64_t> times = times_of(files);
  const auto may_have_changed = [&](const Snapshot &file) {
    const auto at = std::ranges::find(files, &file, &Opened::snapshot);
    return shown->may_have_changed(file, times[static_cast<size_t>(at - files.begin())]);
  };
  const bool is_shown = shown && shown->is_of(base, files);
  if (is_shown && std::ranges::none_of(files, [&](const Opened &f) { return may_have_changed(*f.snapshot); }))
    return hold().get() == shown;
  ST_TRY(auto chained, chain(base, deltas));
  ST_TRY(check_heads(base, spread(chained.old)));
  for (const ListedTensor &t : chained.listing.tensors) total += t.steps.empty() ? 0 : t.nbytes;
  joined.go_on_to(total, 0);
  joined.begin_part(total);
  const auto above = static_cast<uint32_t>(deltas.size() + 1);
  std::shared_ptr<const SteppedFile> stepped = shown ? shown->stepped() : nullptr;
  if (stepped && stepped->is_of(base, deltas, chained.listing)) {
    ST_TRY(SteppedFile::check(base, deltas, chained.listing, may_have_changed, tell));
    stepped->put_into(&chained.listing, above);
  } else {
    ST_TRY(stepped, SteppedFile::make(env(), base, deltas, above, &chained.listing, options().map, tell));
  }
  if (is_shown) {
    shown->note_times(times);
    return hold().get() == shown;
  }
  return show_after(look, std::make_unique<OverlayCatalogue>(std::move(base), layers_.deltas, std::move(deltas),
                                                             std::move(stepped), chained.listing, times));
}

Result<std::unique_ptr<Model>> Overlay::reopen(const Catalogue &state, Again as) const {
  const std::vector<Opened> mine = state.opened();
  for (const Opened &layer : mine)
    if (layer.data_file->path().empty()) return cannot_reopen(layer.data_file->shown_name());
  OpenOptions again = options_of(options(), as);
  again.deltas = deltas_;
  ST_TRY(auto opened, open(env(), path_, std::move(again), open_layers_));
  const Catalogue of_opened = opened->catalogue();
  const std::vector<Opened> its = of_opened.opened();
  const auto same = [](const Opened &a, const Opened &b) {
    return os::same_inode(a.snapshot->identity, b.snapshot->identity);
  };
  const auto [gone, come] = std::mismatch(mine.begin(), mine.end(), its.begin(), its.end(), same);
  if (gone == mine.end() && come == its.end()) return opened;
  return fail(Status::file_changed, in_quotes(without_secrets(gone == mine.end() ? path_ : gone->data_file->path())),
              " now names another file; open it anew by its path");
}

Result<void> Overlay::refresh() {
  const Control control = control_of({});
  ST_TRY(HeldStill().repeat(path_, [&]() -> Result<bool> {
    ST_TRY(layers_.base->refresh());
    return open_shards(*layers_.base);
  }));
  for (const auto &delta : layers_.deltas) ST_TRY(delta->refresh());
  JoinedProgress joined(control.progress(), 0);
  for (const uint64_t begun = begin_look().number;;) {
    ST_TRY(const auto shown, stack(control, joined));
    if (shown || shows_since(begun)) return {};
  }
}

Result<std::unique_ptr<AnyTransaction>> Overlay::begin(TransactionOptions) {
  return fail(Status::read_only, "an overlay of deltas on ", in_quotes(without_secrets(path_)),
              " is for reading only; patch the base, or merge into a new file");
}

}  // namespace st::store
