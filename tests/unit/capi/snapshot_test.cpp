// One state for a whole sequence of calls: descriptions by name, reads that tell what they read, and snapshots.
#include <sys/wait.h>
#include <unistd.h>

#include "scene.h"

namespace st {
namespace {

using namespace testing;
using testing::commit;
namespace fs = std::filesystem;

class CapiSnapshot : public testing::CapiScene {
 protected:
  static st_file *pin_of(st_file *file) {
    st_file *pin = nullptr;
    EXPECT_ST(ST_OK, st_snapshot(file, &pin));
    return pin;
  }
  // Tensor `name` becomes one of `rank` dimensions of one element each but the last, by a publish.
  static void put(st_file *file, const char *name, const std::string &bytes, uint32_t rank = 1) {
    std::vector<uint64_t> shape(rank, 1);
    shape.back() = bytes.size();
    st_tensor t = {};
    t.dtype = ST_DTYPE_U8;
    t.rank = rank;
    t.shape = shape.data();
    t.data = bytes.data();
    t.nbytes = bytes.size();
    st_txn *txn = nullptr;
    ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
    ASSERT_ST(ST_OK, st_txn_put(txn, name, ST_NTS, &t));
    ASSERT_ST(ST_OK, commit(txn));
  }
  static void remove(st_file *file, const char *name) {
    st_txn *txn = nullptr;
    ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
    ASSERT_ST(ST_OK, st_txn_delete(txn, name, ST_NTS));
    ASSERT_ST(ST_OK, commit(txn));
  }
};

TEST_F(CapiSnapshot, ATensorIsDescribedByItsName) {
  st_file *file = open();
  st_tensor by_name = {}, by_index = {};
  size_t i = 0;
  ASSERT_ST(ST_OK, st_find(file, "b", ST_NTS, &i));
  ASSERT_ST(ST_OK, st_at(file, i, 1, &by_index));
  ASSERT_ST(ST_OK, st_describe(file, "b", 1, &by_name));
  EXPECT_EQ(std::memcmp(&by_name, &by_index, sizeof by_name), 0);
  ASSERT_ST(ST_OK, st_describe(file, "n\0l", 3, &by_name));
  EXPECT_EQ(by_name.nbytes, 30u);
  EXPECT_ST(ST_E_NOT_FOUND, st_describe(file, "n\0l", ST_NTS, &by_name));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_describe(file, nullptr, 0, &by_name));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_describe(file, "b", 1, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_describe(nullptr, "b", 1, &by_name));
  st_close(file);
}

TEST_F(CapiSnapshot, AReadTellsWhatItRead) {
  st_file *file = open();
  std::string room(20000, '\0');
  st_tensor read = {};
  ASSERT_ST(ST_OK, st_read(file, "a", ST_NTS, room.data(), room.size(), &read));
  EXPECT_STREQ(read.name, "a");
  EXPECT_EQ(read.rank, 1u);
  EXPECT_EQ(read.shape[0], 4000u);
  EXPECT_EQ(read.nbytes, 4000u);
  EXPECT_EQ(read.data, nullptr);

  put(file, "a", new_b, 3);
  read = {};
  EXPECT_ST(ST_E_BUFFER_SIZE, st_read(file, "a", ST_NTS, room.data(), 4000, &read));
  EXPECT_EQ(read.rank, 3u);
  EXPECT_EQ(read.nbytes, 10007u);
  ASSERT_ST(ST_OK, st_read(file, "a!", 1, room.data(), read.nbytes, &read));
  EXPECT_TRUE(same_bytes(room.substr(0, 10007), new_b));
  EXPECT_ST(ST_E_BUFFER_SIZE, st_read(file, "a", ST_NTS, nullptr, 0, nullptr));

  const st_range part[3] = {ST_RANGE_ALL, ST_RANGE_ALL, {7, 17, 1}};
  read = {};
  EXPECT_ST(ST_E_BUFFER_SIZE, st_read_slice(file, "a", ST_NTS, part, 3, nullptr, 0, &read));
  EXPECT_EQ(read.nbytes, 10007u);  // of the whole tensor
  ASSERT_ST(ST_OK, st_read_slice(file, "a!", 1, part, 3, room.data(), 10, &read));
  EXPECT_TRUE(same_bytes(room.substr(0, 10), new_b.substr(7, 10)));
  EXPECT_EQ(read.rank, 3u);
  EXPECT_EQ(read.shape[2], 10007u);

  // What failed for another reason tells nothing.
  st_tensor untouched = {};
  EXPECT_ST(ST_E_NOT_FOUND, st_read(file, "x", ST_NTS, room.data(), room.size(), &untouched));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_read(file, "a", ST_NTS, nullptr, room.size(), &untouched));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_read_slice(file, "a", ST_NTS, part, 3, nullptr, 10, &untouched));
  EXPECT_EQ(untouched.name, nullptr);
  st_close(file);
}

