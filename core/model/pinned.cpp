#include "model/pinned.h"

namespace st::store {

Result<std::unique_ptr<Model>> Pinned::reopen(const Catalogue &state, Again as) const {
  return of_->reopen(state, as == Again::the_same ? Again::for_reading : as);
}

Result<std::unique_ptr<AnyTransaction>> Pinned::begin(TransactionOptions) {
  return fail(Status::read_only,
              "a snapshot is for reading only; change the file through the handle that it was taken "
              "from, or open the file");
}

Result<void> Pinned::read_many(const std::vector<PlacedRequest> &requests, const Progress &progress) const {
  return of_->read_many(requests, progress);
}

Result<void> Pinned::prefetch(const Catalogue &catalogue, std::optional<std::vector<Place>> places,
                              const Progress &progress) const {
  return of_->prefetch(catalogue, std::move(places), progress);
}

Result<void> Pinned::load(const Catalogue &catalogue, std::optional<std::vector<Place>> places, bool reserved_pages,
                          bool direct, const Progress &progress) const {
  return of_->load(catalogue, std::move(places), reserved_pages, direct, progress);
}

}  // namespace st::store
