// The bulk reads of the C ABI: every status that st.h names for them, and what
// the handle tells of them afterwards.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "scene.h"

namespace st {
namespace {

using namespace testing;

class CapiBulk : public testing::CapiScene {
 protected:
  static st_open_options options(uint32_t map = ST_MAP_AUTO) {
    auto o = sized<st_open_options>();
    o.map = map;
    o.prefetch = ST_PREFETCH_PARALLEL;  // also on a filesystem in memory
    return o;
  }
  st_file *open_with(const st_open_options &o) {
    st_file *file = nullptr;
    EXPECT_ST(ST_OK, st_open(path.c_str(), &o, &file));
    return file;
  }
  static st_read_request request(const char *name, std::string &room) {
    return {name, name ? std::strlen(name) : 0, 0, room.data(), room.size(), nullptr, 0, 0};
  }
  static st_status read_one(st_file *file, const st_read_request &r) { return st_read_many(file, &r, 1, nullptr); }
  static uint64_t owned(const st_file *file) {
    auto stats = sized<st_stats>();
    EXPECT_ST(ST_OK, st_file_stats(file, &stats));
    return stats.bytes_owned;
  }
  static int say_no(void *, uint64_t, uint64_t) { return 1; }
  std::string a_room = std::string(4000, '?'), b_room = std::string(10007, '?'), n_room = std::string(30, '?');
};

TEST_F(CapiBulk, ManyAreReadByNameByIndexAndInPart) {
  for (uint32_t map : {ST_MAP_AUTO, ST_MAP_PRIVATE, ST_MAP_NONE, ST_MAP_COPY_ON_WRITE}) {
    st_file *file = open_with(options(map));
    const st_range some = {10, 1010, 1};
    std::string part(1000, '?');
    const st_read_request requests[] = {{"n\0l", 3, 77, n_room.data(), 30, nullptr, 0, 0},
                                        {nullptr, 0, 1, b_room.data(), b_room.size(), nullptr, 0, 0},
                                        {"b", 1, 0, part.data(), part.size(), &some, 1, 0},
                                        request("a", a_room)};
    ASSERT_ST(ST_OK, st_read_many(file, requests, 4, nullptr));
    EXPECT_TRUE(same_bytes(a_room, tensors[0].bytes));
    EXPECT_TRUE(same_bytes(b_room, tensors[1].bytes));
    EXPECT_TRUE(same_bytes(n_room, tensors[2].bytes));
    EXPECT_TRUE(same_bytes(part, tensors[1].bytes.substr(10, 1000)));
    auto stats = sized<st_stats>();
    ASSERT_ST(ST_OK, st_file_stats(file, &stats));
    EXPECT_GE(stats.read_requests, 1u);
    EXPECT_GE(stats.bytes_read, 14037u);
    st_close(file);
  }
}

TEST_F(CapiBulk, ALoadKeepsWhatWasWrittenIntoCopyOnWriteViews) {
  st_file *file = open_with(options(ST_MAP_COPY_ON_WRITE));
  st_tensor before = {}, after = {};
  ASSERT_ST(ST_OK, st_get(file, "b", ST_NTS, &before));
  auto *mine = static_cast<char *>(const_cast<void *>(before.data));
  mine[5000] = '!';
  std::string kept = tensors[1].bytes;
  kept[5000] = '!';
  for (int loads = 0; loads < 2; ++loads) {
    ASSERT_ST(ST_OK, st_load(file, nullptr, 0, nullptr));
    ASSERT_ST(ST_OK, st_get(file, "b", ST_NTS, &after));
    EXPECT_EQ(after.data, before.data);
    EXPECT_TRUE(same_bytes(seen(file, "b"), kept));
    EXPECT_TRUE(same_bytes(seen(file, "a"), tensors[0].bytes));
  }
  // The pages are the process's own now: no patch from elsewhere shows in them.
  auto stats = sized<st_stats>();
  ASSERT_ST(ST_OK, st_file_stats(file, &stats));
  EXPECT_GE(stats.bytes_private_dirty, 14000u);
  EXPECT_EQ(stats.bytes_owned, 0u);
  testing::poke(path, b_at + 9000, "elsewhere");
  EXPECT_TRUE(same_bytes(seen(file, "b"), kept));
  st_close(file);
}

TEST_F(CapiBulk, NoneAreReadWithoutAnythingToRead) {
  st_file *file = open();
  EXPECT_ST(ST_OK, st_read_many(file, nullptr, 0, nullptr));
  const size_t none = 0;
  EXPECT_ST(ST_OK, st_prefetch(file, &none, 0, nullptr));
  EXPECT_ST(ST_OK, st_load(file, &none, 0, nullptr));
  auto stats = sized<st_stats>();
  ASSERT_ST(ST_OK, st_file_stats(file, &stats));
  EXPECT_EQ(stats.read_requests, 0u);
  EXPECT_EQ(stats.bytes_owned, 0u);
  st_close(file);
}

TEST_F(CapiBulk, BadArgumentsAreRefused) {
  st_file *file = open();
  const st_read_request a = request("a", a_room);
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_read_many(nullptr, &a, 1, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_read_many(file, nullptr, 1, nullptr));
  st_read_request bad = a;
  bad.dst = nullptr;
  EXPECT_ST(ST_E_INVALID_ARGUMENT, read_one(file, bad));
  bad = a;
  bad.range_count = 1;
  EXPECT_ST(ST_E_INVALID_ARGUMENT, read_one(file, bad));
  const st_range still = {0, 10, 0}, all[2] = {ST_RANGE_ALL, ST_RANGE_ALL};
  bad.ranges = &still;
  EXPECT_ST(ST_E_INVALID_ARGUMENT, read_one(file, bad));
  bad.ranges = all;
  bad.range_count = 2;
  EXPECT_ST(ST_E_OUT_OF_RANGE, read_one(file, bad));
  bad = a;
  bad.name = nullptr;
  for (const size_t index : {size_t{3}, SIZE_MAX, SIZE_MAX / 2 + 1}) {
    bad.index = index;
    EXPECT_ST(ST_E_OUT_OF_RANGE, read_one(file, bad));
    EXPECT_ST(ST_E_OUT_OF_RANGE, st_prefetch(file, &index, 1, nullptr));
    EXPECT_ST(ST_E_OUT_OF_RANGE, st_load(file, &index, 1, nullptr));
  }
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_prefetch(nullptr, nullptr, 0, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_prefetch(file, nullptr, 1, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_load(nullptr, nullptr, 0, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_load(file, nullptr, 1, nullptr));
  EXPECT_EQ(a_room, std::string(4000, '?'));
  st_close(file);
}

TEST_F(CapiBulk, AWrongRequestNamesItsTensorAndNothingIsRead) {
  st_file *file = open();
  std::string small(9, '?');
  const st_read_request requests[] = {request("a", a_room), request("b", small)};
  EXPECT_ST(ST_E_BUFFER_SIZE, st_read_many(file, requests, 2, nullptr));
  auto info = sized<st_error_info>();
  ASSERT_ST(ST_OK, st_last_error_info(&info));
  EXPECT_STREQ(info.tensor, "b");
  EXPECT_ST(ST_E_NOT_FOUND, read_one(file, request("absent", a_room)));
  ASSERT_ST(ST_OK, st_last_error_info(&info));
  EXPECT_STREQ(info.tensor, "absent");
  EXPECT_EQ(a_room, std::string(4000, '?'));
  st_close(file);
}

TEST_F(CapiBulk, ElementsCutInsideAByteAreRefused) {
  put_bytes(path, testing::file_of({{"f4", Dtype::F4, {8}, "1234"}}));
  st_file *file = open(0);
  const st_range cut = {1, 5, 1};
  st_read_request r = request("f4", a_room);
  r.ranges = &cut;
  r.range_count = 1;
  EXPECT_ST(ST_E_SUBBYTE, read_one(file, r));
  st_close(file);
}

TEST_F(CapiBulk, ProgressCancelsEachCall) {
  for (uint32_t map : {ST_MAP_AUTO, ST_MAP_NONE}) {
    st_file *file = open_with(options(map));
    const st_read_request a = request("a", a_room);
    auto bulk = sized<st_bulk_options>();
    bulk.progress = say_no;
    EXPECT_ST(ST_E_CANCELLED, st_read_many(file, &a, 1, &bulk));
    EXPECT_ST(ST_E_CANCELLED, st_prefetch(file, nullptr, 0, &bulk));
    EXPECT_ST(ST_E_CANCELLED, st_load(file, nullptr, 0, &bulk));
    st_close(file);
    st_open_options o = options(map);
    o.progress = say_no;  // the handle's, where the call has none
    file = open_with(o);
    const auto none = sized<st_bulk_options>();
    for (const st_bulk_options *without : {static_cast<const st_bulk_options *>(nullptr), &none}) {
      EXPECT_ST(ST_E_CANCELLED, st_read_many(file, &a, 1, without));
      EXPECT_ST(ST_E_CANCELLED, st_prefetch(file, nullptr, 0, without));
      EXPECT_ST(ST_E_CANCELLED, st_load(file, nullptr, 0, without));
    }
    bulk.progress = [](void *, uint64_t, uint64_t) { return 0; };
    EXPECT_ST(ST_OK, st_read_many(file, &a, 1, &bulk));
    EXPECT_ST(ST_OK, st_prefetch(file, nullptr, 0, &bulk));
    EXPECT_ST(ST_OK, st_load(file, nullptr, 0, &bulk));
    st_close(file);
  }
}

TEST_F(CapiBulk, AnInterruptEndsEachCallAndNotTheNext) {
  st_open_options o = options();
  o.block_size = 1;  // the smallest that there is
  put_bytes(path, testing::file_of({testing::u8_tensor("a", 300000, 1)}));
  st_file *file = open_with(o);
  std::string room(300000, '?');
  const st_read_request a = request("a", room);
  auto bulk = sized<st_bulk_options>();
  bulk.progress = [](void *user, uint64_t done, uint64_t) {
    if (done == 0) st_interrupt(static_cast<st_file *>(user));
    return 0;
  };
  bulk.progress_user = file;
  EXPECT_ST(ST_E_INTERRUPTED, st_read_many(file, &a, 1, &bulk));
  EXPECT_ST(ST_E_INTERRUPTED, st_prefetch(file, nullptr, 0, &bulk));
  EXPECT_ST(ST_E_INTERRUPTED, st_load(file, nullptr, 0, &bulk));
  EXPECT_ST(ST_OK, st_read_many(file, &a, 1, nullptr));
  st_close(file);
}

TEST_F(CapiBulk, AFileTruncatedUnderTheHandleHasChanged) {
  for (uint32_t direct : {ST_DIRECT_OFF, ST_DIRECT_ON}) {
    put_bytes(path, old);
    st_open_options o = options();
    o.direct = direct;
    st_file *file = open_with(o);
    std::filesystem::resize_file(path, b_at + 5);
    EXPECT_ST(ST_E_FILE_CHANGED, read_one(file, request("b", b_room)));
    EXPECT_ST(ST_E_FILE_CHANGED, st_prefetch(file, nullptr, 0, nullptr));
    EXPECT_ST(ST_E_FILE_CHANGED, st_load(file, nullptr, 0, nullptr));
    EXPECT_ST(ST_OK, read_one(file, request("a", a_room)));
    st_close(file);
  }
}

TEST_F(CapiBulk, AFileGivenAsMemoryTakesEveryCall) {
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, st_open_memory(old.data(), old.size(), &file));
  EXPECT_ST(ST_OK, read_one(file, request("b", b_room)));
  EXPECT_TRUE(same_bytes(b_room, tensors[1].bytes));
  EXPECT_ST(ST_OK, st_prefetch(file, nullptr, 0, nullptr));
  EXPECT_ST(ST_OK, st_prefetch(file, nullptr, 0, nullptr));
  EXPECT_ST(ST_OK, st_load(file, nullptr, 0, nullptr));
  EXPECT_EQ(seen(file, "a"), tensors[0].bytes);
  const size_t index = 3;
  EXPECT_ST(ST_E_OUT_OF_RANGE, st_load(file, &index, 1, nullptr));
  auto info = sized<st_io_info>();
  ASSERT_ST(ST_OK, st_file_io_info(file, &info));
  EXPECT_EQ(info.prefetch, ST_PREFETCH_NONE);
  EXPECT_EQ(info.direct, ST_DIRECT_OFF);
  EXPECT_STRNE(info.prefetch_reason, "");
  st_close(file);
}

TEST_F(CapiBulk, LoadedViewsOutliveTheTruncationOfTheFile) {
  for (uint32_t flags : {0u, ST_BULK_HUGE_PAGES, ST_BULK_DIRECT, ST_BULK_HUGE_PAGES | ST_BULK_DIRECT}) {
    put_bytes(path, old);
    st_file *file = open();
    auto load = sized<st_bulk_options>();
    load.flags = flags;
    const size_t indices[] = {1, 0, 1};
    ASSERT_ST(ST_OK, st_load(file, indices, 3, &load));
    std::filesystem::resize_file(path, 10);
    EXPECT_EQ(seen(file, "a"), tensors[0].bytes);
    EXPECT_EQ(seen(file, "b"), tensors[1].bytes);
    auto stats = sized<st_stats>();
    ASSERT_ST(ST_OK, st_file_stats(file, &stats));
    EXPECT_EQ(stats.bytes_owned, 14007u);
    st_close(file);
  }
}

TEST_F(CapiBulk, MemoryOfTheHandleGoesByARefreshAfterARelease) {
  for (const uint32_t map : {ST_MAP_SHARED, ST_MAP_NONE}) {
    st_file *file = open_with(options(map));
    ASSERT_ST(ST_OK, st_load(file, nullptr, 0, nullptr));
    EXPECT_EQ(owned(file), 14037u);
    st_release(file);
    EXPECT_EQ(owned(file), 14037u);
    ASSERT_ST(ST_OK, st_refresh(file));
    EXPECT_EQ(owned(file), 0u);
    EXPECT_EQ(seen(file, "a"), tensors[0].bytes);
    st_close(file);
  }
}

TEST_F(CapiBulk, MemoryOfShardsGoesByARefreshUnlessSomebodyMayLookAtIt) {
  const std::string folder = dir / "shards";
  ASSERT_ST(ST_OK, st_reshard(path.c_str(), folder.c_str(), 4100, nullptr));
  for (const uint32_t map : {ST_MAP_SHARED, ST_MAP_NONE}) {
    auto o = options(map);
    st_file *file = nullptr, *writer = nullptr, *pin = nullptr;
    ASSERT_ST(ST_OK, st_open(folder.c_str(), &o, &file));
    o.flags = ST_OPEN_READ_WRITE;
    ASSERT_ST(ST_OK, st_open(folder.c_str(), &o, &writer));
    // Nobody was given any of it.
    ASSERT_ST(ST_OK, st_load(file, nullptr, 0, nullptr));
    EXPECT_EQ(owned(file), 14037u);
    st_release(file);
    EXPECT_EQ(owned(file), 14037u);
    ASSERT_ST(ST_OK, st_refresh(file));
    EXPECT_EQ(owned(file), 0u);

    // A view: it stays where it is, and shows what others have patched.
    ASSERT_ST(ST_OK, st_load(file, nullptr, 0, nullptr));
    st_tensor before = {}, after = {};
    ASSERT_ST(ST_OK, st_get(file, "a", ST_NTS, &before));
    const st_tensor patch = value(0, new_a);
    ASSERT_ST(ST_OK, st_update(writer, "a", ST_NTS, &patch));
    ASSERT_ST(ST_OK, st_refresh(file));
    EXPECT_EQ(owned(file), 14037u);
    ASSERT_ST(ST_OK, st_get(file, "a", ST_NTS, &after));
    EXPECT_EQ(before.data, after.data);
    EXPECT_EQ(seen(file, "a"), new_a);

    // A snapshot, which may be looked at.
    ASSERT_ST(ST_OK, st_snapshot(file, &pin));
    st_release(file);
    ASSERT_ST(ST_OK, st_refresh(file));
    EXPECT_EQ(owned(file), 14037u);
    EXPECT_EQ(seen(pin, "a"), new_a);
    st_close(pin);
    ASSERT_ST(ST_OK, st_refresh(file));
    EXPECT_EQ(owned(file), 0u);
    EXPECT_EQ(seen(file, "a"), new_a);
    const st_tensor back = value(0, tensors[0].bytes);
    ASSERT_ST(ST_OK, st_update(writer, "a", ST_NTS, &back));
    st_close(writer);
    st_close(file);
  }
}

TEST_F(CapiBulk, AnUpdateShowsInLoadedViews) {
  st_file *file = open();
  ASSERT_ST(ST_OK, st_load(file, nullptr, 0, nullptr));
  st_tensor view;
  ASSERT_ST(ST_OK, st_get(file, "a", ST_NTS, &view));
  const st_tensor fresh = value(0, new_a);
  ASSERT_ST(ST_OK, st_update(file, "a", ST_NTS, &fresh));
  EXPECT_EQ(std::memcmp(view.data, new_a.data(), new_a.size()), 0);
  EXPECT_EQ(seen(file, "b"), tensors[1].bytes);
  st_close(file);
}

TEST_F(CapiBulk, InfoAndStatsTellHowBulkReadsGo) {
  st_open_options o = options();
  o.direct = ST_DIRECT_ON;
  o.io_threads = 5;
  o.block_size = 1 << 20;
  st_file *file = open_with(o);
  auto info = sized<st_io_info>();
  ASSERT_ST(ST_OK, st_file_io_info(file, &info));
  EXPECT_EQ(info.prefetch, ST_PREFETCH_PARALLEL);
  EXPECT_EQ(info.direct, ST_DIRECT_ON);
  EXPECT_EQ(info.io_threads, 5u);
  EXPECT_EQ(info.block_size, 1u << 20);
  EXPECT_NE(std::string_view(info.prefetch_reason).find("5 readers"), std::string_view::npos);
  ASSERT_ST(ST_OK, st_prefetch(file, nullptr, 0, nullptr));
  auto stats = sized<st_stats>();
  ASSERT_ST(ST_OK, st_file_stats(file, &stats));
  EXPECT_EQ(stats.bytes_prefetched, 14037u);
  EXPECT_EQ(stats.reopens, 0u);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool right =
        seen(file, "a") == tensors[0].bytes && st_file_stats(file, &stats) == ST_OK && stats.reopens == 1;
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  st_close(file);
}

TEST_F(CapiBulk, TheEnvironmentStandsInAndIsChecked) {
  ::setenv("ST_IO_THREADS", "7", 1);
  st_file *file = open(0);
  auto info = sized<st_io_info>();
  ASSERT_ST(ST_OK, st_file_io_info(file, &info));
  EXPECT_EQ(info.io_threads, 7u);
  st_close(file);
  ::unsetenv("ST_IO_THREADS");
  for (const char *name : {"ST_MAP", "ST_JOURNAL", "ST_PREFETCH", "ST_DIRECT", "ST_IO_THREADS", "ST_BLOCK_SIZE"}) {
    ::setenv(name, "many", 1);
    file = nullptr;
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_open(path.c_str(), nullptr, &file));
    EXPECT_NE(std::string(st_last_error()).find(std::string(name) + "='many'"), std::string::npos) << st_last_error();
    EXPECT_EQ(file, nullptr);
    ::unsetenv(name);
  }
}

}  // namespace
}  // namespace st
