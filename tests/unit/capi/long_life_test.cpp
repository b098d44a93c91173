// A handle that lives long: whatever is published and refreshed through it, it holds two states of the file and no
// more, but for what it was asked to keep. ST_TEST_BOUND=full publishes 100,000 times.
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <shared_mutex>
#include <thread>

#include "bound.h"
#include "scene.h"
#include "sanitizers.h"

namespace st {
namespace {

using testing::commit;
using namespace testing;
namespace fs = std::filesystem;

// What this process holds. A sanitizer keeps freed memory for a while, so resident is 0 under one.
struct Holds {
  size_t descriptors = 0, mappings = 0, resident = 0;
  static Holds now() {
    Holds h;
    h.descriptors =
        static_cast<size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) h.mappings += line.find("safetensors") != std::string::npos;
#if !defined(ST_UNDER_ASAN) && !defined(ST_UNDER_TSAN)
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("VmRSS:")) h.resident = std::stoul(line.substr(6)) * 1024;
#endif
    return h;
  }
};

// A disk in memory of its own, so that its free blocks are nobody else's affair; where it may not be mounted, a folder.
class CapiLongLife : public testing::CapiScene {
 protected:
  CapiLongLife() {
    fs::create_directory(disk);
    mounted = ::mount("libst-test", disk.c_str(), "tmpfs", 0, "size=64m") == 0;
    testing::put_bytes(
        model, testing::file_of(std::vector{testing::u8_tensor("a", size, 1), testing::u8_tensor("b", 5000, 2)}));
    ::getrlimit(RLIMIT_NOFILE, &limit);
    rlimit few = limit;
    few.rlim_cur = 128;
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~CapiLongLife() override {
    ::setrlimit(RLIMIT_NOFILE, &limit);
    if (mounted) ::umount2(disk.c_str(), MNT_DETACH);
  }
  st_file *open_model(uint32_t map = ST_MAP_AUTO) { return open_at(model, ST_OPEN_READ_WRITE, map); }
  static st_tensor u8(const std::string &bytes, const uint64_t (&shape)[2], uint32_t rank = 1) {
    st_tensor t = {};
    t.dtype = ST_DTYPE_U8;
    t.rank = rank;
    t.shape = shape;
    t.data = bytes.data();
    t.nbytes = bytes.size();
    return t;
  }
  static st_status put(st_file *file, const char *name, const std::string &bytes) {
    const uint64_t shape[2] = {bytes.size(), 1};
    const st_tensor t = u8(bytes, shape, bytes.size() % 2 ? 2 : 1);
    st_txn *txn = nullptr;
    st_status status = st_txn_begin(file, nullptr, &txn);
    if (status == ST_OK) status = st_txn_put(txn, name, ST_NTS, &t);
    if (status == ST_OK) status = st_txn_commit(txn);
    return st_txn_free(txn), status;
  }
  uint64_t used() const {
    struct statfs s;
    return mounted && ::statfs(disk.c_str(), &s) == 0 ? (s.f_blocks - s.f_bfree) * static_cast<uint64_t>(s.f_bsize) : 0;
  }
  // `publish` of a number, many times; between them no more is held than after the first.
  template <class Publish>
  void publish_on_and_on(size_t times, uint64_t blocks, Publish publish) {
    for (size_t i = 0; i < 20; ++i) ASSERT_ST(ST_OK, publish(i));
    const Holds first = Holds::now();
    const uint64_t used_first = used();
    EXPECT_LE(used_first, blocks);
    for (size_t i = 20; i < times; ++i) {
      ASSERT_ST(ST_OK, publish(i)) << "publish " << i;
      if (i % (times / 8) != 0) continue;
      const Holds now = Holds::now();
      ASSERT_LE(now.descriptors, first.descriptors) << "after " << i;
      ASSERT_LE(now.mappings, first.mappings) << "after " << i;
      ASSERT_LE(now.resident, first.resident + (8u << 20)) << "after " << i;
      ASSERT_LE(used(), blocks) << "after " << i;
    }
  }

  static constexpr size_t size = 256 << 10;
  const std::string disk = dir / "disk", model = disk + "/model.safetensors";
  const std::string one = pattern(size, 11), other = pattern(size + 1, 12);
  const uint64_t two_files = 2 * (size + (64 << 10));
  bool mounted = false;
  rlimit limit;
};

TEST_F(CapiLongLife, PublishesThatNobodyLooksAtLeaveNothingBehind) {
  for (const uint32_t map : {ST_MAP_SHARED, ST_MAP_NONE, ST_MAP_COPY_ON_WRITE}) {
    st_file *file = open_model(map);
    publish_on_and_on(bounded(200, 600, 100'000), two_files,
                      [&](size_t i) { return put(file, "a", i % 2 ? one : other); });
    st_close(file);
  }
}

// A fork may come amid what another thread begins or frees, of which the child has only half.
TEST_F(CapiLongLife, AChildBeginsTransactionsOfItsOwnWhateverItsParentIsAmid) {
  constexpr unsigned far_too_long_s = 120;
  const uint64_t shape[2] = {one.size(), 1};
  st_file *file = open_model();
  std::atomic<bool> ended = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      while (!ended) {
        const st_tensor value = u8(one, shape);
        st_txn *txn = nullptr;
        EXPECT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
        EXPECT_ST(ST_OK, st_txn_put(txn, "a", ST_NTS, &value));
        st_txn_free(txn);
      }
    });
  st_txn *parents = nullptr;
  EXPECT_ST(ST_OK, st_txn_begin(file, nullptr, &parents));
  int status = 0;
  for (size_t i = 0; status == 0 && i < bounded(300, 1000, 20'000); ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(far_too_long_s);  // nobody waits for ever
      st_txn *txn = nullptr;
      const bool good = st_txn_begin(file, nullptr, &txn) == ST_OK;
      st_txn_free(txn);
      st_close(file);
      const bool ended_too = st_txn_commit(parents) == ST_E_TXN_FAILED;
      st_txn_free(parents);
      ::_exit(good && ended_too ? 0 : 1);
    }
    ASSERT_EQ(::waitpid(child, &status, 0), child);
  }
  ended = true;
  for (std::thread &t : threads) t.join();
  EXPECT_EQ(status, 0);
  st_txn_free(parents);
  st_close(file);
}

