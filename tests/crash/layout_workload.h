// Operations that change what a file holds, on a simulated disk, and a model of
// what it must then hold: names, forms, bytes and metadata, whatever the layout.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim_env.h"
#include "store/transaction.h"

namespace st::testing {

inline const std::string layout_path = "/models/m.safetensors";

struct ModelTensor {
  Dtype dtype;
  std::vector<uint64_t> shape;
  std::string bytes;
  bool operator==(const ModelTensor &) const = default;
};
struct Model {
  std::map<std::string, ModelTensor> tensors;  // but fillers
  std::map<std::string, std::string> metadata;
  bool operator==(const Model &) const = default;
};

// What a file's bytes hold, by the parser; nothing if no reader would take them.
std::optional<Model> model_of(const std::string &file);

// A step, done to the model and to a transaction. `keep` owns the bytes that are borrowed until the commit.
struct LayoutOperation {
  std::string_view name;
  std::string_view group;  // for the table of promises
  store::TransactionOptions options;
  std::function<Result<void>(store::Transaction &, Model &, std::vector<std::string> &keep)> stage;
};
const std::vector<LayoutOperation> &layout_operations();

// How the disk moves bytes from one file to another.
struct Disk {
  std::string_view name;
  bool reflink, copies_ranges;
};
inline constexpr Disk disks[] = {
    {"blocks shared", true, true}, {"copied in the kernel", false, true}, {"read and written", false, false}};

Model first_model();
// Its bytes, in the order of the names.
std::string file_of(const Model &model, uint64_t alignment = default_alignment, uint64_t reserve = 0);
SimEnv empty_disk(const Disk &disk);  // with a folder /models, durable
SimEnv layout_disk(const Disk &disk);

}  // namespace st::testing
