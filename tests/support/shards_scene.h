// Two shards of three tensors, with their index or without it, and values for them.
#pragma once

#include <filesystem>

#include "file/any_transaction.h"
#include "model/model.h"
#include "test_files.h"

namespace st::testing {

class ShardsScene : public ::testing::Test {
 protected:
  static void put_shards(const std::string &folder) {
    put_bytes(folder + "/m-1.safetensors", file_of(std::vector{u8_tensor("a", 4000, 1), u8_tensor("b", 100, 2)}));
    put_bytes(folder + "/m-2.safetensors", file_of(std::vector{u8_tensor("c", 5000, 3)}));
  }
  // And nothing else in the folder.
  static void put_checkpoint_anew(const std::string &folder, const std::string &index) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    put_shards(folder);
    put_bytes(index, R"({"metadata":{"total_size":9100},"weight_map":)"
                     R"({"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
  }
  // Good until the next.
  static store::NewBytes u8(std::string &&bytes) = delete;  // they are read at the commit
  static store::NewBytes u8(const std::string &bytes) {
    static thread_local uint64_t shape;
    shape = bytes.size();
    return {static_cast<uint32_t>(Dtype::U8), {&shape, 1}, bytes.data(), bytes.size()};
  }
  static std::string bytes(const store::Model &c, std::string_view name) {
    auto place = c.catalogue().find(name);
    EXPECT_TRUE(is_ok(place));
    if (!place) return {};
    std::string out(place->tensor().nbytes, '\0');
    EXPECT_TRUE(is_ok(place->member->read(*place->snapshot, place->index, out.data())));
    return out;
  }
};

}  // namespace st::testing
