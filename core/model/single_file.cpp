#include "model/single_file.h"

#include <numeric>

#include "file/transaction.h"

namespace st::store {
namespace {

std::vector<size_t> indices_of(const std::vector<Place> &places) {
  std::vector<size_t> indices;
  indices.reserve(places.size());
  for (const Place &p : places) indices.push_back(p.index);
  return indices;
}

}  // namespace

Result<std::unique_ptr<Model>> SingleFile::reopen(const Catalogue &state, Again as) const {
  ST_TRY(auto again, file_->reopen(*state.snapshot(), as));
  return std::make_unique<SingleFile>(std::move(again));
}

Result<std::unique_ptr<Model>> SingleFile::reopen_shown(Again as) const {
  ST_TRY(auto again, file_->reopen_shown(as));
  return std::make_unique<SingleFile>(std::move(again));
}

Result<std::unique_ptr<AnyTransaction>> SingleFile::begin(TransactionOptions options) {
  const bool new_names = options.new_names;
  ST_TRY(auto begun, Transaction::begin(*file_, std::move(options)));
  if (new_names)
    return fail(Status::unsupported, in_quotes(file_->path()),
                " is one file, of which no index could tell a new name; begin the transaction without new names");
  return begun;
}

Result<void> SingleFile::read_many(const std::vector<PlacedRequest> &requests, const Progress &progress) const {
  if (requests.empty()) return {};
  std::vector<BulkRequest> in_file;
  in_file.reserve(requests.size());
  for (const PlacedRequest &r : requests) in_file.push_back({r.place.index, r.slice, r.to, r.fresh});
  return file_->read_many(*requests.front().place.snapshot, in_file, progress);
}

Result<void> SingleFile::prefetch(const Catalogue &catalogue, std::optional<std::vector<Place>> places,
                                  const Progress &progress) const {
  const Snapshot &s = *catalogue.snapshot();
  return file_->prefetch(s, places ? indices_of(*places) : file_->own_part(s), progress);
}

Result<void> SingleFile::load(const Catalogue &catalogue, std::optional<std::vector<Place>> places, bool reserved_pages,
                              bool direct, const Progress &progress) const {
  const Snapshot &s = *catalogue.snapshot();
  if (places) return file_->load(s, indices_of(*places), reserved_pages, direct, progress);
  std::vector<size_t> all(s.header.index.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return file_->load(s, std::move(all), reserved_pages, direct, progress);
}

}  // namespace st::store
