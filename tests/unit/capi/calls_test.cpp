// The calls themselves: arguments that may not be, and results that stay untouched when a call fails.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>

#include "base/little_endian.h"
#include "scene.h"

namespace st {
namespace {

using namespace testing;
using testing::commit;

class CapiCalls : public testing::CapiScene {
 protected:
  ~CapiCalls() override { st_close(file); }
  // A tensor that nobody has written into.
  static bool untouched(const st_tensor &t) {
    const auto *bytes = reinterpret_cast<const unsigned char *>(&t);
    return std::all_of(bytes, bytes + sizeof t, [](unsigned char b) { return b == 0xAB; });
  }
  st_tensor fresh() const {
    st_tensor t;
    std::memset(&t, 0xAB, sizeof t);
    return t;
  }
  // By a transaction of its own.
  st_status update_a(st_file *opened, uint32_t flags) {
    auto options = sized<st_txn_options>();
    options.flags = flags;
    st_txn *txn = nullptr;
    const st_tensor v = value(0, new_a);
    st_status s = st_txn_begin(opened, &options, &txn);
    if (s == ST_OK) s = st_txn_update(txn, "a", ST_NTS, &v);
    if (s == ST_OK) s = st_txn_commit(txn);
    st_txn_free(txn);
    return s;
  }
  st_file *file = open();
};

TEST_F(CapiCalls, NullWhereItMayNotBeIsAnInvalidArgument) {
  st_file *out = nullptr;
  st_txn *txn = nullptr;
  st_tensor t = fresh();
  size_t i = 77;
  const char *text = nullptr;
  char room[8];
  st_dtype dtype;
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_dtype_parse(nullptr, 0, &dtype));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_dtype_parse("F32", ST_NTS, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_open(nullptr, nullptr, &out));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_open(path.c_str(), nullptr, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_open_memory(nullptr, 10, &out));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_open_memory(old.data(), old.size(), nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_reopen(nullptr, 0, &out));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_reopen(file, 0, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_reopen(nullptr, ST_REOPEN_COPY_ON_WRITE, &out));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_reopen(file, ST_REOPEN_COPY_ON_WRITE, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_at(nullptr, 0, 1, &t));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_at(file, 0, 1, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_find(nullptr, "a", 1, &i));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_find(file, nullptr, 1, &i));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_find(file, "a", 1, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_metadata_at(nullptr, 0, &text, &i, &text, &i));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_metadata_get(nullptr, "format", ST_NTS, &text, &i));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_metadata_get(file, nullptr, 0, &text, &i));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_get(nullptr, "a", ST_NTS, &t));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_get(file, nullptr, 0, &t));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_get(file, "a", ST_NTS, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_get_at(file, 0, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_read(nullptr, "a", ST_NTS, room, 8, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_read(file, nullptr, 0, room, 8, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_read(file, "a", ST_NTS, nullptr, 4000, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_slice_shape(file, nullptr, 0, nullptr, 0, nullptr, 0, nullptr, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_slice_shape(file, "a", 1, nullptr, 1, nullptr, 0, nullptr, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_read_slice(file, "a", ST_NTS, nullptr, 1, room, 8, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_begin(nullptr, nullptr, &txn));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_begin(file, nullptr, nullptr));
  const st_tensor v = value(0, new_a);
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_update(nullptr, "a", ST_NTS, &v));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_update(file, nullptr, 0, &v));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_update(file, "a", ST_NTS, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_update(nullptr, "a", ST_NTS, &v));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_update_slice(nullptr, "a", ST_NTS, nullptr, 0, nullptr, 0, &v));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_put(nullptr, "a", ST_NTS, &v));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_delete(nullptr, "a", ST_NTS));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_rename(nullptr, "a", ST_NTS, "x", ST_NTS));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_set_metadata(nullptr, "a", ST_NTS, "x", ST_NTS));
  auto plan = sized<st_plan>();
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_plan(nullptr, &plan));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_commit(nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_sync(nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_refresh(nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_apply_delta(nullptr, path.c_str(), nullptr, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_apply_delta(file, nullptr, nullptr, nullptr));
  auto delta = sized<st_delta_info>();
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_delta_describe(nullptr, &delta));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_delta_describe(path.c_str(), nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_shard_path(nullptr, 0, &text));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_shard_path(file, 0, nullptr));
  auto source = sized<st_source>();
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_open_source(nullptr, nullptr, &out));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_open_source(&source, nullptr, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_open_source(&source, nullptr, &out));  // it has no way to read
  const std::string to = dir / "new";
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_join(nullptr, to.c_str(), nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_join(path.c_str(), nullptr, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_reshard(nullptr, to.c_str(), 1000, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_reshard(path.c_str(), nullptr, 1000, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_compact(nullptr, nullptr));
  EXPECT_FALSE(std::filesystem::exists(to));
  st_writer *writer = nullptr;
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_save(nullptr, nullptr, 0, nullptr, 0, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_save((dir / "new").c_str(), nullptr, 1, nullptr, 0, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_save((dir / "new").c_str(), nullptr, 0, nullptr, 1, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_writer_open(nullptr, nullptr, 0, nullptr, 0, nullptr, &writer));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_writer_open((dir / "new").c_str(), nullptr, 0, nullptr, 0, nullptr, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_writer_write(nullptr, "a", ST_NTS, room, 8));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_writer_put(nullptr, &v));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_writer_finish(nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_verify(nullptr, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_recover(nullptr, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_file_io_info(file, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_shard_io_info(file, 0, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_file_stats(file, nullptr));
  EXPECT_TRUE(untouched(t));
  EXPECT_EQ(i, 77u);
  EXPECT_EQ(out, nullptr);
  EXPECT_EQ(txn, nullptr);
  EXPECT_EQ(writer, nullptr);
  EXPECT_EQ(text, nullptr);
}

// A count that is wrong is the caller's mistake: neither a bug of the library, nor a want of memory.
TEST_F(CapiCalls, CountsThatNoMemoryHoldsAreInvalidArguments) {
  const size_t none[] = {0, 99};
  const st_read_request request = {"x", 1, 0, nullptr, 0, nullptr, 0, 0};
  const st_metadata pair = {};
  const st_tensor t = {};
  const std::string to = dir / "new";
  st_writer *writer = nullptr;
  for (const size_t n : {SIZE_MAX, SIZE_MAX / sizeof(size_t)}) {
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_load(file, none, n, nullptr)) << n;
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_prefetch(file, none, n, nullptr)) << n;
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_read_many(file, &request, n, nullptr)) << n;
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_save(to.c_str(), &t, n, nullptr, 0, nullptr)) << n;
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_save(to.c_str(), nullptr, 0, &pair, n, nullptr)) << n;
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_writer_open(to.c_str(), &t, n, nullptr, 0, nullptr, &writer)) << n;
  }
  // An index outside is told before there is memory for all.
  const size_t outside[] = {99};
  EXPECT_ST(ST_E_OUT_OF_RANGE, st_load(file, outside, size_t{1} << 40, nullptr));
  EXPECT_ST(ST_E_OUT_OF_RANGE, st_prefetch(file, outside, size_t{1} << 40, nullptr));
  EXPECT_EQ(writer, nullptr);
}

TEST_F(CapiCalls, SyncAndRefreshAreForReadersToo) {
  for (const uint32_t map : {ST_MAP_AUTO, ST_MAP_NONE, ST_MAP_COPY_ON_WRITE}) {
    put_bytes(path, old);
    st_file *reader = open(0, map), *writer = open();
    const st_tensor v = value(0, new_a);
    EXPECT_ST(ST_OK, st_update(writer, "a", ST_NTS, &v));
    EXPECT_ST(ST_OK, st_sync(reader));
    EXPECT_ST(ST_OK, st_refresh(reader));
    EXPECT_EQ(seen(reader, "a"), new_a) << map;
    EXPECT_ST(ST_E_READ_ONLY, st_update(reader, "a", ST_NTS, &v));
    st_close(reader);
    st_close(writer);
  }
  st_file *in_memory = nullptr;
  ASSERT_ST(ST_OK, st_open_memory(old.data(), old.size(), &in_memory));
  EXPECT_ST(ST_OK, st_sync(in_memory));
  EXPECT_ST(ST_OK, st_refresh(in_memory));
  EXPECT_EQ(seen(in_memory, "a"), tensors[0].bytes);
  st_close(in_memory);
}

// What waits in its parent's journal stays there.
TEST_F(CapiCalls, AForkedChildRefreshesAndSyncsNothingOfItsParents) {
  const auto journals = [&] {
    std::map<std::string, std::string> found;
    for (const auto &entry : std::filesystem::directory_iterator(path + ".st-journal"))
      found[entry.path().filename().string()] = bytes_of(entry.path().string());
    return found;
  };
  ASSERT_ST(ST_OK, update_a(file, ST_TXN_JOURNAL_ONLY));
  const auto before = journals();
  EXPECT_FALSE(before.empty());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool right = st_sync(file) == ST_OK && st_refresh(file) == ST_OK && seen(file, "a") == new_a;
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(journals(), before);
  EXPECT_ST(ST_OK, st_sync(file));
  struct statfs s = {};
  if (::statfs(dir.path().c_str(), &s) == 0 && (s.f_type == 0xEF53 || s.f_type == 0x58465342)) {
    EXPECT_NE(journals(), before) << "nothing waited, though this is ext4 or xfs";
  }
}

TEST_F(CapiCalls, NullWhereItMayBeIsFine) {
  EXPECT_EQ(st_count(nullptr), 0u);
  EXPECT_EQ(st_shard_count(nullptr), 0u);
  EXPECT_EQ(st_metadata_count(nullptr), 0u);
  st_close(nullptr);
  st_txn_free(nullptr);
  st_writer_free(nullptr);
  st_interrupt(nullptr);
  st_release(nullptr);
  EXPECT_ST(ST_OK, st_at(file, 0, 0, nullptr));
  EXPECT_ST(ST_OK, st_metadata_at(file, 0, nullptr, nullptr, nullptr, nullptr));
  EXPECT_ST(ST_OK, st_metadata_get(file, "format", ST_NTS, nullptr, nullptr));
  EXPECT_ST(ST_OK, st_slice_shape(file, "a", 1, nullptr, 0, nullptr, 0, nullptr, nullptr));
  EXPECT_ST(ST_OK, st_recover(path.c_str(), nullptr));
  EXPECT_ST(ST_OK, st_verify(path.c_str(), nullptr));
}

TEST_F(CapiCalls, AValueWithoutShapeOrDataIsRefused) {
  st_tensor v = value(0, new_a);
  v.shape = nullptr;
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_update(file, "a", ST_NTS, &v));
  v = value(0, new_a);
  v.data = nullptr;
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_update(file, "a", ST_NTS, &v));
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

