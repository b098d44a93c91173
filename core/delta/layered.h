// A base, one file or shards, and deltas on it, seen as what patching would make,
// without making it: every tensor is a view of the file that has it. For reading only.
#pragma once

#include "model/several.h"

namespace st::store {

class LayeredCatalogue;

class Layered final : public Several {
 public:
  // options.deltas, in their order, on what `path` leads to. Statuses: delta,
  // delta_base; invalid_argument if it is to be written to; those of opening each.
  static Result<std::unique_ptr<Collection>> open(os::Env &env, const std::string &path, OpenOptions options);

  ~Layered() override { Several::close(); }  // its catalogues hold what is in the layers

  Result<std::unique_ptr<Collection>> reopen(const Catalogue &state, Again as) const override;
  // All layers anew; if they no longer fit each other nothing changes.
  Result<void> refresh() override;
  Result<std::unique_ptr<AnyTransaction>> begin(TransactionOptions options) override;
  void close() noexcept override {
    Several::close();
    base_->close();
    for (const auto &delta : deltas_) delta->close();
  }

 private:
  Layered(os::Env &env, std::string path, OpenOptions options)
      : Several(env, std::move(options)), path_(std::move(path)) {}
  Result<void> stack();

  const std::string path_;  // as given
  std::unique_ptr<Collection> base_;
  std::vector<std::unique_ptr<Checkpoint>> deltas_;
};

}  // namespace st::store
