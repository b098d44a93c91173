// A checkpoint, of one file or of shards, and transactions on it that are drawn at random: in place or by new files, on
// one shard or on several, small and large, borrowed and copied.
#pragma once

#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "model/model.h"
#include "serialise_header.h"

namespace st::testing {

class RandomModel {
 public:
  // `shards`: 0 for one file. `scale`: bytes of a large tensor.
  RandomModel(std::string folder, uint64_t seed, size_t shards, uint64_t scale)
      : folder_(std::move(folder)), scale_(scale), random_(seed) {
    for (size_t i = 0; i < scale_ + window; i += sizeof(uint64_t)) {
      const uint64_t word = random_();
      noise_.append(reinterpret_cast<const char *>(&word), sizeof word);
    }
    std::string map;
    for (size_t s = 0; s < std::max<size_t>(shards, 1); ++s) {
      const std::string file = shards == 0 ? "model.safetensors" : "model-" + std::to_string(s) + ".safetensors";
      for (const std::string &name : write_file(file))
        map += (map.empty() ? "\"" : ",\"") + name + "\":\"" + file + "\"";
    }
    path = folder_ + "/model.safetensors" + (shards == 0 ? "" : ".index.json");
    if (shards > 0) std::ofstream(path) << R"({"metadata":{"total_size":0},"weight_map":{)" << map << "}}";
  }

  store::TransactionOptions options() {
    store::TransactionOptions options;
    options.copy = one_in(2);
    options.publish = one_in(6);
    options.new_names = new_names;
    if (path.ends_with(".json")) return options;
    if (one_in(10)) options.layout = write::Layout::canonical;
    if (one_in(10)) options.alignment = 4096;
    if (one_in(10)) options.reserve = 3000;
    return options;
  }

  // What is staged becomes the model's with accept().
  Result<void> stage(store::AnyTransaction &t) {
    trial_ = sizes_;
    const bool in_place = one_in(2);
    if (!in_place && one_in(8)) return rename_all(t);
    for (size_t steps = 1 + random_() % 4; steps > 0; --steps)
      if (auto done = in_place ? update(t) : change(t); !done) return done;
    return {};
  }
  void accept() { sizes_ = trial_; }
  size_t count() const { return sizes_.size(); }
  bool one_in(uint64_t n) { return random_() % n == 0; }

  std::string path;
  bool new_names = false;  // of shards

 private:
  static constexpr size_t window = 4096;

  uint64_t draw_size() {
    const uint64_t sizes[] = {1, 511, 4096, 4097, 65536, 300001, scale_ / 2, scale_, random_() % scale_ + 1};
    return std::min<uint64_t>(sizes[random_() % std::size(sizes)], scale_);
  }
  std::vector<std::string> write_file(const std::string &file) {
    std::vector<std::string> names;
    std::vector<uint64_t> sizes;
    for (size_t i = 0; i < 4; ++i) {
      names.push_back("t" + std::to_string(next_++));
      sizes.push_back(i == 0 ? scale_ : draw_size());
      sizes_[names.back()] = sizes.back();
    }
    std::vector<HeaderTensor> entries;
    uint64_t at = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      entries.push_back({names[i], Dtype::U8, {&sizes[i], 1}, at, sizes[i]});
      at += sizes[i];
    }
    std::ofstream out(folder_ + "/" + file, std::ios::binary);
    out << serialise_header(entries, {}).value();
    for (const uint64_t n : sizes) out.write(noise_.data() + random_() % window, static_cast<std::streamsize>(n));
    return names;
  }
  store::NewBytes bytes_of(const uint64_t &n) {
    return {static_cast<uint32_t>(Dtype::U8), {&n, 1}, noise_.data() + random_() % window, n};
  }
  std::string draw_name() { return std::next(trial_.begin(), static_cast<long>(random_() % trial_.size()))->first; }

  // A stretch of a tensor, every so many of its bytes, or some of them, of which the same may come twice.
  Result<void> update_slice(store::AnyTransaction &t) {
    const std::string name = draw_name();
    const uint64_t n = trial_[name], begin = random_() % n, length = std::min(random_() % 9000 + 1, n - begin);
    if (one_in(2)) {
      const uint64_t step = one_in(2) ? 1 : random_() % 2000 + 1, count = (length - 1) / step + 1;
      const Range range{static_cast<int64_t>(begin), static_cast<int64_t>(begin + length), static_cast<int64_t>(step)};
      return t.update_slice(name, {{&range, 1}}, bytes_of(count));
    }
    std::vector<int64_t> rows(random_() % 40 + 1);
    for (int64_t &row : rows) row = static_cast<int64_t>(begin + random_() % length);
    const uint64_t count = rows.size();
    return t.update_slice(name, {{}, rows}, bytes_of(count));
  }
  Result<void> update(store::AnyTransaction &t) {
    if (one_in(3)) return update_slice(t);
    const std::string name = draw_name();
    return t.update(name, bytes_of(trial_[name]));
  }
  Result<void> put(store::AnyTransaction &t, const std::string &name) {
    const uint64_t &n = trial_[name] = draw_size();
    return t.put(name, bytes_of(n));
  }
  Result<void> rename(store::AnyTransaction &t, const std::string &from) {
    const std::string to = "t" + std::to_string(next_++);
    trial_[to] = trial_[from];
    trial_.erase(from);
    return t.rename(from, to);
  }
  Result<void> rename_all(store::AnyTransaction &t) {
    for (const auto &[name, n] : std::map(trial_))
      if (auto done = rename(t, name); !done) return done;
    return {};
  }
  Result<void> change(store::AnyTransaction &t) {
    const std::string name = draw_name();
    switch (random_() % 6) {
      case 0: return put(t, "t" + std::to_string(next_++));
      case 1: return put(t, name);
      case 2: return rename(t, name);
      case 3: return t.set_metadata("by", std::string(random_() % 3000, 'v'));
      case 4: return update(t);
      default:
        if (trial_.size() < 8) return {};
        trial_.erase(name);
        return t.remove(name);
    }
  }

  const std::string folder_;
  const uint64_t scale_;
  std::mt19937_64 random_;
  std::string noise_;
  uint64_t next_ = 0;
  std::map<std::string, uint64_t> sizes_, trial_;
};

}  // namespace st::testing