TEST_F(CapiCalls, OutParametersAreUntouchedOnFailure) {
  st_tensor t = fresh();
  EXPECT_ST(ST_E_OUT_OF_RANGE, st_at(file, 3, 1, &t));
  EXPECT_ST(ST_E_OUT_OF_RANGE, st_at(file, SIZE_MAX, 1, &t));
  EXPECT_ST(ST_E_OUT_OF_RANGE, st_at(file, 1, SIZE_MAX, &t));
  EXPECT_ST(ST_E_OUT_OF_RANGE, st_get_at(file, 3, &t));
  EXPECT_ST(ST_E_NOT_FOUND, st_get(file, "x", ST_NTS, &t));
  EXPECT_TRUE(untouched(t));
  size_t n = 77;
  const char *s = "kept";
  EXPECT_ST(ST_E_NOT_FOUND, st_find(file, "x", 1, &n));
  EXPECT_ST(ST_E_OUT_OF_RANGE, st_metadata_at(file, 2, &s, &n, &s, &n));
  EXPECT_ST(ST_E_NOT_FOUND, st_metadata_get(file, "x", ST_NTS, &s, &n));
  EXPECT_EQ(n, 77u);
  EXPECT_STREQ(s, "kept");
  char room[4000];
  std::memset(room, 'R', sizeof room);
  uint64_t shape = 77, nbytes = 77;
  const st_range zero = {0, 1, 0}, two[] = {ST_RANGE_ALL, ST_RANGE_ALL}, part = {0, 100, 1};
  EXPECT_ST(ST_E_BUFFER_SIZE, st_read(file, "a", ST_NTS, room, 3999, nullptr));
  EXPECT_ST(ST_E_NOT_FOUND, st_read(file, "x", ST_NTS, room, 4000, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_slice_shape(file, "a", 1, &zero, 1, &shape, 1, nullptr, &nbytes));
  EXPECT_ST(ST_E_OUT_OF_RANGE, st_slice_shape(file, "a", 1, two, 2, &shape, 1, nullptr, &nbytes));
  EXPECT_ST(ST_E_BUFFER_SIZE, st_read_slice(file, "a", ST_NTS, &part, 1, room, 99, nullptr));
  EXPECT_EQ(shape, 77u);
  EXPECT_EQ(nbytes, 77u);
  EXPECT_TRUE(std::all_of(room, room + sizeof room, [](char c) { return c == 'R'; }));
}

TEST_F(CapiCalls, DescriptionsAreUntouchedWhereALaterShardIsMissing) {
  const std::string shards = dir / "shards";
  ASSERT_ST(ST_OK, st_reshard(path.c_str(), shards.c_str(), 5000, nullptr));
  st_file *several = nullptr;
  ASSERT_ST(ST_OK, st_open(shards.c_str(), nullptr, &several));
  ASSERT_EQ(st_shard_count(several), 3u);
  std::filesystem::remove(shards + "/model-00002-of-00003.safetensors");
  st_tensor all[3] = {fresh(), fresh(), fresh()};
  EXPECT_ST(ST_E_SHARD_MISSING, st_at(several, 0, 3, all));
  for (const st_tensor &t : all) EXPECT_TRUE(untouched(t));
  EXPECT_ST(ST_OK, st_at(several, 0, 1, all));
  st_close(several);
}

// A file of such a name could not be opened: libst, and others, take it for an index.
TEST_F(CapiCalls, NoFileIsWrittenUnderTheNameOfAnIndex) {
  const std::string folder = dir / "sharded", index = folder + "/model.safetensors.index.json";
  ASSERT_ST(ST_OK, st_reshard(path.c_str(), folder.c_str(), 5000, nullptr));
  const std::string before = bytes_of(index), link = folder + "/link.safetensors";
  std::filesystem::create_symlink(index, link);
  for (const std::string &to : {index, link, folder + "/other.safetensors.index.fp16.json"}) {
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_save(to.c_str(), nullptr, 0, nullptr, 0, nullptr));
    st_writer *writer = nullptr;
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_writer_open(to.c_str(), nullptr, 0, nullptr, 0, nullptr, &writer));
    EXPECT_EQ(writer, nullptr);
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_join(path.c_str(), to.c_str(), nullptr));
  }
  EXPECT_TRUE(same_bytes(bytes_of(index), before));
  EXPECT_ST(ST_OK, st_verify(folder.c_str(), nullptr));
}

