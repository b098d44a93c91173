#include "store/draft.h"

#include <algorithm>

namespace st::store {
namespace {

bool is_filler(std::string_view name) {
  return name.starts_with(filler_prefix);
}

Failure refuse(Status status, std::string_view name, std::string_view why) {
  return Failure(error(status, "tensor ", in_quotes(name), " ", why).about_tensor(name));
}

}  // namespace

Result<void> check_new_name(std::string_view name) {
  if (name != "__metadata__") return {};
  return fail(Status::invalid_argument,
              "no tensor may be named \"__metadata__\": that is where the format keeps metadata");
}

Draft::Draft(const Index &index, bool fillers) : fillers_(fillers) {
  places_.reserve(index.size());
  by_name_.reserve(index.size());
  for (size_t i = 0; i < index.size(); ++i) {
    const TensorView t = index.at(i);
    by_name_.emplace(t.name, i);
    places_.push_back(
        DraftTensor{std::string(t.name), {t.dtype, {t.shape.begin(), t.shape.end()}, t.nbytes}, t.begin, {}});
  }
  for (size_t i = 0; i < index.metadata_size(); ++i) metadata_.emplace_back(index.metadata_at(i));
}

Result<size_t> Draft::place_of(const std::string &name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return refuse(Status::not_found, name, "is not in the file, or no longer");
  return found->second;
}

const DraftTensor *Draft::find(const std::string &name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &*places_[found->second];
}

Result<void> Draft::apply(const Change &change) {
  switch (change.kind) {
    case Change::put: put(change); return {};
    case Change::update: {
      auto place = place_of(change.name);
      if (!place) return Failure(std::move(place.error()));
      DraftTensor &t = *places_[*place];
      const Form &f = change.form;
      if (auto same = check_same_form(t.name, t.form.dtype, t.form.shape, t.form.nbytes, static_cast<uint32_t>(f.dtype),
                                      f.shape, f.nbytes);
          !same)
        return same;
      t.payload = change.payload;
      return {};
    }
    case Change::remove: {
      auto place = place_of(change.name);
      if (!place) return Failure(std::move(place.error()));
      remove(*place);
      return {};
    }
    case Change::rename: {
      auto place = place_of(change.name);
      if (!place) return Failure(std::move(place.error()));
      if (change.name == change.to) return {};
      if (by_name_.count(change.to)) return refuse(Status::duplicate_name, change.to, "is in the file already");
      by_name_.erase(change.name);
      by_name_.emplace(change.to, *place);
      places_[*place]->name = change.to;
      return {};
    }
    case Change::set_metadata:
    case Change::remove_metadata: {
      const auto found =
          std::find_if(metadata_.begin(), metadata_.end(), [&](const auto &pair) { return pair.first == change.name; });
      if (change.kind == Change::remove_metadata) {
        if (found == metadata_.end())
          return fail(Status::not_found, "the metadata has no key ", in_quotes(change.name));
        metadata_.erase(found);
      } else if (found != metadata_.end()) {
        found->second = change.to;
      } else {
        metadata_.emplace_back(change.name, change.to);
      }
      return {};
    }
    case Change::order: return reorder(change.names);
  }
  return fail(Status::internal, "a change of no kind");
}

// A tensor that is there keeps its place in the order; others come last, or
// into the place of a filler.
void Draft::put(const Change &change) {
  const auto found = by_name_.find(change.name);
  if (found != by_name_.end()) {
    DraftTensor &t = *places_[found->second];
    if (!fillers_ || t.form.nbytes == change.form.nbytes || t.payload) {
      t.form = change.form;
      t.payload = change.payload;
      return;
    }
    remove(found->second);
  }
  if (fillers_ && use_filler(change)) return;
  by_name_.emplace(change.name, places_.size());
  places_.push_back(DraftTensor{change.name, change.form, 0, change.payload});
}

void Draft::remove(size_t place) {
  const DraftTensor old = std::move(*places_[place]);
  by_name_.erase(old.name);
  places_[place].reset();
  // A payload has no bytes in the file that could be kept.
  if (fillers_ && !old.payload && old.form.nbytes > 0 && !is_filler(old.name))
    insert_filler(place, old.begin, old.form.nbytes);
}

// Bytes of the old file that stay where they are, at a place that is empty.
void Draft::insert_filler(size_t place, uint64_t begin, uint64_t nbytes) {
  std::string name;
  for (size_t n = 0;; ++n)
    if (name = text(filler_prefix, n); !by_name_.count(name)) break;
  by_name_.emplace(name, place);
  places_[place] = DraftTensor{std::move(name), {Dtype::U8, {nbytes}, nbytes}, begin, {}};
}

// The smallest that is large enough; what is left of it stays a filler.
bool Draft::use_filler(const Change &change) {
  const uint64_t n = change.form.nbytes;
  if (n == 0) return false;
  size_t best = places_.size();
  for (size_t i = 0; i < places_.size(); ++i) {
    const auto &p = places_[i];
    if (!p || p->payload || !is_filler(p->name) || p->form.nbytes < n) continue;
    if (best == places_.size() || p->form.nbytes < places_[best]->form.nbytes) best = i;
  }
  if (best == places_.size()) return false;
  const DraftTensor filler = std::move(*places_[best]);
  by_name_.erase(filler.name);
  by_name_.emplace(change.name, best);
  places_[best] = DraftTensor{change.name, change.form, 0, change.payload};
  if (filler.form.nbytes > n) {
    places_.insert(places_.begin() + static_cast<ptrdiff_t>(best) + 1, std::nullopt);
    renumber(best + 2);
    insert_filler(best + 1, filler.begin + n, filler.form.nbytes - n);
  }
  return true;
}

void Draft::renumber(size_t from) {
  for (size_t i = from; i < places_.size(); ++i)
    if (places_[i]) by_name_[places_[i]->name] = i;
}

Result<void> Draft::reorder(const std::vector<std::string> &names) {
  std::vector<size_t> places;
  std::vector<bool> taken(places_.size());
  for (const std::string &name : names) {
    auto place = place_of(name);
    if (!place) return Failure(std::move(place.error()));
    if (taken[*place]) return refuse(Status::invalid_argument, name, "stands twice in the new order");
    taken[*place] = true;
    places.push_back(*place);
  }
  if (places.size() != by_name_.size())
    return fail(Status::invalid_argument, "the new order names ", places.size(), " of ", by_name_.size(), " tensors");
  std::vector<std::optional<DraftTensor>> ordered;
  ordered.reserve(places.size());
  for (const size_t place : places) ordered.push_back(std::move(places_[place]));
  places_ = std::move(ordered);
  renumber(0);
  return {};
}

void Draft::drop_fillers() {
  for (auto &place : places_) {
    if (!place || !is_filler(place->name)) continue;
    by_name_.erase(place->name);
    place.reset();
  }
}

std::vector<const DraftTensor *> Draft::tensors() const {
  std::vector<const DraftTensor *> out;
  out.reserve(by_name_.size());
  for (const auto &place : places_)
    if (place) out.push_back(&*place);
  return out;
}

Result<void> check_same_form(std::string_view name, Dtype dtype, std::span<const uint64_t> shape, uint64_t nbytes,
                             uint32_t new_dtype, std::span<const uint64_t> new_shape, uint64_t new_nbytes) {
  if (new_dtype != static_cast<uint32_t>(dtype))
    return refuse(Status::dtype_mismatch, name,
                  text("is ", dtype_name(dtype), " but the new value is ",
                       is_dtype(new_dtype) ? dtype_name(static_cast<Dtype>(new_dtype)) : "of no dtype",
                       "; an update keeps the dtype"));
  if (!std::equal(new_shape.begin(), new_shape.end(), shape.begin(), shape.end())) {
    auto list = [](std::span<const uint64_t> dims) {
      std::string out = "[";
      for (size_t i = 0; i < dims.size(); ++i) out += text(i ? ", " : "", dims[i]);
      return out + "]";
    };
    return refuse(
        Status::shape_mismatch, name,
        text("has shape ", list(shape), " but the new value has ", list(new_shape), "; an update keeps the shape"));
  }
  if (new_nbytes != nbytes)
    return refuse(Status::nbytes_mismatch, name, text("has ", nbytes, " bytes but the new value has ", new_nbytes));
  return {};
}

}  // namespace st::store
