// One state of a model, for ever: what st_snapshot answers. It shares all that
// the model has, and may be used after the handle of that was closed.
#pragma once

#include "model/model.h"

namespace st::store {

class Pinned final : public Model {
 public:
  Pinned(std::shared_ptr<Model> of, Catalogue state) : of_(std::move(of)), state_(std::move(state)) {}
  Pinned(const Pinned &) = default;  // another pin of the same state

  Result<std::unique_ptr<Model>> reopen(const Catalogue &state, Again as) const override;
  Result<void> refresh() override { return {}; }
  Account &account() const override { return of_->account(); }
  Result<std::unique_ptr<AnyTransaction>> begin(TransactionOptions options) override;
  Catalogue catalogue() const override { return state_.borrowed(); }
  Catalogue lend() const override { return state_.borrowed(); }
  void release() noexcept override {}
  void close() noexcept override {}
  const OpenOptions &options() const override { return of_->options(); }
  const DataFile *file() const override { return of_->file(); }
  std::string index_path() const override { return of_->index_path(); }
  const os::Location *index_location() const override { return of_->index_location(); }
  Result<void> read_many(const std::vector<PlacedRequest> &requests, const Progress &progress) const override;
  Result<void> prefetch(const Catalogue &catalogue, std::optional<std::vector<Place>> places,
                        const Progress &progress) const override;
  Result<void> load(const Catalogue &catalogue, std::optional<std::vector<Place>> places, bool reserved_pages,
                    bool direct, const Progress &progress) const override;

 private:
  const std::shared_ptr<Model> of_;
  const Catalogue state_;
};

}  // namespace st::store