TEST_F(CapiCalls, DescriptionsAreWholeAndZeroedWhereNothingIsKnown) {
  st_tensor t = fresh(), many[3];
  ASSERT_ST(ST_OK, st_at(file, 1, 1, &t));
  EXPECT_STREQ(t.name, "b");
  EXPECT_EQ(t.name_len, 1u);
  EXPECT_EQ(t.dtype, static_cast<st_dtype>(ST_DTYPE_U8));
  EXPECT_EQ(t.rank, 1u);
  EXPECT_EQ(t.shape[0], 10007u);
  EXPECT_EQ(t.data, nullptr);
  EXPECT_EQ(t.nbytes, 10007u);
  EXPECT_EQ(t.file_offset, b_at);
  EXPECT_EQ(t.shard | t.reserved0 | t.reserved[0] | t.reserved[1], 0u);
  ASSERT_ST(ST_OK, st_at(file, 0, 3, many));
  EXPECT_EQ(std::memcmp(&many[1], &t, sizeof t), 0);
  EXPECT_EQ(std::string(many[2].name, many[2].name_len), std::string("n\0l", 3));
  EXPECT_EQ(st_count(file), 3u);
}

TEST_F(CapiCalls, NamesComeInOneCall) {
  const std::string wanted("a\0b\0n\0l\0", 8);
  size_t size = 0;
  ASSERT_ST(ST_OK, st_names(file, nullptr, &size));
  ASSERT_EQ(size, wanted.size());
  std::string list(size + 1, '#');
  size = list.size();
  ASSERT_ST(ST_OK, st_names(file, list.data(), &size));
  EXPECT_EQ(size, wanted.size());
  EXPECT_EQ(list, wanted + '#');
  list.assign(wanted.size(), '#');
  size = wanted.size() - 1;
  EXPECT_ST(ST_E_BUFFER_SIZE, st_names(file, list.data(), &size));
  EXPECT_EQ(size, wanted.size());
  EXPECT_EQ(list, std::string(wanted.size(), '#'));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_names(file, list.data(), nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_names(nullptr, list.data(), &size));
}

