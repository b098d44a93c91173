// A base and deltas on it, seen as the file that patching would make, without
// making it: every tensor is a view of the layer that has it. For reading only.
#pragma once

#include "store/several.h"

namespace st::store {

class Layered final : public Several {
 public:
  // options.deltas, in their order, on the file at `path`. Statuses: delta,
  // delta_base; invalid_argument if it is to be written to; those of opening each.
  static Result<std::unique_ptr<Collection>> open(os::Env &env, const std::string &path, OpenOptions options);

  Result<std::unique_ptr<Collection>> reopen() const override;
  // All layers anew; if they no longer fit each other nothing changes.
  Result<void> refresh() override;
  Result<std::unique_ptr<AnyTransaction>> begin(TransactionOptions options) override;
  size_t members() const override { return layers_.size(); }
  std::string_view member_path(size_t i) const override { return layers_[i]->path(); }
  Result<const Checkpoint *> member(size_t i) const override { return layers_[i]; }
  size_t index_bytes() const override;

 private:
  Layered(os::Env &env, std::string path, OpenOptions options)
      : Several(env, std::move(options)), path_(std::move(path)) {}
  Result<void> stack();

  const std::string path_;            // as given
  std::vector<Checkpoint *> layers_;  // the base first; members own them
};

}  // namespace st::store
