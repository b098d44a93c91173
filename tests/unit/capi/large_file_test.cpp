// A file of more bytes than a machine of 32 bits has addresses: offsets are 64-bit there too, and what cannot be in
// memory is refused.
#include "scene.h"

namespace st::testing {
namespace {

constexpr uint64_t GiB = uint64_t{1} << 30, wide_bytes = 5 * GiB;
constexpr bool has_addresses = sizeof(void *) > 4;

class CapiLargeFile : public CapiScene {
 protected:
  CapiLargeFile() {
    const std::string json = R"({"wide":{"dtype":"U8","shape":[5368709120],"data_offsets":[0,5368709120]},)"
                             R"("a":{"dtype":"U8","shape":[4000],"data_offsets":[5368709120,5368713120]}} )";
    put_bytes(path, raw_file(json, ""));
    behind = 8 + json.size() + wide_bytes;
    std::filesystem::resize_file(path, behind);  // a hole, which takes no room
    poke(path, behind, tensors[0].bytes);
  }
  std::string last_bytes_of_wide(st_file *file, uint64_t n) {
    const st_range last = {static_cast<int64_t>(wide_bytes - n), static_cast<int64_t>(wide_bytes), 1};
    std::string out(n, 'x');
    EXPECT_ST(ST_OK, st_read_slice(file, "wide", ST_NTS, &last, 1, out.data(), out.size(), nullptr));
    return out;
  }
  uint64_t behind = 0;  // where "a" begins
};

TEST_F(CapiLargeFile, IsReadAndPatchedBehindFourGiB) {
  st_file *file = open();
  EXPECT_EQ(seen(file, "a"), tensors[0].bytes);
  EXPECT_EQ(last_bytes_of_wide(file, 8), std::string(8, '\0'));

  const st_tensor a = value(0, new_a);
  ASSERT_ST(ST_OK, st_update(file, "a", ST_NTS, &a));
  EXPECT_EQ(seen(file, "a"), new_a);
  const uint64_t eight = 8;
  const std::string bytes = pattern(8, 5);
  st_tensor part = value(0, bytes);
  part.shape = &eight;
  const st_range last = {static_cast<int64_t>(wide_bytes - 8), static_cast<int64_t>(wide_bytes), 1};
  st_txn *txn = nullptr;
  ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
  ASSERT_ST(ST_OK, st_txn_update_slice(txn, "wide", ST_NTS, &last, 1, nullptr, 0, &part));
  ASSERT_ST(ST_OK, commit(txn));
  EXPECT_EQ(last_bytes_of_wide(file, 8), bytes);
  st_close(file);

  std::ifstream in(path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(behind - 8));
  std::string found(8 + new_a.size(), '\0');
  in.read(found.data(), static_cast<std::streamsize>(found.size()));
  EXPECT_EQ(found, bytes + new_a);
}

TEST_F(CapiLargeFile, ATensorWithoutEnoughAddressesIsRefused) {
  for (uint32_t map : {ST_MAP_AUTO, ST_MAP_COPY_ON_WRITE}) {
    st_file *file = open(0, map);
    st_tensor wide = {};
    EXPECT_STREQ(st_status_name(st_get(file, "wide", ST_NTS, &wide)), has_addresses ? "ST_OK" : "ST_E_NOMEM");
    auto io = sized<st_io_info>();
    ASSERT_ST(ST_OK, st_file_io_info(file, &io));
    EXPECT_EQ(io.map == ST_MAP_NONE, !has_addresses) << io.map;
    EXPECT_EQ(seen(file, "a"), tensors[0].bytes);
    size_t a = 0;
    ASSERT_ST(ST_OK, st_find(file, "a", ST_NTS, &a));
    EXPECT_ST(ST_OK, st_prefetch(file, &a, 1, nullptr));
    EXPECT_ST(ST_OK, st_load(file, &a, 1, nullptr));
    EXPECT_EQ(seen(file, "a"), tensors[0].bytes);
    st_close(file);
  }
}

// Nobody can have so many bytes in memory there: the number is wrong, and no smaller one is taken for it.
TEST_F(CapiLargeFile, ACallersBytesBeyondAllAddressesAreRefused) {
  if (has_addresses) GTEST_SKIP() << "this machine has addresses for them";
  st_file *file = open();
  size_t wide = 0;
  ASSERT_ST(ST_OK, st_find(file, "wide", ST_NTS, &wide));
  EXPECT_ST(ST_E_NOMEM, st_load(file, &wide, 1, nullptr));
  st_tensor t = value(0, new_a);
  t.name = "wide";
  t.name_len = ST_NTS;
  t.shape = &wide_bytes;
  t.nbytes = wide_bytes;
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_update(file, "wide", ST_NTS, &t));
  st_txn *txn = nullptr;
  ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_update(txn, "wide", ST_NTS, &t));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_put(txn, "x", ST_NTS, &t));
  st_txn_free(txn);
  st_close(file);

  const std::string to = dir / "to.safetensors";
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_save(to.c_str(), &t, 1, nullptr, 0, nullptr));
  st_writer *writer = nullptr;
  ASSERT_ST(ST_OK, st_writer_open(to.c_str(), &t, 1, nullptr, 0, nullptr, &writer));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_writer_write(writer, "wide", ST_NTS, t.data, wide_bytes));
  st_writer_free(writer);
  EXPECT_FALSE(std::filesystem::exists(to));
}

}  // namespace
}  // namespace st::testing