TEST_F(CapiSnapshot, TheShapeOfASliceStaysInTheRoomThatThereIs) {
  st_file *file = open();
  put(file, "a", new_a, 4);
  uint64_t shape[5] = {99, 99, 99, 99, 99}, nbytes = 0;
  size_t rank = 0;
  EXPECT_ST(ST_E_BUFFER_SIZE, st_slice_shape(file, "a", 1, nullptr, 0, shape, 3, &rank, &nbytes));
  EXPECT_EQ(rank, 4u);
  EXPECT_EQ(nbytes, 4000u);
  EXPECT_EQ(shape[0], 99u);
  ASSERT_ST(ST_OK, st_slice_shape(file, "a", ST_NTS, nullptr, 0, shape, 4, &rank, &nbytes));
  EXPECT_EQ(shape[3], 4000u);
  EXPECT_EQ(shape[4], 99u);
  ASSERT_ST(ST_OK, st_slice_shape(file, "a", 1, nullptr, 0, nullptr, 0, &rank, nullptr));
  st_close(file);
}

TEST_F(CapiSnapshot, ShowsOneStateWhateverIsPublished) {
  for (const uint32_t map : {ST_MAP_SHARED, ST_MAP_PRIVATE, ST_MAP_NONE, ST_MAP_COPY_ON_WRITE}) {
    testing::put_bytes(path, old);
    st_file *file = open(ST_OPEN_READ_WRITE, map);
    st_file *pin = pin_of(file);
    put(file, "a", new_b, 2);
    remove(file, "b");
    st_file *later = pin_of(file);
    ASSERT_ST(ST_OK, st_refresh(pin));
    EXPECT_EQ(st_count(pin), 3u);
    EXPECT_EQ(st_count(later), 2u);
    EXPECT_TRUE(same_bytes(seen(pin, "a"), tensors[0].bytes));
    EXPECT_TRUE(same_bytes(seen(pin, "b"), tensors[1].bytes));
    EXPECT_TRUE(same_bytes(seen(later, "a"), new_b));
    std::string room(20000, '\0');
    st_tensor read = {};
    ASSERT_ST(ST_OK, st_read(pin, "b", ST_NTS, room.data(), room.size(), &read));
    EXPECT_TRUE(same_bytes(room.substr(0, read.nbytes), tensors[1].bytes));
    EXPECT_ST(ST_E_NOT_FOUND, st_read(later, "b", ST_NTS, room.data(), room.size(), &read));
    ASSERT_ST(ST_OK, st_load(pin, nullptr, 0, nullptr));
    EXPECT_TRUE(same_bytes(seen(pin, "a"), tensors[0].bytes));
    auto stats = sized<st_stats>();
    EXPECT_ST(ST_OK, st_file_stats(pin, &stats));
    auto info = sized<st_io_info>();
    EXPECT_ST(ST_OK, st_file_io_info(pin, &info));
    EXPECT_EQ(info.file_size, old.size());
    st_close(later);
    st_close(pin);
    st_close(file);
  }
}

