// Tensors that steps lead to, as a file in memory: no file has their bytes, and an overlay shows views.
#pragma once

#include "delta/stepped.h"

namespace st::store {

class SteppedFile {
 public:
  // Those of `listing`, which are of this file then, as layer `layer`. Null: there are none. Statuses: delta,
  // nomem; those of reading.
  static Result<std::unique_ptr<SteppedFile>> make(os::Env &env, const ModelView &base,
                                                   std::span<const DeltaFile> deltas, uint32_t layer,
                                                   TensorList *listing);

  const DataFile &file() const { return *file_; }
  const Snapshot &snapshot() const { return *held_; }
  const Index &index() const { return held_->header.index; }
  // The layer that holds the last steps of a tensor.
  uint32_t last_layer(size_t index) const { return last_layers_[index]; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::unique_ptr<DataFile> file_;
  HeldSnapshot held_;
  std::vector<uint32_t> last_layers_;
};

}  // namespace st::store
