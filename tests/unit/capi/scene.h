// A small file and the C ABI, as a C program has it.
#pragma once

#include <cstring>

#include "abi.h"
#include "test_files.h"

namespace st::testing {

#define EXPECT_ST(wanted, call) EXPECT_STREQ(st_status_name(call), #wanted) << st_last_error()
#define ASSERT_ST(wanted, call) ASSERT_STREQ(st_status_name(call), #wanted) << st_last_error()

class CapiScene : public ::testing::Test {
 protected:
  CapiScene() { put_bytes(path, old); }

  st_file *open(uint32_t flags = ST_OPEN_READ_WRITE, uint32_t map = ST_MAP_AUTO) {
    return open_at(path, flags, map, ST_TIMEOUT_NONE);
  }
  static st_file *open_at(const std::string &path, uint32_t flags = ST_OPEN_READ_WRITE, uint32_t map = ST_MAP_AUTO,
                          int32_t lock_timeout_ms = ST_TIMEOUT_DEFAULT) {
    auto options = sized<st_open_options>();
    options.flags = flags;
    options.map = map;
    options.lock_timeout_ms = lock_timeout_ms;
    st_file *file = nullptr;
    EXPECT_ST(ST_OK, st_open(path.c_str(), &options, &file));
    return file;
  }
  // What st_update takes for tensor i: U8, one dimension.
  st_tensor value(size_t i, const std::string &bytes) {
    st_tensor t = {};
    t.dtype = ST_DTYPE_U8;
    t.rank = 1;
    t.shape = &shapes[i];
    t.data = bytes.data();
    t.nbytes = bytes.size();
    return t;
  }
  static std::string seen(st_file *file, const char *name) {
    st_tensor t = {};
    EXPECT_ST(ST_OK, st_get(file, name, ST_NTS, &t));
    return {static_cast<const char *>(t.data), static_cast<size_t>(t.nbytes)};
  }
  std::string with(size_t at, const std::string &bytes) const {
    std::string out = old;
    return out.replace(at, bytes.size(), bytes);
  }

  const TempDir dir;
  const std::string path = dir / "model.safetensors";
  const std::vector<TestTensor> tensors = {u8_tensor("a", 4000, 1), u8_tensor("b", 10007, 2),
                                           u8_tensor(std::string("n\0l", 3), 30, 3)};
  const uint64_t shapes[3] = {4000, 10007, 30};
  const std::pair<std::string_view, std::string_view> metadata[2] = {
      {"format", "pt"}, {std::string_view("k\0y", 3), std::string_view("v\0", 2)}};
  const std::string old = file_of(tensors, metadata);
  const size_t a_at = old.size() - 14037, b_at = old.size() - 10037, n_at = old.size() - 30;
  const std::string new_a = pattern(4000, 81), new_b = pattern(10007, 82);
};

}  // namespace st::testing