TEST_F(CapiCalls, NamesComeInTheOrderOfTheDataWhereverTheHeaderHasThem) {
  const std::string json = R"({"last":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},)"
                           R"("first":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"__metadata__":{"k":"v"},)"
                           R"("next":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})";
  std::string bytes(8, 0);
  store_u64le(bytes.data(), json.size());
  bytes += json + "123";
  st_file *memory;
  ASSERT_ST(ST_OK, st_open_memory(bytes.data(), bytes.size(), &memory));
  const std::string wanted("first\0next\0last\0", 16);
  size_t size = 0;
  EXPECT_ST(ST_OK, st_names(memory, nullptr, &size));
  EXPECT_EQ(size, wanted.size());
  std::string list(size, '#');
  EXPECT_ST(ST_OK, st_names(memory, list.data(), &size));
  EXPECT_EQ(list, wanted);
  size = 3;
  EXPECT_ST(ST_E_BUFFER_SIZE, st_names(memory, list.data(), &size));
  EXPECT_EQ(size, wanted.size());
  st_close(memory);
}

TEST_F(CapiCalls, SlicesSayTheirShapeAndAreRead) {
  const st_range every3rd = {-1, INT64_MIN, -3};
  uint64_t shape, nbytes;
  ASSERT_ST(ST_OK, st_slice_shape(file, "a", 1, &every3rd, 1, &shape, 1, nullptr, &nbytes));
  EXPECT_EQ(shape, 1334u);
  EXPECT_EQ(nbytes, 1334u);
  std::string room(1334, '?'), wanted;
  for (int64_t i = 3999; i >= 0; i -= 3) wanted += tensors[0].bytes[static_cast<size_t>(i)];
  ASSERT_ST(ST_OK, st_read_slice(file, "a", ST_NTS, &every3rd, 1, room.data(), room.size(), nullptr));
  EXPECT_TRUE(same_bytes(room, wanted));
  const st_range nothing = {5, 5, 1};
  ASSERT_ST(ST_OK, st_read_slice(file, "a", ST_NTS, &nothing, 1, nullptr, 0, nullptr));
}