TEST_F(CapiLongLife, WhatWasGivenOutGoesWhenItIsReleased) {
  for (const uint32_t map : {ST_MAP_SHARED, ST_MAP_NONE, ST_MAP_COPY_ON_WRITE}) {
    st_file *file = open_model(map);
    st_tensor view = {};
    publish_on_and_on(bounded(200, 600, 100'000), two_files, [&](size_t i) {
      st_release(file);
      EXPECT_ST(ST_OK, st_get(file, "b", ST_NTS, &view));
      EXPECT_ST(ST_OK, st_at(file, 0, 1, &view));
      return put(file, "a", i % 2 ? one : other);
    });
    st_close(file);
  }
}

TEST_F(CapiLongLife, SnapshotsKeepWhatIsTheirsAndNothingElse) {
  st_file *file = open_model(), *pin = nullptr, *forever = nullptr;
  ASSERT_ST(ST_OK, st_snapshot(file, &forever));
  publish_on_and_on(bounded(200, 600, 100'000), two_files * 3 / 2, [&](size_t i) {
    if (i % 3 == 0) {
      st_close(std::exchange(pin, nullptr));
      EXPECT_ST(ST_OK, st_snapshot(file, &pin));
    }
    st_release(file);
    return put(file, "a", i % 2 ? one : other);
  });
  EXPECT_TRUE(same_bytes(seen(forever, "a"), pattern(size, 1)));
  st_close(file);
  EXPECT_TRUE(same_bytes(seen(forever, "b"), pattern(5000, 2)));
  st_close(forever);
  st_close(pin);
}

TEST_F(CapiLongLife, AViewStaysUntilItIsReleased) {
  st_file *file = open_model();
  st_tensor view = {}, name = {};
  ASSERT_ST(ST_OK, st_get(file, "a", ST_NTS, &view));
  for (int i = 0; i < 20; ++i) ASSERT_ST(ST_OK, put(file, "a", i % 2 ? one : other));
  EXPECT_TRUE(same_bytes({static_cast<const char *>(view.data), static_cast<size_t>(view.nbytes)}, pattern(size, 1)));
  ASSERT_ST(ST_OK, st_describe(file, "a", 1, &name));
  ASSERT_ST(ST_OK, put(file, "a", other));
  EXPECT_STREQ(name.name, "a");
  EXPECT_EQ(Holds::now().mappings, 3u);
  st_release(file);
  EXPECT_EQ(Holds::now().mappings, 1u);
  EXPECT_TRUE(same_bytes(seen(file, "a"), other));
  st_close(file);
}

