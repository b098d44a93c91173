// Names are given as pointer and length, and may hold NUL; or with ST_NTS they end before their first NUL. Each call
// that takes a name, a key or a value is asked in all of these ways.
#include <functional>

#include "scene.h"

namespace st::testing {
namespace {

// As a caller gives a name, and the name that it is.
struct Given {
  const char *bytes;
  size_t length;
  std::string name;
};
void PrintTo(const Given &given, std::ostream *out) {
  *out << ::testing::PrintToString(given.name) << (given.length == ST_NTS ? " by ST_NTS" : " by its length");
}

const std::string with_nul("n\0l", 3);

class CapiNames : public CapiScene, public ::testing::WithParamInterface<Given> {
 protected:
  CapiNames() { put_bytes(path, file_of({plain, other}, keys)); }

  // Whether the file has a tensor, or a key, of that name.
  bool is_there() const { return given.name == "n" || given.name == with_nul; }
  const TestTensor &wanted() const { return given.name == "n" ? plain : other; }
  const char *status() const { return is_there() ? "ST_OK" : "ST_E_NOT_FOUND"; }
  void expect(st_status answer, const char *call) const {
    EXPECT_STREQ(st_status_name(answer), status()) << call;
    if (answer != ST_E_NOT_FOUND) return;
    auto info = sized<st_error_info>();
    ASSERT_ST(ST_OK, st_last_error_info(&info));
    if (info.tensor) {
      EXPECT_EQ(std::string(info.tensor, info.tensor_len), given.name) << call;
    }
  }
  static std::string name_of(const st_tensor &t) { return {t.name, t.name_len}; }
  static std::vector<std::string> names(st_file *file) {
    std::vector<std::string> out;
    std::vector<st_tensor> all(st_count(file));
    EXPECT_ST(ST_OK, st_at(file, 0, all.size(), all.data()));
    for (const st_tensor &t : all) out.push_back(name_of(t));
    return out;
  }
  std::string seen_as_given(st_file *file) const {
    st_tensor t = {};
    EXPECT_ST(ST_OK, st_get(file, given.name.data(), given.name.size(), &t));
    return {static_cast<const char *>(t.data), static_cast<size_t>(t.nbytes)};
  }
  // A value that is called as the parameter says.
  st_tensor tensor(const std::string &bytes) {
    size = bytes.size();
    st_tensor t = {};
    t.name = given.bytes;
    t.name_len = given.length;
    t.dtype = ST_DTYPE_U8;
    t.rank = 1;
    t.shape = &size;
    t.nbytes = size;
    t.data = bytes.data();
    return t;
  }
  // In a file with this one tensor, and with this pair of metadata.
  void expect_alone(const std::string &of, const std::string &bytes) {
    st_file *file = nullptr;
    ASSERT_ST(ST_OK, st_open(of.c_str(), nullptr, &file));
    EXPECT_EQ(names(file), std::vector{given.name});
    st_tensor t = {};
    ASSERT_ST(ST_OK, st_get_at(file, 0, &t));
    EXPECT_TRUE(same_bytes({static_cast<const char *>(t.data), static_cast<size_t>(t.nbytes)}, bytes));
    const char *key = nullptr, *value = nullptr;
    size_t key_length = 0, value_length = 0;
    ASSERT_ST(ST_OK, st_metadata_at(file, 0, &key, &key_length, &value, &value_length));
    EXPECT_EQ(std::string(key, key_length), given.name);
    EXPECT_EQ(std::string(value, value_length), given.name);
    st_close(file);
  }