TEST_F(CapiCalls, MemoryIsBorrowedAndReadOnly) {
  st_file *memory = nullptr;
  ASSERT_ST(ST_OK, st_open_memory(old.data(), old.size(), &memory));
  st_tensor t;
  ASSERT_ST(ST_OK, st_get(memory, "a", ST_NTS, &t));
  EXPECT_EQ(t.data, old.data() + a_at);
  st_txn *txn = nullptr;
  EXPECT_ST(ST_E_READ_ONLY, st_txn_begin(memory, nullptr, &txn));
  const st_tensor v = value(0, new_a);
  EXPECT_ST(ST_E_READ_ONLY, st_update(memory, "a", ST_NTS, &v));
  st_file *again = nullptr;
  EXPECT_ST(ST_E_UNSUPPORTED, st_reopen(memory, 0, &again));
  EXPECT_ST(ST_E_UNSUPPORTED, st_reopen(memory, ST_REOPEN_COPY_ON_WRITE, &again));
  auto info = sized<st_io_info>();
  ASSERT_ST(ST_OK, st_file_io_info(memory, &info));
  EXPECT_EQ(info.file_size, old.size());
  EXPECT_NE(info.reason[0], '\0');
  st_close(memory);
}

// By the views of the same handle, and by those of another.
TEST_F(CapiCalls, TensorsAreSwappedByTheirViews) {
  const std::string two = dir / "two.safetensors", x = testing::pattern(300'000, 1), y = testing::pattern(300'000, 2);
  const uint64_t shape = x.size();
  for (const uint32_t map : {ST_MAP_SHARED, ST_MAP_PRIVATE, ST_MAP_NONE, ST_MAP_COPY_ON_WRITE})
    for (const bool by_another : {false, true}) {
      testing::put_bytes(
          two, testing::file_of(std::vector{testing::u8_tensor("x", shape, 1), testing::u8_tensor("y", shape, 2)}));
      st_file *file = open_at(two, ST_OPEN_READ_WRITE, map), *other = nullptr;
      ASSERT_ST(ST_OK, st_reopen(file, 0, &other));
      st_tensor a = {}, b = {};
      ASSERT_ST(ST_OK, st_get(by_another ? other : file, "x", ST_NTS, &a));
      ASSERT_ST(ST_OK, st_get(by_another ? other : file, "y", ST_NTS, &b));
      st_txn *txn = nullptr;
      ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
      EXPECT_ST(ST_OK, st_txn_update(txn, "x", ST_NTS, &b));
      EXPECT_ST(ST_OK, st_txn_update(txn, "y", ST_NTS, &a));
      EXPECT_ST(ST_OK, commit(txn));
      EXPECT_TRUE(testing::same_bytes(seen(file, "x"), y)) << map;
      EXPECT_TRUE(testing::same_bytes(seen(file, "y"), x)) << map;
      const std::string now = testing::bytes_of(two);
      EXPECT_TRUE(testing::same_bytes(now.substr(now.size() - 2 * shape), y + x)) << map;
      // One call, and a view that begins in the middle of another tensor.
      if (map != ST_MAP_NONE && map != ST_MAP_COPY_ON_WRITE) {
        ASSERT_ST(ST_OK, st_get(by_another ? other : file, "x", ST_NTS, &a));
        a.data = static_cast<const std::byte *>(a.data) + shape / 2;
        EXPECT_ST(ST_OK, st_update(file, "y", ST_NTS, &a));
        EXPECT_TRUE(testing::same_bytes(seen(file, "y"), y.substr(shape / 2) + x.substr(0, shape / 2))) << map;
      }
      st_close(other);
      st_close(file);
    }
}

