#include "model/catalogue.h"

namespace st::store {

Result<Place> Catalogue::at(uint64_t i) const {
  if (i >= size()) return fail(Status::out_of_range, "tensor ", i, " was asked for, of ", size());
  if (several_) return several_->at(static_cast<size_t>(i));
  return Place{static_cast<size_t>(i), 0, file_, snapshot_, static_cast<size_t>(i)};
}

Result<std::vector<Place>> Catalogue::range(size_t first, size_t n, const Progress &progress) const {
  Wanted wanted(*this);
  for (size_t i = first; i < first + n && wanted.add(i);) ++i;
  ST_TRY(wanted.open(progress));
  std::vector<Place> places;
  places.reserve(n);
  for (size_t i = first; i < first + n; ++i) {
    ST_TRY(auto place, at(i));
    places.push_back(place);
  }
  return places;
}

Result<Opened> Catalogue::member(size_t i) const {
  if (i >= members()) return fail(Status::out_of_range, "file ", i, " was asked for, of ", members());
  if (several_) return several_->member(i);
  return Opened{file_, snapshot_};
}

std::vector<Opened> Catalogue::opened() const {
  if (several_) return several_->opened();
  return {{file_, snapshot_}};
}

Result<Place> Catalogue::find(std::string_view name) const {
  std::string where;
  if (several_) {
    ST_TRY(auto place, several_->find(name));
    if (place) return *place;
    if (const std::string shown = several_->shown_name(); !shown.empty()) where = " in " + shown;
  } else {
    if (const auto i = snapshot_->header.index.find(name)) return Place{*i, 0, file_, snapshot_, *i};
    if (snapshot_->env) where = text(" in ", in_quotes(snapshot_->file.path()));
  }
  return Failure(
      error(Status::not_found, "no tensor is named ", in_quotes(name), where, "; list the names to see what there is")
          .about_tensor(name));
}

}  // namespace st::store
