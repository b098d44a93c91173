// A catalogue being changed: the tensors and metadata that a file will have once a
// transaction is published, in their order there. Also where the bytes of each come
// from. Pure: knows no file.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/index.h"
#include "format/seeded_hash.h"

namespace st::store {

// Statuses invalid_argument and header_utf8 if no tensor may be given that name.
Result<void> check_new_name(std::string_view name);

struct Form {
  Dtype dtype;
  std::vector<uint64_t> shape;
  uint64_t nbytes;
  bool operator==(const Form &) const = default;
};
inline Form form_of(const TensorView &t) {
  return {t.dtype, {t.shape.begin(), t.shape.end()}, t.nbytes};
}

// One step of a transaction. Applied to the catalogue that it was made for, and
// again to that of a file which has taken its place.
struct Change {
  enum Kind { update, update_slice, put, remove, rename, set_metadata, remove_metadata, order } kind;
  std::string name;                     // or a metadata key
  std::string to;                       // a new name, or a metadata value
  Form form = {};                       // update, update_slice, put: of the whole tensor
  size_t payload = 0;                   // of a slice: the number of its map
  std::vector<std::string> names = {};  // order
};

struct PendingTensor {
  std::string name;
  Form form;
  uint64_t begin = 0;               // of the old file's data, if there is no payload
  std::optional<size_t> payload;    // number of the transaction's payload
  std::vector<size_t> slices = {};  // numbers of the maps that go over it, the first first
};

class PendingCatalogue {
 public:
  // `hash_seed` must be unpredictable to the author of the names: see os/random.h.
  // `path`: of the file, for sentences.
  PendingCatalogue(const Index &index, uint64_t hash_seed, std::string path);

  // Nothing has changed if it fails: statuses not_found, duplicate_name, those
  // of a mismatch; invalid_argument for an order that is none of these tensors.
  Result<void> apply(const Change &change);
  const PendingTensor *find(const std::string &name) const;

  // In the order of the file; metadata in the order of the header.
  std::vector<const PendingTensor *> tensors() const;
  std::vector<std::pair<std::string_view, std::string_view>> metadata() const;

 private:
  Result<size_t> place_of(const std::string &name) const;
  void put(const Change &change);
  void set_metadata(const std::string &key, const std::string &value);
  Result<void> reorder(const std::vector<std::string> &names);

  const std::string path_;
  std::vector<std::optional<PendingTensor>> places_;  // none: removed
  SeededMap<std::string, size_t> by_name_;
  std::vector<std::optional<std::pair<std::string, std::string>>> metadata_;  // none: removed
  SeededMap<std::string, size_t> by_key_;
};

// For sentences: "[2, 3]"; a dtype of the caller's, which may be none.
std::string spell(std::span<const uint64_t> shape);
std::string_view spell_dtype(uint32_t dtype);
// Status not_found.
Error no_such_tensor(std::string_view name, std::string_view path);
Error no_such_key(std::string_view key, std::string_view path);
// Status duplicate_name.
Error named_already(std::string_view name, std::string_view path);
// Does a value have the form of the tensor that it will update? If not: status
// dtype_mismatch, shape_mismatch or nbytes_mismatch, with a sentence.
Result<void> check_same_form(std::string_view name, Dtype dtype, std::span<const uint64_t> shape, uint64_t nbytes,
                             uint32_t new_dtype, std::span<const uint64_t> new_shape, uint64_t new_nbytes);

}  // namespace st::store
