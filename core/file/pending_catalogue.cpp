#include "file/pending_catalogue.h"

#include <algorithm>

#include "format/header.h"

namespace st::store {
namespace {

Failure refuse(Status status, std::string_view name, std::string_view why) {
  return Failure(error(status, "tensor ", in_quotes(name), " ", why).about_tensor(name));
}

}  // namespace

Result<void> check_new_name(std::string_view name) {
  if (name == "__metadata__") return refuse_name_of_metadata();
  return check_utf8(name);
}

PendingCatalogue::PendingCatalogue(const Index &index, uint64_t hash_seed, std::string path)
    : path_(std::move(path)), by_name_(0, SeededHash(hash_seed)), by_key_(0, SeededHash(hash_seed)) {
  places_.reserve(index.size());
  by_name_.reserve(index.size());
  for (size_t i = 0; i < index.size(); ++i) {
    const TensorView t = index.at(i);
    by_name_.emplace(t.name, i);
    places_.push_back(PendingTensor{std::string(t.name), form_of(t), t.begin, {}});
  }
  for (size_t i = 0; i < index.metadata_size(); ++i) {
    const auto [key, value] = index.metadata_at(i);
    set_metadata(std::string(key), std::string(value));
  }
}

Result<size_t> PendingCatalogue::place_of(const std::string &name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return Failure(no_such_tensor(name, path_));
  return found->second;
}

const PendingTensor *PendingCatalogue::find(const std::string &name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &*places_[found->second];
}

Result<void> PendingCatalogue::apply(const Change &change) {
  switch (change.kind) {
    case Change::put: put(change); return {};
    case Change::update:
    case Change::update_slice: {
      ST_TRY(auto place, place_of(change.name));
      PendingTensor &t = *places_[place];
      const Form &f = change.form;
      ST_TRY(check_same_form(t.name, t.form.dtype, t.form.shape, t.form.nbytes, static_cast<uint32_t>(f.dtype), f.shape,
                             f.nbytes));
      if (change.kind == Change::update_slice) {
        t.slices.push_back(change.payload);
        return {};
      }
      t.payload = change.payload;
      t.slices.clear();
      return {};
    }
    case Change::remove: {
      ST_TRY(auto place, place_of(change.name));
      places_[place].reset();
      by_name_.erase(change.name);
      return {};
    }
    case Change::rename: {
      ST_TRY(auto place, place_of(change.name));
      if (change.name == change.to) return {};
      if (by_name_.count(change.to)) return Failure(named_already(change.to, path_));
      by_name_.erase(change.name);
      by_name_.emplace(change.to, place);
      places_[place]->name = change.to;
      return {};
    }
    case Change::set_metadata: set_metadata(change.name, change.to); return {};
    case Change::remove_metadata: {
      const auto found = by_key_.find(change.name);
      if (found == by_key_.end()) return Failure(no_such_key(change.name, path_));
      metadata_[found->second].reset();
      by_key_.erase(found);
      return {};
    }
    case Change::order: return reorder(change.names);
  }
  return fail(Status::internal, "a change of no kind");
}

// A tensor that is there keeps its place in the order; others come last.
void PendingCatalogue::put(const Change &change) {
  const auto found = by_name_.find(change.name);
  if (found != by_name_.end()) {
    PendingTensor &t = *places_[found->second];
    t.form = change.form;
    t.payload = change.payload;
    t.slices.clear();
    return;
  }
  by_name_.emplace(change.name, places_.size());
  places_.push_back(PendingTensor{change.name, change.form, 0, change.payload});
}

// A new key comes last.
void PendingCatalogue::set_metadata(const std::string &key, const std::string &value) {
  const auto [found, is_new] = by_key_.try_emplace(key, metadata_.size());
  if (is_new)
    metadata_.emplace_back(std::pair(key, value));
  else
    metadata_[found->second]->second = value;
}

std::vector<std::pair<std::string_view, std::string_view>> PendingCatalogue::metadata() const {
  std::vector<std::pair<std::string_view, std::string_view>> out;
  out.reserve(by_key_.size());
  for (const auto &pair : metadata_)
    if (pair) out.emplace_back(*pair);
  return out;
}

Result<void> PendingCatalogue::reorder(const std::vector<std::string> &names) {
  std::vector<size_t> places;
  std::vector<bool> taken(places_.size());
  for (const std::string &name : names) {
    ST_TRY(auto place, place_of(name));
    if (taken[place]) return refuse(Status::invalid_argument, name, "stands twice in the new order");
    taken[place] = true;
    places.push_back(place);
  }
  if (places.size() != by_name_.size())
    return fail(Status::invalid_argument, "the new order names ", places.size(), " of ", by_name_.size(), " tensors");
  std::vector<std::optional<PendingTensor>> ordered;
  ordered.reserve(places.size());
  for (const size_t place : places) ordered.push_back(std::move(places_[place]));
  places_ = std::move(ordered);
  for (size_t i = 0; i < places_.size(); ++i) by_name_[places_[i]->name] = i;
  return {};
}

std::vector<const PendingTensor *> PendingCatalogue::tensors() const {
  std::vector<const PendingTensor *> out;
  out.reserve(by_name_.size());
  for (const auto &place : places_)
    if (place) out.push_back(&*place);
  return out;
}

std::string spell(std::span<const uint64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += text(i ? ", " : "", shape[i]);
  return out + "]";
}

std::string_view spell_dtype(uint32_t dtype) {
  return is_dtype(dtype) ? dtype_name(static_cast<Dtype>(dtype)) : "of no dtype";
}

Error no_such_tensor(std::string_view name, std::string_view path) {
  return error(Status::not_found, "no tensor is named ", in_quotes(name), " in ", in_quotes(path),
               "; list the names to see what there is")
      .about_tensor(name);
}

Error no_such_key(std::string_view key, std::string_view path) {
  return error(Status::not_found, "the metadata of ", in_quotes(path), " has no key ", in_quotes(key),
               "; list the keys to see what there is");
}

Error named_already(std::string_view name, std::string_view path) {
  return error(Status::duplicate_name, "tensor ", in_quotes(name), " is in ", in_quotes(path),
               " already; delete it first, or give another name")
      .about_tensor(name);
}

Result<void> check_same_form(std::string_view name, Dtype dtype, std::span<const uint64_t> shape, uint64_t nbytes,
                             uint32_t new_dtype, std::span<const uint64_t> new_shape, uint64_t new_nbytes) {
  if (new_dtype != static_cast<uint32_t>(dtype))
    return refuse(Status::dtype_mismatch, name,
                  text("is ", dtype_name(dtype), " but the new value is ", spell_dtype(new_dtype),
                       "; an update keeps the dtype"));
  if (!std::equal(new_shape.begin(), new_shape.end(), shape.begin(), shape.end()))
    return refuse(
        Status::shape_mismatch, name,
        text("has shape ", spell(shape), " but the new value has ", spell(new_shape), "; an update keeps the shape"));
  if (new_nbytes != nbytes)
    return refuse(Status::nbytes_mismatch, name, text("has ", nbytes, " bytes but the new value has ", new_nbytes));
  return {};
}

}  // namespace st::store
