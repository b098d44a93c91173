#include "model/model_view.h"

#include <set>

#include "format/shard_index.h"
#include "os/random.h"

namespace st::store {

ModelView::ModelView(Catalogue of, std::string path, const os::Location *index, std::vector<Opened> files,
                     std::vector<MetadataPair> of_index)
    : catalogue_(std::move(of)),
      path_(std::move(path)),
      index_(index),
      files_(std::move(files)),
      of_index_(std::move(of_index)),
      metadata_(of_index_) {
  size_t n = 0;
  for (const Opened &f : files_) n += f.snapshot->header.index.size();
  places_.reserve(n);
  for (uint32_t number = 0; number < files_.size(); ++number) {
    const auto [file, snapshot] = files_[number];
    for (size_t i = 0; i < snapshot->header.index.size(); ++i)
      places_.push_back({places_.size(), number, file, snapshot, i});
  }
  if (files_.size() > 1) {
    by_name_ = SeededMap<std::string_view, size_t>(n, SeededHash(fresh_seed()));
    for (const Place &p : places_) by_name_.emplace(p.tensor().name, p.global);
  }
  if (files_.empty()) return;
  const Index &first = files_.front().snapshot->header.index;
  std::set<std::string_view> known;
  for (const MetadataPair &p : of_index_) known.insert(p.first);
  for (size_t i = 0; i < first.metadata_size(); ++i)
    if (const MetadataPair pair = first.metadata_at(i); !known.contains(pair.first)) metadata_.push_back(pair);
}

Result<ModelView> ModelView::of(const Model &model) {
  if (const DataFile *file = model.file()) return ModelView(*file);
  const Catalogue catalogue = model.catalogue();
  ST_TRY(auto places, catalogue.all());
  std::vector<Opened> files;
  for (const Place &p : places)
    if (p.number == files.size()) files.push_back({p.member, p.snapshot});
  std::vector<MetadataPair> of_index;
  for (size_t i = 0; i < catalogue.metadata_size(); ++i)
    if (const MetadataPair pair = catalogue.metadata_at(i); !is_total(pair.first)) of_index.push_back(pair);
  return ModelView(catalogue, model.index_path(), model.index_location(), std::move(files), std::move(of_index));
}

ModelView ModelView::as_in(std::span<const Snapshot *const> snapshots) const {
  std::vector<Opened> files = files_;
  for (size_t i = 0; i < files.size(); ++i) files[i].snapshot = snapshots[i];
  return ModelView(catalogue_, path_, index_, std::move(files), of_index_);
}

std::optional<size_t> ModelView::find(std::string_view name) const {
  if (files_.size() == 1) return files_.front().snapshot->header.index.find(name);
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

uint64_t ModelView::fresh_seed() const {
  return os::hash_seed(files_.empty() ? os::Env::posix() : files_.front().data_file->env());
}

uint64_t ModelView::data_bytes() const {
  uint64_t n = 0;
  for (const Opened &f : files_) n += f.snapshot->header.index.data_bytes();
  return n;
}

size_t ModelView::index_bytes() const {
  return catalogue_.index_bytes() + places_.capacity() * sizeof(Place) +
         by_name_.size() * (sizeof(*by_name_.begin()) + 2 * sizeof(void *)) + by_name_.bucket_count() * sizeof(void *);
}

TensorList ModelView::listing() const {
  TensorList listing;
  if (!files_.empty()) listing = listing_of(files_.front().snapshot->header.index);
  for (const Place &p : places().subspan(listing.tensors.size())) {
    const TensorView t = p.tensor();
    listing.tensors.push_back({t.name, t.dtype, t.shape, t.nbytes, 0, p.global});
  }
  listing.metadata = metadata_;
  return listing;
}

Result<void> ModelView::must_not_be(os::Env &env, const std::string &path) const {
  struct stat s, index;
  if (env.fstatat(AT_FDCWD, path.c_str(), &s, 0) < 0) return {};
  const auto refuse = [&](const std::string &read) {
    return fail(Status::invalid_argument, in_quotes(path), " is to be written, but is a file that is read for it (",
                in_quotes(read), "); give another path");
  };
  for (const Opened &f : files_)
    if (os::same_inode(s, f.snapshot->identity)) return refuse(f.data_file->place());
  if (index_ && index_->stat(&index) == 0 && os::same_inode(s, index)) return refuse(path_);
  return {};
}

}  // namespace st::store
