#include "model.h"

#include "os/file.h"
#include "serialise_header.h"

namespace st::testing {
namespace {

store::NewBytes value(const ModelTensor &t, std::vector<std::string> &keep) {
  keep.push_back(t.bytes);
  return {static_cast<uint32_t>(t.dtype), t.shape, keep.back().data(), keep.back().size()};
}

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
    model.tensors[std::string(t.name)] = {
        t.dtype, {t.shape.begin(), t.shape.end()}, file.substr(header->data_offset() + t.begin, t.nbytes)};
  }
  for (size_t i = 0; i < header->index.metadata_size(); ++i) {
    const auto [key, text] = header->index.metadata_at(i);
    model.metadata[std::string(key)] = text;
  }
  return model;
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

std::string fill(size_t n, int seed) {
  std::string bytes(n, '\0');
  for (size_t i = 0; i < n; ++i)
    bytes[i] = static_cast<char>(seed * 37 + static_cast<int>(i / 64) * 5 + static_cast<int>(i));
  return bytes;
}

ModelTensor u8(size_t n, int seed) {
  return {Dtype::U8, {n}, fill(n, seed)};
}

namespace stage {

Stage put(std::string name, ModelTensor t) {
  return [=](store::AnyTransaction &txn, Model &model, std::vector<std::string> &keep) {
    model.tensors[name] = t;
    return txn.put(name, value(t, keep));
  };
}
Stage update(std::string name, int seed) {
  return [=](store::AnyTransaction &txn, Model &model, std::vector<std::string> &keep) {
    ModelTensor &t = model.tensors[name];
    t.bytes = fill(t.bytes.size(), seed);
    return txn.update(name, value(t, keep));
  };
}
Stage update_slices(std::string name, int seed) {
  return [=](store::AnyTransaction &txn, Model &model, std::vector<std::string> &) -> Result<void> {
    std::string &bytes = model.tensors[name].bytes;
    const auto n = static_cast<int64_t>(bytes.size());
    const Range near[] = {{n / 4, n / 2, 3}};
    const int64_t far[] = {n - 1, 0, -1};
    std::string values = fill(bytes.size(), seed);
    uint64_t count = 0;
    for (int64_t i = n / 4; i < n / 2; i += 3) bytes[static_cast<size_t>(i)] = values[count++];
    const uint32_t dtype = static_cast<uint32_t>(Dtype::U8);
    if (auto ok = txn.update_slice(name, {near}, {dtype, {&count, 1}, values.data(), count}); !ok) return ok;
    bytes.front() = values[1];
    bytes.back() = values[2];
    count = std::size(far);
    return txn.update_slice(name, {{}, far}, {dtype, {&count, 1}, values.data(), count});
  };
}
Stage change_elements(std::string name, int seed) {
  return [=](store::AnyTransaction &txn, Model &model, std::vector<std::string> &) -> Result<void> {
    std::string &bytes = model.tensors[name].bytes;
    std::vector<uint32_t> places;
    for (size_t i = static_cast<size_t>(seed) % 61; i < bytes.size(); i += 61)
      places.push_back(static_cast<uint32_t>(i));
    if (places.back() + 1 < bytes.size()) places.push_back(static_cast<uint32_t>(bytes.size() - 1));
    std::string values;
    std::vector<store::ByteRange> ranges;
    for (const uint32_t i : places) {
      bytes[i] = static_cast<char>(bytes[i] ^ (seed | 1));
      values += bytes[i];
      ranges.push_back({i, 1});
    }
    auto may = txn.may_remake(name);
    if (!may) return Failure(std::move(may.error()));
    if (!*may) return txn.update_ranges(name, ranges, std::as_bytes(std::span(values)));
    const auto make = [places, values, n = bytes.size()](const os::File &file, uint64_t at,
                                                         store::TakesRemade &to) -> Result<void> {
      std::vector<std::byte> old(n);
      if (auto read = file.read(old.data(), n, at); !read) return read;
      std::vector<std::byte> fresh = old;
      for (size_t i = 0; i < places.size(); ++i) fresh[places[i]] = static_cast<std::byte>(values[i]);
      to.note({0, old, fresh, places, 1});
      return to.keep();
    };
    return txn.remake(name, make, 2 * places.size());
  };
}
Stage remove(std::string name) {
  return [=](store::AnyTransaction &txn, Model &model, std::vector<std::string> &) {
    model.tensors.erase(name);
    return txn.remove(name);
  };
}
Stage rename(std::string from, std::string to) {
  return [=](store::AnyTransaction &txn, Model &model, std::vector<std::string> &) {
    auto node = model.tensors.extract(from);
    node.key() = to;
    model.tensors.insert(std::move(node));
    return txn.rename(from, to);
  };
}
Stage metadata(std::string key, std::optional<std::string> text) {
  return [=](store::AnyTransaction &txn, Model &model, std::vector<std::string> &) {
    if (text)
      model.metadata[key] = *text;
    else
      model.metadata.erase(key);
    return txn.set_metadata(key, text);
  };
}
Stage all(std::vector<Stage> stages) {
  return [=](store::AnyTransaction &txn, Model &model, std::vector<std::string> &keep) -> Result<void> {
    for (const Stage &stage : stages)
      if (auto ok = stage(txn, model, keep); !ok) return ok;
    return {};
  };
}

}  // namespace stage

Result<void> run(store::AnyTransaction &transaction, const Stage &stage, Model &model) {
  std::vector<std::string> keep;
  keep.reserve(16);  // what is borrowed does not move
  if (auto staged = stage(transaction, model, keep); !staged) return staged;
  return transaction.commit();
}

}  // namespace st::testing