TEST_F(CapiLongLife, RefreshingWithoutAMappingKeepsNoSecondCopy) {
  testing::put_bytes(model, testing::file_of(std::vector{testing::u8_tensor("a", 4 << 20, 1)}));
  const std::string fresh = pattern(4 << 20, 7);
  const uint64_t shape[2] = {fresh.size(), 1};
  const st_tensor value = u8(fresh, shape);
  for (const bool released : {true, false}) {
    st_file *file = open_model(ST_MAP_NONE), *writer = open_model();
    st_tensor first = {}, now = {};
    ASSERT_ST(ST_OK, st_get(file, "a", ST_NTS, &first));
    const Holds before = Holds::now();
    for (size_t i = 0; i < bounded(30, 200, 200); ++i) {
      ASSERT_ST(ST_OK, st_refresh(file));
      ASSERT_ST(ST_OK, st_get(file, "a", ST_NTS, &now));
      if (released) st_release(file);
    }
    EXPECT_LE(Holds::now().descriptors, before.descriptors);
    EXPECT_LE(Holds::now().resident, before.resident + (16u << 20));
    ASSERT_ST(ST_OK, st_update(writer, "a", ST_NTS, &value));
    ASSERT_ST(ST_OK, st_refresh(file));
    ASSERT_ST(ST_OK, st_get(file, "a", ST_NTS, &now));
    EXPECT_TRUE(same_bytes({static_cast<const char *>(now.data), static_cast<size_t>(now.nbytes)}, fresh));
    // What was given out and not released is where it was, and shows the new bytes.
    EXPECT_TRUE(released || first.data == now.data);
    st_close(writer);
    st_close(file);
  }
}

TEST_F(CapiLongLife, WhatWasLoadedShowsWhatOthersPatchedAfterARefresh) {
  st_file *file = open_model(), *writer = open_model();
  ASSERT_ST(ST_OK, st_load(file, nullptr, 0, nullptr));
  const uint64_t shape[2] = {one.size(), 1};
  const st_tensor value = u8(one, shape);
  ASSERT_ST(ST_OK, st_update(writer, "a", ST_NTS, &value));
  ASSERT_ST(ST_OK, st_refresh(file));
  EXPECT_TRUE(same_bytes(seen(file, "a"), one));
  st_close(writer);
  st_close(file);
}