TEST_F(CapiCalls, APartOfATensorIsChangedByRangesOrByIndices) {
  st_txn *txn = nullptr;
  ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
  const st_range back[] = {{2000, 1000, -10}};
  const uint64_t hundred = 100, three = 3, none = 0;
  st_tensor v = value(0, new_a);
  v.shape = &hundred;
  v.nbytes = 100;
  {
    const std::string soon_gone = new_a;
    v.data = soon_gone.data();
    EXPECT_ST(ST_OK, st_txn_update_slice(txn, "a!", 1, back, 1, nullptr, 0, &v));
  }
  const int64_t twice[] = {7, -4000, 7}, outside[] = {4000};
  v.shape = &three;
  v.nbytes = 3;
  v.data = "abc";
  EXPECT_ST(ST_OK, st_txn_update_slice(txn, "a", ST_NTS, nullptr, 0, twice, 3, &v));
  std::string wanted = tensors[0].bytes;
  for (size_t i = 0; i < 100; ++i) wanted[2000 - 10 * i] = new_a[i];
  wanted[0] = 'b', wanted[7] = 'c';

  // What is refused changes nothing of it.
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_update_slice(txn, nullptr, 0, nullptr, 0, twice, 3, &v));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_update_slice(txn, "a", ST_NTS, nullptr, 1, nullptr, 0, &v));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_update_slice(txn, "a", ST_NTS, nullptr, 0, nullptr, 3, &v));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_update_slice(txn, "a", ST_NTS, nullptr, 0, twice, 3, nullptr));
  EXPECT_ST(ST_E_OUT_OF_RANGE, st_txn_update_slice(txn, "a", ST_NTS, nullptr, 0, outside, 1, &v));
  EXPECT_ST(ST_E_SHAPE_MISMATCH, st_txn_update_slice(txn, "a", ST_NTS, nullptr, 0, twice, 2, &v));
  v.nbytes = 2;
  EXPECT_ST(ST_E_NBYTES_MISMATCH, st_txn_update_slice(txn, "a", ST_NTS, nullptr, 0, twice, 3, &v));
  v.shape = &none;
  v.nbytes = 0;
  v.data = nullptr;
  EXPECT_ST(ST_OK, st_txn_update_slice(txn, "a", ST_NTS, nullptr, 0, twice, 0, &v));  // no row
  v.data = "abc";
  EXPECT_ST(ST_E_NOT_FOUND, st_txn_update_slice(txn, "x", ST_NTS, nullptr, 0, twice, 0, &v));
  EXPECT_ST(ST_OK, commit(txn));
  EXPECT_TRUE(same_bytes(seen(file, "a"), wanted));
  EXPECT_TRUE(same_bytes(bytes_of(path), with(a_at, wanted)));
}

TEST_F(CapiCalls, APartOfElementsSmallerThanAByteBeginsAndEndsAtBytes) {
  const std::string small = dir / "f4.safetensors";
  testing::put_bytes(small, testing::file_of({{"t", Dtype::F4, {3, 4}, "123456"}}));
  st_file *f = open_at(small);
  st_txn *txn = nullptr;
  ASSERT_ST(ST_OK, st_txn_begin(f, nullptr, &txn));
  const st_range halves[] = {ST_RANGE_ALL, {2, 4, 1}}, odd[] = {ST_RANGE_ALL, {1, 3, 1}};
  const uint64_t shape[] = {3, 2};
  st_tensor v = {};
  v.dtype = ST_DTYPE_F4;
  v.rank = 2;
  v.shape = shape;
  v.nbytes = 3;
  v.data = "xyz";
  EXPECT_ST(ST_OK, st_txn_update_slice(txn, "t", ST_NTS, halves, 2, nullptr, 0, &v));
  EXPECT_ST(ST_E_SUBBYTE, st_txn_update_slice(txn, "t", ST_NTS, odd, 2, nullptr, 0, &v));
  EXPECT_ST(ST_OK, commit(txn));
  EXPECT_EQ(seen(f, "t"), "1x3y5z");
  st_close(f);
}

