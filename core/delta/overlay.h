// A base, one file or shards, and deltas on it, seen as what patching would make,
// without making it: every tensor is a view of the file that has it. For reading only.
#pragma once

#include "base/joined_progress.h"
#include "model/multi_file.h"

namespace st::store {

class OverlayCatalogue;

struct Layers {
  std::unique_ptr<Model> base;
  std::vector<std::unique_ptr<DataFile>> deltas;
};
// Opens what `path` leads to, and options.deltas. How paths are opened is known above; an overlay is given it, as it is
// opened again by its paths.
using OpenLayers = Result<Layers> (*)(os::Env &env, const std::string &path, const OpenOptions &options);

class Overlay final : public MultiFileOf<OverlayCatalogue> {
 public:
  // options.deltas, in their order, on what `path` leads to. Statuses: delta,
  // delta_base; invalid_argument if it is to be written to; those of opening each.
  static Result<std::unique_ptr<Model>> open(os::Env &env, const std::string &path, OpenOptions options,
                                             OpenLayers open_layers);

  ~Overlay() override;

  Result<std::unique_ptr<Model>> reopen(const Catalogue &state, Again as) const override;
  // All layers anew; if they no longer fit each other nothing changes.
  Result<void> refresh() override;
  Result<std::unique_ptr<AnyTransaction>> begin(TransactionOptions options) override;
  void close() noexcept override;

 private:
  Overlay(os::Env &env, const std::string &path, OpenOptions options, OpenLayers open_layers);
  // Answers whether what it found is shown: see show_after. `joined`: of all that the call stacks.
  Result<bool> stack(const Control &call, JoinedProgress &joined);

  // For an open from any folder, as the process may go to another.
  const std::string path_;
  const std::vector<std::string> deltas_;
  const OpenLayers open_layers_;
  Layers layers_;
};

}  // namespace st::store