// Tensors whose bytes tell their size, so that a reader sees whether it got what it was told of.
class CapiReadsBesidePublishes : public CapiLongLife {
 protected:
  static std::string told(size_t n) { return std::string(n, static_cast<char>(n % 251)); }
  static bool is_told(const std::byte *bytes, size_t n) {
    for (size_t i = 0; i < n; ++i)
      if (bytes[i] != static_cast<std::byte>(n % 251)) return false;
    return true;
  }
  static bool is_told(const st_tensor &t, const std::byte *bytes) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < t.rank; ++d) n *= t.shape[d];
    return n == t.nbytes && t.rank == (n % 2 ? 2u : 1u) && is_told(bytes, n);
  }
  // Another shape of "a", "b" under its other name, "d" there or not; each alone.
  static st_status change(st_file *file, size_t i) {
    if (i % 3 == 0) return put(file, "a", told(3000 + i % 1000 + i / 3 % 2));
    st_txn *txn = nullptr;
    st_status status = st_txn_begin(file, nullptr, &txn);
    if (status != ST_OK) return status;
    const std::string d = told(700 + i % 50);
    const uint64_t shape[2] = {d.size(), 1};
    const st_tensor t = u8(d, shape, d.size() % 2 ? 2 : 1);
    if (i % 3 == 1)
      status = i / 3 % 2 ? st_txn_rename(txn, "c", ST_NTS, "b", ST_NTS) : st_txn_rename(txn, "b", ST_NTS, "c", ST_NTS);
    if (i % 3 == 2) status = i / 3 % 2 ? st_txn_delete(txn, "d", ST_NTS) : st_txn_put(txn, "d", ST_NTS, &t);
    if (status == ST_OK) status = st_txn_commit(txn);
    return st_txn_free(txn), status;
  }
  // By a snapshot, as bindings read. Says what is wrong.
  static std::string read_by_pin(st_file *file, const char *name, std::vector<std::byte> &room) {
    st_file *pin = nullptr;
    if (st_snapshot(file, &pin) != ST_OK) return st_last_error();
    const std::unique_ptr<st_file, decltype(&st_close)> closing(pin, st_close);
    st_tensor described = {}, read = {}, view = {}, other = {};
    const st_status found = st_describe(pin, name, ST_NTS, &described);
    if (found != ST_OK && (found != ST_E_NOT_FOUND || *name == 'a')) return st_last_error();
    st_status either[2];
    for (const char *each : {"b", "c"}) {
      st_status &status = either[*each - 'b'] = st_describe(pin, each, 1, &other);
      if (status != ST_OK && status != ST_E_NOT_FOUND) return st_last_error();
    }
    if (either[0] == either[1]) return either[0] == ST_OK ? "both b and c are there" : "neither b nor c is there";
    if (found != ST_OK) return {};
    room.resize(described.nbytes);
    uint64_t shape[2];
    size_t rank = 0;
    if (st_slice_shape(pin, name, ST_NTS, nullptr, 0, shape, described.rank, &rank, nullptr) != ST_OK)
      return st_last_error();
    if (st_read(pin, name, ST_NTS, room.data(), room.size(), &read) != ST_OK) return st_last_error();
    if (std::memcmp(&described, &read, sizeof read) != 0) return "another tensor was read than was described";
    if (st_get(pin, name, ST_NTS, &view) != ST_OK) return st_last_error();
    if (!is_told(read, room.data()) || !is_told(view, static_cast<const std::byte *>(view.data))) return "other bytes";
    return {};
  }
  // By the handle itself. `released` keeps st_release away, which may not run beside what gives out pointers.
  static std::string read_by_handle(st_file *file, const char *name, std::vector<std::byte> &room,
                                    std::shared_mutex &released) {
    room.resize(8000);
    const std::shared_lock keep(released);
    st_tensor read = {};
    const st_status status = st_read(file, name, ST_NTS, room.data(), room.size(), &read);
    if (status == ST_E_NOT_FOUND && *name != 'a') return {};
    if (status != ST_OK) return st_last_error();
    return is_told(read, room.data()) ? std::string() : "other bytes";
  }
  void read_and_change(st_file *file, size_t reads) {
    constexpr size_t readers = 3;
    std::atomic<size_t> at_work = readers, changes = 0;
    std::atomic<bool> ended = false;
    std::vector<std::string> wrong(readers);
    std::shared_mutex released;
    std::vector<std::thread> threads;
    for (size_t r = 0; r < readers; ++r)
      threads.emplace_back([&, r] {
        std::vector<std::byte> room;
        for (size_t i = r; (i < reads || (changes <= reads / 1000 && !ended)) && wrong[r].empty(); i += readers) {
          const char *name = i % 2 ? "a" : i % 4 ? "b" : "d";
          wrong[r] = i % 5 ? read_by_pin(file, name, room) : read_by_handle(file, name, room, released);
        }
        --at_work;
      });
    std::string failed;
    for (; at_work > 0 && failed.empty(); ++changes) {
      if (change(file, changes) != ST_OK) failed = st_last_error();
      if (changes % 32 != 0) continue;
      const std::unique_lock alone(released);
      st_release(file);
    }
    ended = true;
    for (std::thread &t : threads) t.join();
    EXPECT_EQ(failed, "");
    for (const std::string &w : wrong) EXPECT_EQ(w, "");
    EXPECT_GT(changes, reads / 1000);
  }
};

TEST_F(CapiReadsBesidePublishes, AreOfOneStateEach) {
  testing::put_bytes(model, testing::file_of(std::vector<testing::TestTensor>{{"a", Dtype::U8, {3000}, told(3000)},
                                                                              {"b", Dtype::U8, {500}, told(500)}}));
  for (const uint32_t map : {ST_MAP_SHARED, ST_MAP_NONE, ST_MAP_COPY_ON_WRITE}) {
    st_file *file = open_model(map);
    read_and_change(file, bounded(1000, 15'000, 500'000));
    st_close(file);
    testing::put_bytes(model, testing::file_of(std::vector<testing::TestTensor>{{"a", Dtype::U8, {3000}, told(3000)},
                                                                                {"b", Dtype::U8, {500}, told(500)}}));
  }
}

