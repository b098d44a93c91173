// What a file, or shards as one, must hold whatever the layout: names, forms, bytes
// and metadata; and the steps of a transaction, done to it and to its model.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "file/any_transaction.h"
#include "format/dtype.h"
#include "format/header.h"

namespace st::testing {

struct ModelTensor {
  Dtype dtype;
  std::vector<uint64_t> shape;
  std::string bytes;
  bool operator==(const ModelTensor &) const = default;
};
struct Model {
  std::map<std::string, ModelTensor> tensors;
  std::map<std::string, std::string> metadata;
  bool operator==(const Model &) const = default;
};

// What a file's bytes hold, by the parser; nothing if no reader would take them.
std::optional<Model> model_of(const std::string &file);
// Its bytes, in the order of the names.
std::string file_of(const Model &model, uint64_t alignment = write::default_alignment, uint64_t reserve = 0);

// Bytes of which no two blocks of 64 are alike, nor those of two seeds.
std::string fill(size_t n, int seed);
ModelTensor u8(size_t n, int seed);

// `keep` owns the bytes that are borrowed until the commit; it must have room for all.
using Stage = std::function<Result<void>(store::AnyTransaction &, Model &, std::vector<std::string> &keep)>;

namespace stage {

Stage put(std::string name, ModelTensor tensor);
Stage update(std::string name, int seed);
// In a tensor of one dimension, of bytes: some bytes that lie near each other, and three far apart, one of them twice.
Stage update_slices(std::string name, int seed);
// New values for every 61st byte of it and the last. Where the file is patched they are made under its locks, and the
// journal has no others.
Stage change_elements(std::string name, int seed);
Stage remove(std::string name);
Stage rename(std::string from, std::string to);
Stage metadata(std::string key, std::optional<std::string> text);
Stage all(std::vector<Stage> stages);

}  // namespace stage

// Stages and commits.
Result<void> run(store::AnyTransaction &transaction, const Stage &stage, Model &model);

}  // namespace st::testing
