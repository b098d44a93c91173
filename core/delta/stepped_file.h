// Tensors that steps lead to, as a file in memory: no file has their bytes, and an overlay shows views.
#pragma once

#include "delta/stepped.h"

namespace st::store {

class SteppedFile {
 public:
  // Told of the bytes of each block of a tensor of `listing` that has steps, when it is done. It may end the call.
  using Tell = std::function<Result<void>(uint64_t more)>;
  // Those of `listing`, which are of this file then, as layer `layer`. Null: there are none. `map`: only whether views
  // may be written (copy_on_write); then each is a copy. Statuses: delta,
  // delta_base, nomem; those of reading, and of `tell`.
  static Result<std::unique_ptr<SteppedFile>> make(os::Env &env, const ModelView &base,
                                                   std::span<const DeltaFile> deltas, uint32_t layer,
                                                   TensorList *listing, read::MapMode map, const Tell &tell);
  // Was it made of the same tensors of the same files? These must have lived since then.
  bool is_of(const ModelView &base, std::span<const DeltaFile> deltas, const TensorList &listing) const;
  // Do the steps of `listing` still lead to what they are to lead to? Only of files that may have changed the bytes are
  // read; others count as done. Statuses: as make().
  using MayHaveChanged = std::function<bool(const Snapshot &file)>;
  static Result<void> check(const ModelView &base, std::span<const DeltaFile> deltas, const TensorList &listing,
                            const MayHaveChanged &may_have_changed, const Tell &tell);
  // From now on the tensors of `listing` are of this file, as layer `layer`.
  void put_into(TensorList *listing, uint32_t layer) const;

  const DataFile &file() const { return *file_; }
  const Snapshot &snapshot() const { return *held_; }
  const Index &index() const { return held_->header.index; }
  // The layer that holds the last steps of a tensor.
  uint32_t last_layer(size_t index) const { return last_layers_[index]; }

 private:
  // What a tensor is made of: bytes, and steps, of files, from their places there on.
  using MadeOf = std::vector<std::pair<const Snapshot *, uint64_t>>;
  static MadeOf made_of(const SteppedTensor &t);

  std::unique_ptr<std::byte[]> bytes_;
  std::unique_ptr<DataFile> file_;
  HeldSnapshot held_;
  std::vector<uint32_t> last_layers_;
  std::vector<MadeOf> made_of_;  // in the order of the listing
};

}  // namespace st::store