class CapiLongLifeOfSeveral : public CapiReadsBesidePublishes {
 protected:
  CapiLongLifeOfSeveral() {
    testing::put_bytes(disk + "/m-1.safetensors", testing::file_of(std::vector{testing::u8_tensor("a", size, 1)}));
    testing::put_bytes(disk + "/m-2.safetensors", testing::file_of(std::vector{testing::u8_tensor("b", 5000, 2)}));
    testing::put_bytes(index, R"({"metadata":{},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
    fs::remove(model);
  }
  const std::string index = disk + "/m.safetensors.index.json";
};

TEST_F(CapiLongLifeOfSeveral, PublishesOfShardsLeaveNothingBehind) {
  for (const bool views : {false, true}) {
    st_file *file = open_at(index);
    publish_on_and_on(bounded(100, 400, 20'000), 2 * two_files, [&](size_t i) {
      st_tensor view = {};
      if (views) {
        st_release(file);
        EXPECT_ST(ST_OK, st_get(file, "b", ST_NTS, &view));
        EXPECT_ST(ST_OK, st_get(file, "a", ST_NTS, &view));
      }
      return put(file, i % 4 ? "a" : "b", i % 2 ? one : other);
    });
    st_close(file);
  }
}

TEST_F(CapiLongLifeOfSeveral, ReadsBesidePublishesAreOfOneStateEach) {
  testing::put_bytes(disk + "/m-1.safetensors",
                     testing::file_of(std::vector<testing::TestTensor>{{"a", Dtype::U8, {3000}, told(3000)}}));
  testing::put_bytes(disk + "/m-2.safetensors",
                     testing::file_of(std::vector<testing::TestTensor>{{"b", Dtype::U8, {500}, told(500)}}));
  st_file *file = open_at(index);
  read_and_change(file, bounded(600, 6'000, 200'000));
  st_close(file);
}

TEST_F(CapiLongLifeOfSeveral, ShardsOfOtherNamesTakeThePlaceOfOldOnes) {
  st_file *file = open_at(index);
  publish_on_and_on(bounded(100, 300, 20'000), two_files, [&](size_t i) {
    const std::string name = "n-" + std::to_string(i) + ".safetensors";
    fs::copy_file(disk + "/m-2.safetensors", disk + "/" + name);
    testing::put_bytes(index + ".new", R"({"metadata":{},"weight_map":{"a":"m-1.safetensors","b":")" + name + "\"}}");
    fs::rename(index + ".new", index);
    if (i > 0) fs::remove(disk + "/n-" + std::to_string(i - 1) + ".safetensors");
    const st_status refreshed = st_refresh(file);
    std::string room(5000, '\0');
    EXPECT_ST(ST_OK, st_read(file, "b", ST_NTS, room.data(), room.size(), nullptr));
    return refreshed;
  });
  st_close(file);
}

TEST_F(CapiLongLifeOfSeveral, RefreshesOfAnOverlayLeaveNothingBehind) {
  testing::put_bytes(model,
                     testing::file_of(std::vector{testing::u8_tensor("a", size, 1), testing::u8_tensor("b", 5000, 5)}));
  const std::string delta = disk + "/delta.safetensors";
  ASSERT_ST(ST_OK, st_delta_create(index.c_str(), model.c_str(), delta.c_str(), nullptr));
  const char *deltas[] = {delta.c_str()};
  auto options = sized<st_open_options>();
  options.deltas = deltas;
  options.delta_count = 1;
  const std::string first = pattern(size, 1);
  st_file *overlay = nullptr, *writer = open_at(index);
  ASSERT_ST(ST_OK, st_open(index.c_str(), &options, &overlay));
  publish_on_and_on(bounded(60, 200, 5'000), two_files * 2, [&](size_t i) {
    st_tensor view = {};
    st_release(overlay);
    EXPECT_ST(ST_OK, st_get(overlay, "b", ST_NTS, &view));
    st_txn *txn = nullptr;
    const uint64_t shape[2] = {one.size(), 1};
    const st_tensor value = u8(i % 2 ? one : first, shape);
    auto publish = sized<st_txn_options>();
    publish.flags = ST_TXN_PUBLISH;
    EXPECT_ST(ST_OK, st_txn_begin(writer, &publish, &txn));
    EXPECT_ST(ST_OK, st_txn_update(txn, "a", ST_NTS, &value));
    EXPECT_ST(ST_OK, commit(txn));
    return st_refresh(overlay);
  });
  EXPECT_TRUE(same_bytes(seen(overlay, "b"), pattern(5000, 5)));
  st_close(overlay);
  st_close(writer);
}

}  // namespace
}  // namespace st
