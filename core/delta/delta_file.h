// A delta as a file: opened and judged, or being written.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "delta/tensor_window.h"
#include "file/writer.h"
#include "format/tensor_list.h"
#include "model/model_view.h"

namespace st::store {

struct DeltaFile {
  std::unique_ptr<DataFile> file;  // null where somebody else keeps it
  std::string path;
  HeldSnapshot snapshot;  // of file
  DeltaNotes notes;

  const Index &index() const { return snapshot->header.index; }

  // Its current snapshot; status delta if it is none. `file` must outlive it, or is kept in it.
  static Result<DeltaFile> of(const DataFile &file);
  static Result<DeltaFile> of(std::unique_ptr<DataFile> file);
  // Do its tensors have the bytes that were written? Reads all of them. Status delta.
  struct Checked {
    uint64_t head;  // hash of it; says nothing where the delta holds steps
    uint64_t all;   // XXH3-64, where the tensor is whole, and it was asked for
  };
  Result<std::vector<Checked>> check_bytes(const std::function<Result<void>(uint64_t more)> &tell,
                                           bool with_all = false) const;
  // The same of tensor i alone. `take` sees each piece, and may end it.
  Result<OldBytes> check_tensor(size_t i, TensorWindow &window,
                                const std::function<Result<void>(std::span<const std::byte>)> &take) const;
};

// The tensors that a delta made for `base` says it replaces or deletes, in the
// order of the base.
struct OldTensor {
  size_t index;  // in the base
  OldBytes bytes;
  std::optional<Hash128> result = {};  // of the new bytes; none where the tensor is deleted
};
std::vector<OldTensor> old_tensors(const ModelView &base, const Index &delta, const DeltaNotes &notes);

// Do these begin with the bytes that they are to have? Status delta_base.
Result<void> check_heads(const ModelView &base, std::span<const OldTensor> tensors);

// Do these have one form in both? Steps are of the form that the base has.
bool same_form(const ModelView &base, const DeltaFile &delta, size_t i);
bool same_forms(const ModelView &base, const DeltaFile &delta);  // of all tensors of the delta

// `found`: the hash of the bytes that the tensor has, if it is known. Where the delta leads to them it says so.
Error wrong_base(std::string_view tensor, std::string_view path, const std::optional<Hash128> &found,
                 const std::optional<Hash128> &result);

Error wrong_steps(std::string_view tensor, std::string_view path);

// What a delta in the making holds of a tensor: its bytes, or its steps.
struct HeldTensor {
  write::NewTensor declared;
  NotedTensor noted;
};
// A writer of a delta of these tensors, which it puts into canonical order. `describe` makes the notes of them, in this
// order. `mode`: see write::SaveOptions.
using Describe = std::function<DeltaNotes(std::span<const NotedTensor> tensors)>;
Result<std::unique_ptr<write::Writer>> write_delta(os::Env &env, const std::string &path,
                                                   std::vector<HeldTensor> tensors, const Describe &describe,
                                                   uint64_t alignment, mode_t mode, int32_t lock_timeout_ms,
                                                   Progress progress);

}  // namespace st::store
