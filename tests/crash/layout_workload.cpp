#include "layout_workload.h"

#include "format/header.h"

namespace st::testing {
namespace {

std::string fill(size_t n, int seed) {
  std::string bytes(n, '\0');
  for (size_t i = 0; i < n; ++i)
    bytes[i] = static_cast<char>(seed * 37 + static_cast<int>(i / 64) * 5 + static_cast<int>(i));
  return bytes;
}

ModelTensor u8(size_t n, int seed) {
  return {Dtype::U8, {n}, fill(n, seed)};
}

store::NewBytes value(const ModelTensor &t, std::vector<std::string> &keep) {
  keep.push_back(t.bytes);
  return {static_cast<uint32_t>(t.dtype), t.shape, keep.back().data(), keep.back().size()};
}

using Stage = decltype(LayoutOperation::stage);

Stage put(std::string name, ModelTensor t) {
  return [=](store::Transaction &txn, Model &model, std::vector<std::string> &keep) {
    model.tensors[name] = t;
    return txn.put(name, value(t, keep));
  };
}
Stage update(std::string name, int seed) {
  return [=](store::Transaction &txn, Model &model, std::vector<std::string> &keep) {
    ModelTensor &t = model.tensors[name];
    t.bytes = fill(t.bytes.size(), seed);
    return txn.update(name, value(t, keep));
  };
}
Stage remove(std::string name) {
  return [=](store::Transaction &txn, Model &model, std::vector<std::string> &) {
    model.tensors.erase(name);
    return txn.remove(name);
  };
}
Stage rename(std::string from, std::string to) {
  return [=](store::Transaction &txn, Model &model, std::vector<std::string> &) {
    auto node = model.tensors.extract(from);
    node.key() = to;
    model.tensors.insert(std::move(node));
    return txn.rename(from, to);
  };
}
Stage metadata(std::string key, std::optional<std::string> text) {
  return [=](store::Transaction &txn, Model &model, std::vector<std::string> &) {
    if (text)
      model.metadata[key] = *text;
    else
      model.metadata.erase(key);
    return text ? txn.set_metadata(key, *text) : txn.set_metadata(key, std::nullopt);
  };
}
Stage all(std::vector<Stage> stages) {
  return [=](store::Transaction &txn, Model &model, std::vector<std::string> &keep) -> Result<void> {
    for (const Stage &stage : stages)
      if (auto ok = stage(txn, model, keep); !ok) return ok;
    return {};
  };
}

store::TransactionOptions with(std::function<void(store::TransactionOptions &)> set) {
  store::TransactionOptions options;
  options.lock_timeout_ms = 50;
  set(options);
  return options;
}
const store::TransactionOptions plain = with([](auto &) {});

}  // namespace

std::optional<Model> model_of(const std::string &file) {
  auto n = parse_header_length(std::string_view(file).substr(0, std::min<size_t>(file.size(), 8)), file.size());
  if (!n) return std::nullopt;
  std::string json = file.substr(8, *n);
  json.resize(json.size() + header_padding);
  auto header = parse_header(json.data(), *n, file.size(), 1);
  if (!header) return std::nullopt;
  Model model;
  for (size_t i = 0; i < header->index.size(); ++i) {
    const TensorView t = header->index.at(i);
    if (t.name.starts_with(store::filler_prefix)) continue;
    model.tensors[std::string(t.name)] = {
        t.dtype, {t.shape.begin(), t.shape.end()}, file.substr(header->data_offset() + t.begin, t.nbytes)};
  }
  for (size_t i = 0; i < header->index.metadata_size(); ++i) {
    const auto [key, text] = header->index.metadata_at(i);
    model.metadata[std::string(key)] = text;
  }
  return model;
}

Model first_model() {
  return {
      {{"a", u8(200, 1)}, {"b", u8(8192, 2)}, {"c", u8(5000, 3)}, {"d", u8(9000, 4)}, {"e", {Dtype::F32, {0, 3}, {}}}},
      {{"k", "v"}}};
}

const std::vector<LayoutOperation> &layout_operations() {
  static const std::vector<LayoutOperation> operations = {
      {"update of two tensors", "update, in place", plain, all({update("a", 41), update("d", 42)})},
      {"update, published", "update with ST_COMMIT_PUBLISH", with([](auto &o) { o.publish = true; }),
       all({update("a", 43), update("d", 44)})},
      {"put of a new tensor", "put", plain, put("new", u8(6000, 51))},
      {"put of another dtype and shape", "put", plain, put("b", {Dtype::F16, {2, 1024}, fill(4096, 52)})},
      {"put, copied at once", "put", with([](auto &o) { o.copy = true; }),
       all({put("new", u8(7000, 53)), put("c", u8(1, 54))})},
      {"delete of the first", "delete", plain, remove("a")},
      {"delete in the middle", "delete", plain, remove("b")},
      {"delete of the last", "delete", plain, remove("d")},
      {"delete that leaves a filler, which a put uses", "delete", with([](auto &o) { o.fillers = true; }),
       all({remove("c"), put("small", u8(700, 55))})},
      {"rename", "rename", plain, rename("b", "a longer name for b")},
      {"metadata", "metadata", plain, metadata("k", "w")},
      {"metadata that outgrows the header", "metadata", plain, metadata("long", std::string(5000, 'm'))},
      {"everything at once", "mixed", plain,
       all({update("a", 56), put("new", u8(100, 57)), remove("c"), rename("d", "c"), update("c", 58),
            metadata("k", std::nullopt)})},
      {"canonical layout", "layout, compact", with([](auto &o) { o.layout = write::Layout::canonical; }),
       put("f", {Dtype::F32, {5}, fill(20, 59)})},
      {"compact", "layout, compact", with([](auto &o) { o.compact = true, o.layout = write::Layout::canonical; }),
       metadata("k", "compact")},
  };
  return operations;
}

std::string file_of(const Model &model, uint64_t alignment, uint64_t reserve) {
  std::vector<HeaderTensor> tensors;
  std::string data;
  for (const auto &[name, t] : model.tensors) {
    tensors.push_back({name, t.dtype, t.shape, data.size(), t.bytes.size()});
    data += t.bytes;
  }
  const std::vector<std::pair<std::string_view, std::string_view>> pairs(model.metadata.begin(), model.metadata.end());
  return *serialise_header(tensors, pairs, alignment, reserve) + data;
}

SimEnv empty_disk(const Disk &disk) {
  SimEnv env;
  env.reflink = disk.reflink;
  env.copies_ranges = disk.copies_ranges;
  env.mkdirat(AT_FDCWD, "/models", 0755);
  const int root = env.openat(AT_FDCWD, "/", O_RDONLY, 0);
  env.fsync(root);
  env.close(root);
  return env;
}

SimEnv layout_disk(const Disk &disk) {
  SimEnv env = empty_disk(disk);
  env.add_file(layout_path, file_of(first_model(), 8, 40));
  return env;
}

}  // namespace st::testing