  const Given given = GetParam();
  const TestTensor plain = u8_tensor("n", 50, 1), other = u8_tensor(with_nul, 30, 2);
  const std::pair<std::string_view, std::string_view> keys[2] = {{"n", "plain"}, {with_nul, "with nul"}};
  uint64_t size = 0;
};

INSTANTIATE_TEST_SUITE_P(Ways, CapiNames,
                         ::testing::Values(Given{"n", ST_NTS, "n"}, Given{"n", 1, "n"}, Given{"n!", 1, "n"},
                                           Given{"n\0l", ST_NTS, "n"}, Given{"n\0l", 3, with_nul},
                                           Given{"n\0l!", 3, with_nul}, Given{"n\0l", 2, std::string("n\0", 2)},
                                           Given{"n!", ST_NTS, "n!"}, Given{"", ST_NTS, ""}, Given{"n", 0, ""}));

TEST_P(CapiNames, AreFound) {
  st_file *file = open();
  st_tensor t = {};
  size_t i = 99;
  expect(st_describe(file, given.bytes, given.length, &t), "st_describe");
  expect(st_find(file, given.bytes, given.length, &i), "st_find");
  if (is_there()) {
    EXPECT_EQ(name_of(t), given.name);
    EXPECT_EQ(t.nbytes, wanted().bytes.size());
    EXPECT_EQ(i, given.name == "n" ? 0u : 1u);
  }
  const char *text = nullptr;
  size_t length = 0;
  expect(st_metadata_get(file, given.bytes, given.length, &text, &length), "st_metadata_get");
  if (is_there()) {
    EXPECT_EQ(std::string(text, length), given.name == "n" ? "plain" : "with nul");
  }
  st_close(file);
}

TEST_P(CapiNames, AreRead) {
  st_file *file = open();
  st_tensor t = {};
  expect(st_get(file, given.bytes, given.length, &t), "st_get");
  if (is_there()) {
    EXPECT_TRUE(same_bytes({static_cast<const char *>(t.data), static_cast<size_t>(t.nbytes)}, wanted().bytes));
  }
  const st_range but_two = {2, INT64_MAX, 1};
  std::string room(100, '?');
  uint64_t nbytes = 0;
  expect(st_read(file, given.bytes, given.length, room.data(), room.size(), &t), "st_read");
  if (is_there()) {
    EXPECT_TRUE(same_bytes(room.substr(0, t.nbytes), wanted().bytes));
  }
  expect(st_slice_shape(file, given.bytes, given.length, &but_two, 1, nullptr, 0, nullptr, &nbytes), "st_slice_shape");
  expect(st_read_slice(file, given.bytes, given.length, &but_two, 1, room.data(), room.size(), nullptr),
         "st_read_slice");
  if (is_there()) {
    EXPECT_TRUE(same_bytes(room.substr(0, nbytes), wanted().bytes.substr(2)));
  }
  std::string many(100, '?');
  const st_read_request request = {given.bytes, given.length, 77, many.data(), many.size(), nullptr, 0, 0};
  expect(st_read_many(file, &request, 1, nullptr), "st_read_many");
  if (is_there()) {
    EXPECT_TRUE(same_bytes(many.substr(0, nbytes + 2), wanted().bytes));
  }
  st_close(file);
}

TEST_P(CapiNames, AreUpdated) {
  const std::string first = pattern(wanted().bytes.size(), 7), second = pattern(first.size(), 8);
  st_file *file = open();
  st_tensor t = tensor(first);
  expect(st_update(file, given.bytes, given.length, &t), "st_update");
  if (is_there()) {
    EXPECT_TRUE(same_bytes(seen_as_given(file), first));
  }
  t.data = second.data();
  st_txn *txn = nullptr;
  ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
  expect(st_txn_update(txn, given.bytes, given.length, &t), "st_txn_update");
  ASSERT_ST(ST_OK, commit(txn));
  if (is_there()) {
    EXPECT_TRUE(same_bytes(seen_as_given(file), second));
  }
  st_close(file);
}

TEST_P(CapiNames, AreDeleted) {
  st_file *file = open();
  st_txn *txn = nullptr;
  ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
  expect(st_txn_delete(txn, given.bytes, given.length), "st_txn_delete");
  expect(st_txn_set_metadata(txn, given.bytes, given.length, nullptr, ST_NTS), "st_txn_set_metadata");
  ASSERT_ST(ST_OK, commit(txn));
  std::vector<std::string> left = {"n", with_nul};
  std::erase(left, given.name);
  EXPECT_EQ(names(file), left);
  EXPECT_EQ(st_metadata_count(file), left.size());
  st_close(file);
}

TEST_P(CapiNames, AreRenamed) {
  st_file *file = open();
  st_txn *txn = nullptr;
  ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
  expect(st_txn_rename(txn, given.bytes, given.length, "aside\0!", ST_NTS), "st_txn_rename");
  // To that name, now that it is free.
  EXPECT_ST(ST_OK,
            st_txn_rename(txn, given.name == "n" ? "n\0l" : "n", given.name == "n" ? 3 : 1, given.bytes, given.length));
  ASSERT_ST(ST_OK, commit(txn));
  std::vector<std::string> now = names(file), then = {given.name, is_there() ? "aside" : with_nul};
  std::sort(now.begin(), now.end());
  std::sort(then.begin(), then.end());
  EXPECT_EQ(now, then);
  st_close(file);
}

TEST_P(CapiNames, ArePutAndSet) {
  const std::string bytes = pattern(44, 7);
  const st_tensor t = tensor(bytes);
  st_file *file = open();
  st_txn *txn = nullptr;
  ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
  ASSERT_ST(ST_OK, st_txn_put(txn, given.bytes, given.length, &t));
  ASSERT_ST(ST_OK, st_txn_set_metadata(txn, given.bytes, given.length, given.bytes, given.length));
  ASSERT_ST(ST_OK, commit(txn));
  EXPECT_TRUE(same_bytes(seen_as_given(file), bytes));
  EXPECT_EQ(st_count(file), is_there() ? 2u : 3u);
  const char *text = nullptr;
  size_t length = 0;
  ASSERT_ST(ST_OK, st_metadata_get(file, given.name.data(), given.name.size(), &text, &length));
  EXPECT_EQ(std::string(text, length), given.name);
  EXPECT_EQ(st_metadata_count(file), is_there() ? 2u : 3u);
  st_close(file);
}

TEST_P(CapiNames, AreSavedAndWritten) {
  const std::string bytes = pattern(44, 7), to = dir / "new.safetensors";
  const st_tensor t = tensor(bytes);
  const st_metadata pair = {given.bytes, given.length, given.bytes, given.length};
  ASSERT_ST(ST_OK, st_save(to.c_str(), &t, 1, &pair, 1, nullptr));
  expect_alone(to, bytes);

  st_writer *writer = nullptr;
  ASSERT_ST(ST_OK, st_writer_open(to.c_str(), &t, 1, &pair, 1, nullptr, &writer));
  EXPECT_ST(ST_E_NOT_FOUND, st_writer_write(writer, "another", ST_NTS, bytes.data(), 1));
  EXPECT_ST(ST_OK, st_writer_write(writer, given.bytes, given.length, bytes.data(), 4));
  EXPECT_ST(ST_OK, st_writer_write(writer, given.name.data(), given.name.size(), bytes.data() + 4, 40));
  EXPECT_ST(ST_OK, st_writer_finish(writer));
  st_writer_free(writer);
  expect_alone(to, bytes);

  for (const size_t declared : {0, 1}) {
    ASSERT_ST(ST_OK, st_writer_open(to.c_str(), &t, declared, &pair, 1, nullptr, &writer));
    EXPECT_ST(ST_OK, st_writer_put(writer, &t));
    EXPECT_ST(ST_OK, st_writer_finish(writer));
    st_writer_free(writer);
    expect_alone(to, bytes);
  }
}

TEST(CapiNamesOfDtypes, EndAtTheirLengthOrBeforeTheirNul) {
  st_dtype dtype = 0;
  for (const auto &[name, length] : {std::pair<const char *, size_t>("F32", ST_NTS), {"F32", 3}, {"F32!", 3}}) {
    dtype = 0;
    EXPECT_ST(ST_OK, st_dtype_parse(name, length, &dtype));
    EXPECT_EQ(dtype, static_cast<st_dtype>(ST_DTYPE_F32));
  }
  for (const auto &[name, length] :
       {std::pair<const char *, size_t>("F32", 2), {"F32", 0}, {"F32", 4}, {"F32!", ST_NTS}, {"", ST_NTS}})
    EXPECT_ST(ST_E_DTYPE, st_dtype_parse(name, length, &dtype));
}

using CapiReservedName = CapiScene;

TEST_F(CapiReservedName, IsAnInvalidArgumentOfEachCallThatGivesNames) {
  const std::string name = "__metadata__", to = dir / "new.safetensors";
  st_tensor t = value(0, new_a);
  t.name = name.data();
  t.name_len = name.size();
  st_writer *writer = nullptr;
  st_file *file = open();
  st_txn *txn = nullptr;
  ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
  const auto expect_refused = [&](st_status answer, const char *call) {
    EXPECT_STREQ(st_status_name(answer), "ST_E_INVALID_ARGUMENT") << call;
    auto info = sized<st_error_info>();
    ASSERT_ST(ST_OK, st_last_error_info(&info));
    ASSERT_NE(info.tensor, nullptr) << call;
    EXPECT_EQ(std::string(info.tensor, info.tensor_len), name) << call;
  };
  expect_refused(st_txn_put(txn, name.data(), name.size(), &t), "st_txn_put");
  expect_refused(st_txn_rename(txn, "a", ST_NTS, name.data(), name.size()), "st_txn_rename");
  expect_refused(st_save(to.c_str(), &t, 1, nullptr, 0, nullptr), "st_save");
  expect_refused(st_writer_open(to.c_str(), &t, 1, nullptr, 0, nullptr, &writer), "st_writer_open");
  EXPECT_EQ(writer, nullptr);
  ASSERT_ST(ST_OK, st_writer_open(to.c_str(), nullptr, 0, nullptr, 0, nullptr, &writer));
  expect_refused(st_writer_put(writer, &t), "st_writer_put");
  st_writer_free(writer);
  st_txn_free(txn);
  st_close(file);
  EXPECT_FALSE(std::filesystem::exists(to));
}

using CapiValues = CapiScene;

TEST_F(CapiValues, MayBeMissingWhereTheyHaveNoLength) {
  const st_metadata empty = {"k", ST_NTS, nullptr, 0}, missing = {"k", ST_NTS, nullptr, 3},
                    keyless = {nullptr, 0, "", 0};
  const std::string to = dir / "new.safetensors";
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_save(to.c_str(), nullptr, 0, &missing, 1, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_save(to.c_str(), nullptr, 0, &keyless, 1, nullptr));
  EXPECT_FALSE(std::filesystem::exists(to));
  ASSERT_ST(ST_OK, st_save(to.c_str(), nullptr, 0, &empty, 1, nullptr));
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, st_open(to.c_str(), nullptr, &file));
  const char *text = nullptr;
  size_t length = 99;
  ASSERT_ST(ST_OK, st_metadata_get(file, "k", ST_NTS, &text, &length));
  EXPECT_EQ(length, 0u);
  st_close(file);
  // NULL removes if it has no length. With 0 it is the empty value, as an empty string of C++ is.
  file = open();
  st_txn *txn = nullptr;
  ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
  EXPECT_ST(ST_OK, st_txn_set_metadata(txn, "format", ST_NTS, nullptr, ST_NTS));
  EXPECT_ST(ST_E_NOT_FOUND, st_txn_set_metadata(txn, "format", ST_NTS, nullptr, ST_NTS));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_set_metadata(txn, "format", ST_NTS, nullptr, 3));
  EXPECT_ST(ST_OK, st_txn_set_metadata(txn, "empty", ST_NTS, std::string_view().data(), std::string_view().size()));
  ASSERT_ST(ST_OK, commit(txn));
  EXPECT_EQ(st_metadata_count(file), 2u);
  EXPECT_ST(ST_E_NOT_FOUND, st_metadata_get(file, "format", ST_NTS, nullptr, nullptr));
  ASSERT_ST(ST_OK, st_metadata_get(file, "empty", ST_NTS, &text, &length));
  EXPECT_EQ(std::string_view(text, length), "");
  st_close(file);
}

}  // namespace
}  // namespace st::testing