TEST_F(CapiSnapshot, OutlivesItsHandle) {
  for (const bool first : {true, false}) {
    st_file *file = open(), *pin = pin_of(file), *of_pin = pin_of(pin);
    st_tensor view = {};
    ASSERT_ST(ST_OK, st_get(pin, "a", ST_NTS, &view));
    put(file, "b", new_a);
    st_close(first ? file : pin);
    EXPECT_TRUE(same_bytes(seen(first ? pin : file, first ? "b" : "a"), tensors[first ? 1 : 0].bytes));
    EXPECT_TRUE(same_bytes(seen(of_pin, "b"), tensors[1].bytes));
    st_close(first ? pin : file);
    EXPECT_TRUE(same_bytes(seen(of_pin, "b"), tensors[1].bytes));
    EXPECT_FALSE(fs::exists(path + ".st-journal"));  // which goes with the handle, not with what was pinned
    st_close(of_pin);
    testing::put_bytes(path, old);
  }
}

TEST_F(CapiSnapshot, IsForReadingOnly) {
  st_file *file = open(), *pin = pin_of(file);
  st_txn *txn = nullptr;
  const st_tensor v = value(0, new_a);
  EXPECT_ST(ST_E_READ_ONLY, st_txn_begin(pin, nullptr, &txn));
  EXPECT_ST(ST_E_READ_ONLY, st_update(pin, "a", ST_NTS, &v));
  st_file *again = nullptr;
  ASSERT_ST(ST_OK, st_reopen(pin, 0, &again));
  EXPECT_TRUE(same_bytes(seen(again, "a"), tensors[0].bytes));
  EXPECT_ST(ST_E_READ_ONLY, st_txn_begin(again, nullptr, &txn));
  st_close(again);
  put(file, "a", new_a);
  EXPECT_ST(ST_E_FILE_CHANGED, st_reopen(pin, 0, &again));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_snapshot(file, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_snapshot(nullptr, &again));
  st_release(pin);
  st_release(nullptr);
  EXPECT_TRUE(same_bytes(seen(pin, "a"), tensors[0].bytes));
  st_close(pin);
  st_close(file);
}

TEST_F(CapiSnapshot, OfAFileInMemory) {
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, st_open_memory(old.data(), old.size(), &file));
  st_file *pin = pin_of(file);
  st_close(file);
  EXPECT_TRUE(same_bytes(seen(pin, "b"), tensors[1].bytes));
  EXPECT_ST(ST_E_UNSUPPORTED, st_reopen(pin, 0, &file));
  st_close(pin);
}

