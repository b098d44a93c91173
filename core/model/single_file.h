// A model of one: the file itself.
#pragma once

#include "model/model.h"

namespace st::store {

class SingleFile final : public Model {
 public:
  explicit SingleFile(std::unique_ptr<DataFile> file) : file_(std::move(file)) {}

  Result<std::unique_ptr<Model>> reopen(const Catalogue &state, Again as) const override;
  Result<std::unique_ptr<Model>> reopen_shown(Again as) const override;
  void close() noexcept override { file_->close(); }
  Result<void> refresh() override { return file_->refresh(); }
  Result<void> sync() override { return file_->sync(); }
  Account &account() const override { return file_->account(); }
  Result<std::unique_ptr<AnyTransaction>> begin(TransactionOptions options) override;
  Catalogue catalogue() const override { return Catalogue(*file_); }
  Catalogue lend() const override { return catalogue().lent(); }
  void release() noexcept override { file_->release(); }
  const OpenOptions &options() const override { return file_->options(); }
  const DataFile *file() const override { return file_.get(); }
  Result<void> read_many(const std::vector<PlacedRequest> &requests, const Progress &progress) const override;
  Result<void> prefetch(const Catalogue &catalogue, std::optional<std::vector<Place>> places,
                        const Progress &progress) const override;
  Result<void> load(const Catalogue &catalogue, std::optional<std::vector<Place>> places, bool reserved_pages,
                    bool direct, const Progress &progress) const override;

 private:
  const std::unique_ptr<DataFile> file_;
};

}  // namespace st::store