// For a file and for shards, and for a pin of each.
TEST_F(CapiCalls, AHandleForWritableViewsIsHadBesideAnyOther) {
  const std::string shards = dir / "shards";
  ASSERT_ST(ST_OK, st_reshard(path.c_str(), shards.c_str(), 5000, nullptr));
  for (const std::string &of : {path, shards})
    for (const bool of_pin : {false, true}) {
      st_file *opened = nullptr, *pin = nullptr, *mine = nullptr;
      ASSERT_ST(ST_OK, st_open(of.c_str(), nullptr, &opened));
      ASSERT_ST(ST_OK, st_snapshot(opened, &pin));
      ASSERT_ST(ST_OK, st_reopen(of_pin ? pin : opened, ST_REOPEN_COPY_ON_WRITE, &mine));
      auto info = sized<st_io_info>();
      ASSERT_ST(ST_OK, st_file_io_info(mine, &info));
      EXPECT_EQ(info.map, ST_MAP_COPY_ON_WRITE);
      st_tensor view = {};
      ASSERT_ST(ST_OK, st_get(mine, "b", ST_NTS, &view));
      std::memcpy(const_cast<void *>(view.data), new_b.data(), new_b.size());
      EXPECT_TRUE(same_bytes(seen(mine, "b"), new_b));
      EXPECT_TRUE(same_bytes(seen(opened, "b"), tensors[1].bytes));
      auto stats = sized<st_stats>();
      ASSERT_ST(ST_OK, st_file_stats(mine, &stats));
      EXPECT_GE(stats.bytes_private_dirty, new_b.size());
      st_txn *txn = nullptr;
      EXPECT_ST(ST_E_READ_ONLY, st_txn_begin(mine, nullptr, &txn));
      st_close(opened);
      st_close(pin);
      st_close(mine);
    }
}

// So that a binding copies all of them at once.
TEST_F(CapiCalls, TheShapesOfAFileLieInOneArray) {
  std::vector<st_tensor> all(st_count(file));
  ASSERT_ST(ST_OK, st_at(file, 0, all.size(), all.data()));
  const auto [first, last] = std::minmax_element(
      all.begin(), all.end(), [](const st_tensor &a, const st_tensor &b) { return a.shape < b.shape; });
  EXPECT_LE(static_cast<size_t>(last->shape + last->rank - first->shape), 3 * all.size());
}

TEST_F(CapiCalls, OfEachFileOfSeveralIsTold) {
  const std::string shards = dir / "shards";
  ASSERT_ST(ST_OK, st_reshard(path.c_str(), shards.c_str(), 5000, nullptr));
  st_file *several = nullptr;
  ASSERT_ST(ST_OK, st_open(shards.c_str(), nullptr, &several));
  auto info = sized<st_io_info>(), first = sized<st_io_info>();
  ASSERT_ST(ST_OK, st_file_io_info(several, &first));
  for (uint32_t i = 0; i < st_shard_count(several); ++i) {
    const char *shard = nullptr;
    ASSERT_ST(ST_OK, st_shard_path(several, i, &shard));
    ASSERT_ST(ST_OK, st_shard_io_info(several, i, &info));
    EXPECT_EQ(info.file_size, std::filesystem::file_size(shard));
    EXPECT_EQ(info.data_offset, 8 + info.header_size);
  }
  ASSERT_ST(ST_OK, st_shard_io_info(several, 0, &info));
  EXPECT_EQ(std::memcmp(&info, &first, sizeof info), 0);
  EXPECT_ST(ST_E_OUT_OF_RANGE, st_shard_io_info(several, st_shard_count(several), &info));
  st_close(several);
}

TEST_F(CapiCalls, InfoAndStatsTellWhatWasDone) {
  st_file *none = open(0, ST_MAP_NONE);
  auto info = sized<st_io_info>();
  ASSERT_ST(ST_OK, st_file_io_info(none, &info));
  EXPECT_EQ(info.map, ST_MAP_NONE);
  EXPECT_EQ(info.file_size, old.size());
  EXPECT_EQ(info.data_offset, a_at);
  EXPECT_EQ(info.header_size, a_at - 8);
  EXPECT_NE(info.filesystem[0], '\0');
  EXPECT_NE(info.reason[0], '\0');
  seen(none, "b");
  std::string room(4000, '?');
  ASSERT_ST(ST_OK, st_read(none, "a", ST_NTS, room.data(), room.size(), nullptr));
  auto stats = sized<st_stats>();
  ASSERT_ST(ST_OK, st_file_stats(none, &stats));
  EXPECT_EQ(stats.bytes_owned, 10007u);
  EXPECT_EQ(stats.bytes_read, 14007u);
  EXPECT_EQ(stats.bytes_mapped, 0u);
  EXPECT_GT(stats.index_bytes, 0u);
  st_close(none);
  const st_tensor v = value(0, new_a);
  ASSERT_ST(ST_OK, st_update(file, "a", ST_NTS, &v));
  ASSERT_ST(ST_OK, st_file_stats(file, &stats));
  EXPECT_EQ(stats.commits, 1u);
  EXPECT_EQ(stats.bytes_written, 4000u);
  EXPECT_GE(stats.journal_bytes, 4000u);
  EXPECT_EQ(stats.bytes_mapped, old.size());
}

