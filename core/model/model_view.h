// A checkpoint as it is at one moment, whole: every tensor with the file that it
// lies in, and the metadata that it has as one file. A file and shards look alike:
// a delta made for the one fits the other, if they hold the same. Holds the states
// that it shows.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "format/seeded_hash.h"
#include "format/tensor_list.h"
#include "model/model.h"

namespace st::store {

class ModelView {
 public:
  explicit ModelView(const DataFile &file) : ModelView(Catalogue(file), file.place(), nullptr, {}) {}
  // Opens all of its shards. Must not outlive the model, which is no overlay.
  static Result<ModelView> of(const Model &model);
  // As its files are in these snapshots, one for each.
  ModelView as_in(std::span<const Snapshot *const> snapshots) const;

  // In the order of the model: file after file, each by offset.
  size_t size() const { return places_.size(); }
  const Place &at(size_t i) const { return places_[i]; }
  std::span<const Place> places() const { return places_; }
  std::optional<size_t> find(std::string_view name) const;
  uint64_t data_bytes() const;
  std::span<const Opened> files() const { return files_; }
  size_t index_bytes() const;   // of memory
  uint64_t fresh_seed() const;  // of a table of names, as SeededHash wants it
  // The file's metadata. For shards the index's, but for its totals; then what else the first shard's header has.
  const std::vector<MetadataPair> &metadata() const { return metadata_; }
  const std::vector<MetadataPair> &of_index() const { return of_index_; }  // those of them that are the index's
  TensorList listing() const;                                              // as layer 0

  const std::string &path() const { return path_; }     // of the file, or of the index
  const os::Location *index() const { return index_; }  // null where there is none, or it is no file
  const Catalogue &catalogue() const { return catalogue_; }
  bool has_index() const { return catalogue_.several(); }
  // Status file_changed if the index was replaced since it was read.
  Result<void> check_unchanged() const {
    return has_index() ? catalogue_.several()->check_unchanged() : Result<void>();
  }
  // Status invalid_argument if `path`, which is to be written, leads to a file of it.
  Result<void> must_not_be(os::Env &env, const std::string &path) const;

 private:
  // The whole of `of`, all of whose files are opened.
  ModelView(const Catalogue &of, std::string path, const os::Location *index, std::vector<MetadataPair> of_index)
      : ModelView(of, std::move(path), index, of.opened(), std::move(of_index)) {}
  ModelView(Catalogue of, std::string path, const os::Location *index, std::vector<Opened> files,
            std::vector<MetadataPair> of_index);

  Catalogue catalogue_;
  std::string path_;
  const os::Location *index_;
  std::vector<Opened> files_;
  std::vector<Place> places_;
  SeededMap<std::string_view, size_t> by_name_;  // of several files
  std::vector<MetadataPair> of_index_, metadata_;
};

}  // namespace st::store
