// The calls of a transaction as a fuzzer draws them: each done to a dictionary,
// which says what the library must answer, and to the library.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "model.h"

namespace st::fuzz {

struct Step {
  enum Kind { update, put, remove, rename, set_metadata, remove_metadata } kind;
  std::string name, to;
  testing::ModelTensor value;
};

inline Status apply(const Step &step, testing::Model *model) {
  constexpr std::string_view reserved = "__metadata__";
  const auto found = model->tensors.find(step.name);
  const bool is_there = found != model->tensors.end();
  switch (step.kind) {
    case Step::update:
      if (!is_there) return Status::not_found;
      if (found->second.dtype != step.value.dtype) return Status::dtype_mismatch;
      if (found->second.shape != step.value.shape) return Status::shape_mismatch;
      found->second.bytes = step.value.bytes;
      return Status::ok;
    case Step::put:
      if (step.name == reserved) return Status::invalid_argument;
      model->tensors[step.name] = step.value;
      return Status::ok;
    case Step::remove: return model->tensors.erase(step.name) ? Status::ok : Status::not_found;
    case Step::rename: {
      if (step.to == reserved) return Status::invalid_argument;
      if (!is_there) return Status::not_found;
      if (step.name == step.to) return Status::ok;
      if (model->tensors.contains(step.to)) return Status::duplicate_name;
      auto node = model->tensors.extract(found);
      node.key() = step.to;
      model->tensors.insert(std::move(node));
      return Status::ok;
    }
    case Step::set_metadata: model->metadata[step.name] = step.to; return Status::ok;
    case Step::remove_metadata: return model->metadata.erase(step.name) ? Status::ok : Status::not_found;
  }
  std::abort();
}

// `bytes`, those of the step's value, are borrowed as the transaction borrows them.
inline Result<void> apply(const Step &step, const std::string &bytes, store::AnyTransaction &transaction) {
  const store::NewBytes value{static_cast<uint32_t>(step.value.dtype), step.value.shape, bytes.data(), bytes.size()};
  switch (step.kind) {
    case Step::update: return transaction.update(step.name, value);
    case Step::put: return transaction.put(step.name, value);
    case Step::remove: return transaction.remove(step.name);
    case Step::rename: return transaction.rename(step.name, step.to);
    case Step::set_metadata: return transaction.set_metadata(step.name, step.to);
    case Step::remove_metadata: return transaction.set_metadata(step.name, std::nullopt);
  }
  std::abort();
}

}  // namespace st::fuzz