// Counts of what was done never go back, whatever becomes of the memory into which it was read.
TEST_F(CapiCalls, BytesReadKeepTheirCountWhenTheStateIsSuperseded) {
  st_file *none = open(ST_OPEN_READ_WRITE, ST_MAP_NONE);
  const auto bytes_read = [&] {
    auto stats = sized<st_stats>();
    EXPECT_ST(ST_OK, st_file_stats(none, &stats));
    return stats.bytes_read;
  };
  seen(none, "b");
  EXPECT_EQ(bytes_read(), 10007u);
  seen(none, "b");
  EXPECT_EQ(bytes_read(), 10007u);
  ASSERT_ST(ST_OK, st_load(none, nullptr, 0, nullptr));
  const uint64_t loaded = bytes_read();
  EXPECT_GE(loaded, 14007u);
  ASSERT_ST(ST_OK, update_a(none, ST_TXN_PUBLISH));
  EXPECT_EQ(bytes_read(), loaded);
  st_close(none);
}

TEST_F(CapiCalls, StatsCountATransactionOnceHoweverManyShardsItChanges) {
  const std::string shards = dir / "shards";
  ASSERT_ST(ST_OK, st_reshard(path.c_str(), shards.c_str(), 5000, nullptr));
  st_file *several = open_at(shards);
  ASSERT_EQ(st_shard_count(several), 3u);
  const st_tensor a = value(0, new_a), b = value(1, new_b);
  auto stats = sized<st_stats>();
  uint64_t commits = 0;
  const auto expect_one = [&](const char *what, uint32_t flags, const std::function<void(st_txn *)> &stage) {
    auto o = sized<st_txn_options>();
    o.flags = flags;
    st_txn *txn = nullptr;
    ASSERT_ST(ST_OK, st_txn_begin(several, &o, &txn));
    stage(txn);
    ASSERT_ST(ST_OK, st_txn_commit(txn)) << what;
    st_txn_free(txn);
    ASSERT_ST(ST_OK, st_file_stats(several, &stats));
    EXPECT_EQ(stats.commits, ++commits) << what;
  };
  const auto change_two = [&](st_txn *txn) {
    ASSERT_ST(ST_OK, st_txn_update(txn, "a", ST_NTS, &a));
    ASSERT_ST(ST_OK, st_txn_update(txn, "b", ST_NTS, &b));
  };
  expect_one("a patch of one", 0, [&](st_txn *txn) { ASSERT_ST(ST_OK, st_txn_update(txn, "a", ST_NTS, &a)); });
  expect_one("a patch of two", 0, change_two);
  expect_one("a publish of two", ST_TXN_PUBLISH, change_two);
  expect_one("new names", ST_TXN_PUBLISH | ST_TXN_NEW_NAMES, change_two);
  expect_one("the index alone", 0,
             [](st_txn *txn) { ASSERT_ST(ST_OK, st_txn_set_metadata(txn, "k", ST_NTS, "v", ST_NTS)); });
  st_close(several);
}

TEST_F(CapiCalls, StatsSumTheShardsThatWereLookedAt) {
  const std::string shards = dir / "shards";
  ASSERT_ST(ST_OK, st_reshard(path.c_str(), shards.c_str(), 5000, nullptr));
  for (const uint32_t map : {ST_MAP_SHARED, ST_MAP_PRIVATE, ST_MAP_COPY_ON_WRITE}) {
    st_file *several = open_at(shards, 0, map), *pin = nullptr;
    ASSERT_EQ(st_shard_count(several), 3u);
    auto stats = sized<st_stats>();
    uint64_t mapped = 0;
    EXPECT_ST(ST_OK, st_file_stats(several, &stats));
    EXPECT_EQ(stats.bytes_mapped, 0u);
    EXPECT_EQ(stats.bytes_resident, 0u);
    for (const uint32_t i : {0, 1}) {
      EXPECT_TRUE(same_bytes(seen(several, tensors[i].name.c_str()), tensors[i].bytes));
      const char *shard = nullptr;
      EXPECT_ST(ST_OK, st_shard_path(several, i, &shard));
      mapped += std::filesystem::file_size(shard);
      EXPECT_ST(ST_OK, st_snapshot(several, &pin));
      for (const st_file *each : {several, pin}) {
        EXPECT_ST(ST_OK, st_file_stats(each, &stats));
        EXPECT_EQ(stats.bytes_mapped, mapped);
        EXPECT_EQ(stats.bytes_resident, mapped);
        EXPECT_EQ(stats.bytes_owned, 0u);
      }
      st_close(pin);
    }
    st_close(several);
  }
}

}  // namespace
}  // namespace st
