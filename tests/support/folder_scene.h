// A checkpoint in a folder `ckpt` that somebody else may move or exchange: one file, two shards, and what is done to
// them, all by path or through a handle of the kind that the C ABI has.
#pragma once

#include <functional>
#include <map>

#include "engine/deltas.h"
#include "engine/open.h"
#include "engine/recover_all.h"
#include "engine/reshape.h"
#include "fault_env.h"
#include "file/writer.h"
#include "model/model.h"
#include "test_files.h"

namespace st::testing {

class FolderScene : public ::testing::Test {
 protected:
  FolderScene() {
    std::filesystem::create_directory(ckpt);
    fill(ckpt);
  }
  void fill(const std::string &folder) const {
    put_bytes(folder + "/model.safetensors", file_of(std::vector{u8_tensor("a", 4000, 1), u8_tensor("b", 5000, 2)}));
    put_bytes(folder + "/" + first, file_of(std::vector{u8_tensor("a", 4000, 1)}));
    put_bytes(folder + "/" + second, file_of(std::vector{u8_tensor("b", 5000, 2)}));
    put_bytes(folder + "/model.safetensors.index.json",
              R"({"weight_map":{"a":")" + first + R"(","b":")" + second + R"("}})");
  }

  static Result<std::unique_ptr<store::Model>> open(os::Env &env, const std::string &path, bool writable = true) {
    store::OpenOptions options;
    options.writable = writable;
    options.lock_timeout_ms = 0;
    return store::open_path(env, path, std::move(options));
  }
  static store::NewBytes u8(const std::string &bytes, const uint64_t &n) {
    return {static_cast<uint32_t>(Dtype::U8), {&n, 1}, bytes.data(), n};
  }
  // Both tensors: in place, or by new files.
  Result<void> stage(store::AnyTransaction &t, bool publish) const {
    for (const auto &[name, bytes] : {std::pair<const char *, const std::string &>{"a", new_a}, {"b", new_b}}) {
      const uint64_t n = bytes.size();
      if (auto staged = t.update(name, u8(bytes, n)); !staged) return staged;
      if (publish)
        if (auto put = t.put(std::string("new ") + name, u8(bytes, n)); !put) return put;
    }
    return {};
  }
  Result<std::unique_ptr<store::AnyTransaction>> staged(store::Model &c, bool publish) const {
    store::TransactionOptions options;
    options.lock_timeout_ms = 0;
    auto begun = c.begin(std::move(options));
    if (!begun) return begun;
    if (auto ok = stage(**begun, publish); !ok) return Failure(std::move(ok.error()));
    return begun;
  }
  // Whole files, by name; of folders in it as well.
  static std::map<std::string, std::string> all_of(const std::string &folder) {
    std::map<std::string, std::string> all;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string name = entry.path().lexically_relative(folder).generic_string();
      all[name] = entry.is_regular_file() ? bytes_of(entry.path().string()) : "no file";
    }
    return all;
  }
  // Which names have other bytes, or are in one of the two alone; empty if none.
  static std::string differences(const std::string &one, const std::string &other) {
    auto a = all_of(one), b = all_of(other);
    std::string names;
    for (const auto &[name, bytes] : a)
      if (!b.contains(name) || b[name] != bytes) names += name + " ";
    for (const auto &[name, bytes] : b)
      if (!a.contains(name)) names += name + " ";
    return names;
  }
  // Does a fresh look find the tensor with these bytes?
  static std::string tensor(const std::string &path, std::string_view name) {
    auto c = open(os::Env::posix(), path, false);
    if (!c) return "cannot open: " + c.error().message;
    auto found = (*c)->catalogue().find(name);
    if (!found) return "not found: " + found.error().message;
    const store::Place place = *found;
    std::string bytes(place.tensor().nbytes, '\0');
    auto read = place.member->read(*place.snapshot, place.index, bytes.data());
    return read ? bytes : "cannot read: " + read.error().message;
  }

  const TempDir dir;
  const std::string ckpt = dir / "ckpt";
  std::string first = "model-1.safetensors", second = "model-2.safetensors";
  const std::string new_a = pattern(4000, 11), new_b = pattern(5000, 12);
};

}  // namespace st::testing