TEST_F(CapiSnapshot, AForkedChildTakesThemToo) {
  st_file *file = open(), *pin = pin_of(file);
  const pid_t child = ::fork();
  if (child == 0) {
    st_file *own = nullptr;
    const bool good = st_snapshot(file, &own) == ST_OK && same_bytes(seen(own, "a"), tensors[0].bytes) &&
                      same_bytes(seen(pin, "b"), tensors[1].bytes);
    st_close(own);
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  st_close(pin);
  st_close(file);
}

// A state of all shards, and one under deltas.
class CapiSnapshotOfSeveral : public CapiSnapshot {
 protected:
  CapiSnapshotOfSeveral() {
    testing::put_bytes(shards / "m-1.safetensors", testing::file_of(std::vector{tensors[0]}));
    testing::put_bytes(shards / "m-2.safetensors", testing::file_of(std::vector{tensors[1]}));
    testing::put_bytes(index, R"({"metadata":{},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  }
  st_file *open_several(const char *delta = nullptr) {
    auto options = sized<st_open_options>();
    options.flags = delta ? 0 : ST_OPEN_READ_WRITE;
    options.deltas = &delta;
    options.delta_count = delta ? 1 : 0;
    st_file *file = nullptr;
    EXPECT_ST(ST_OK, st_open(index.c_str(), &options, &file));
    return file;
  }
  const testing::TempDir shards;
  const std::string index = shards / "m.safetensors.index.json";
};

TEST_F(CapiSnapshotOfSeveral, ShowsOneStateOfAllShards) {
  st_file *file = open_several();
  ASSERT_TRUE(same_bytes(seen(file, "a") + seen(file, "b"), tensors[0].bytes + tensors[1].bytes));
  st_file *pin = pin_of(file);
  put(file, "a", new_b, 2);
  put(file, "c", new_a);
  remove(file, "b");
  EXPECT_EQ(st_count(pin), 2u);
  EXPECT_EQ(st_count(file), 2u);
  EXPECT_TRUE(same_bytes(seen(pin, "a") + seen(pin, "b"), tensors[0].bytes + tensors[1].bytes));
  EXPECT_TRUE(same_bytes(seen(file, "a") + seen(file, "c"), new_b + new_a));
  st_close(file);
  EXPECT_TRUE(same_bytes(seen(pin, "a") + seen(pin, "b"), tensors[0].bytes + tensors[1].bytes));
  std::string room(20000, '\0');
  st_tensor read = {};
  ASSERT_ST(ST_OK, st_read(pin, "b", ST_NTS, room.data(), room.size(), &read));
  EXPECT_TRUE(same_bytes(room.substr(0, read.nbytes), tensors[1].bytes));
  EXPECT_EQ(read.shard, 1u);
  EXPECT_EQ(st_shard_count(pin), 2u);
  st_close(pin);
}

// They are opened when they are needed. By then another handle may have replaced them.
TEST_F(CapiSnapshotOfSeveral, ShowsNoPartOfACommitByAnotherHandle) {
  for (const bool before : {true, false}) {
    SCOPED_TRACE(before);
    st_file *file = open_several(), *other = open_several(), *pin = nullptr;
    const std::string old_a = seen(file, "a");
    if (before) pin = pin_of(file);
    auto options = sized<st_txn_options>();
    options.flags = ST_TXN_PUBLISH;
    st_txn *txn = nullptr;
    ASSERT_ST(ST_OK, st_txn_begin(other, &options, &txn));
    const std::string a = pattern(4000, before ? 91 : 93), b = pattern(10007, before ? 92 : 94);
    const st_tensor new_values[] = {value(0, a), value(1, b)};
    ASSERT_ST(ST_OK, st_txn_update(txn, "a", ST_NTS, &new_values[0]));
    ASSERT_ST(ST_OK, st_txn_update(txn, "b", ST_NTS, &new_values[1]));
    ASSERT_ST(ST_OK, commit(txn));
    if (!before) pin = pin_of(file);
    st_tensor t = {};
    for (st_file *f : {pin, file}) {
      EXPECT_TRUE(same_bytes(seen(f, "a"), old_a));
      EXPECT_ST(ST_E_FILE_CHANGED, st_get(f, "b", ST_NTS, &t));
      EXPECT_ST(ST_E_FILE_CHANGED, st_load(f, nullptr, 0, nullptr));
      std::string room(20000, '\0');
      const st_read_request both[] = {{"a", ST_NTS, 0, room.data(), 4000, nullptr, 0, 0},
                                      {"b", ST_NTS, 0, room.data() + 4000, 10007, nullptr, 0, 0}};
      EXPECT_ST(ST_E_FILE_CHANGED, st_read_many(f, both, 2, nullptr));
    }
    ASSERT_ST(ST_OK, st_refresh(file));
    EXPECT_TRUE(same_bytes(seen(file, "a") + seen(file, "b"), a + b));
    for (st_file *f : {pin, file, other}) st_close(f);
  }
}

TEST_F(CapiSnapshotOfSeveral, ShowsOneStateOfAnOverlay) {
  st_file *file = open_several();
  put(file, "a", new_b, 2);
  st_close(file);
  const testing::TempDir before;
  testing::put_bytes(before / "old.safetensors", testing::file_of(std::vector{tensors[0], tensors[1]}));
  const std::string delta = before / "delta.safetensors";
  ASSERT_ST(ST_OK, st_delta_create(index.c_str(), (before / "old.safetensors").c_str(), delta.c_str(), nullptr));
  st_file *overlay = open_several(delta.c_str()), *pin = pin_of(overlay);
  EXPECT_TRUE(same_bytes(seen(pin, "a") + seen(pin, "b"), tensors[0].bytes + tensors[1].bytes));
  ASSERT_ST(ST_OK, st_refresh(overlay));
  st_close(overlay);
  EXPECT_TRUE(same_bytes(seen(pin, "a") + seen(pin, "b"), tensors[0].bytes + tensors[1].bytes));
  EXPECT_EQ(st_shard_count(pin), 3u);
  st_close(pin);
}

}  // namespace
}  // namespace st
