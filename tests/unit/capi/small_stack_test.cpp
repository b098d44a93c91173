// Every call of the ABI, on local files, from a thread whose stack is 64 KiB. lifecycle.c calls every function there is
// (exports.sh sees to that); the other tests take the ways that it does not take: recovery of what killed writers left,
// with both kinds of journal, of one file and of shards; overlays; bulk reads of all kinds; damaged and deep input.
// A program of its own, since it replaces system calls. Built only where frames are small (see the first meson.build).
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdarg>

#include "scene.h"
#include "small_stack.h"

namespace {

constexpr int killed_status = 9;
int syncs_left = 0;  // the process ends at the last of them; 0: it does not
int ranges_shared = 0;
bool can_share_blocks = false;  // the filesystem says that it is xfs, and shares blocks (by copying them)

}  // namespace

// Killed processes lose nothing that they wrote, so nothing needs to be synced.
extern "C" int fdatasync(int) {
  if (syncs_left > 0 && --syncs_left == 0) ::_exit(killed_status);
  return 0;
}

extern "C" int fsync(int fd) {
  return ::fdatasync(fd);
}

extern "C" int fstatfs(int fd, struct statfs *out) noexcept {
  const long r = ::syscall(SYS_fstatfs, fd, out);
  if (can_share_blocks) out->f_type = 0x58465342;
  return static_cast<int>(r);
}

extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list rest;
  va_start(rest, request);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  if (!can_share_blocks || request != FICLONERANGE)
    return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
  ++ranges_shared;
  const auto &range = *static_cast<const file_clone_range *>(argument);
  auto from = static_cast<off_t>(range.src_offset), to = static_cast<off_t>(range.dest_offset);
  for (uint64_t left = range.src_length; left > 0;) {
    const ssize_t n = ::copy_file_range(static_cast<int>(range.src_fd), &from, fd, &to, left, 0);
    if (n <= 0) return -1;
    left -= static_cast<uint64_t>(n);
  }
  return 0;
}

// The whole of lifecycle.c.
extern "C" int lifecycle(int argc, char **argv);

namespace st::testing {
namespace {

namespace fs = std::filesystem;

class SmallStack : public ::testing::Test {
 protected:
  SmallStack() {
    put_bytes(one, old);
    on_small_stack([&] { EXPECT_ST(ST_OK, st_reshard(one.c_str(), many.c_str(), large, nullptr)); });
    put_bytes(other, file_of({tensor("a", 11), tensor("b", 12), u8_tensor("d", 100, 4)}));
    on_small_stack([&] { EXPECT_ST(ST_OK, st_delta_create(one.c_str(), other.c_str(), delta.c_str(), nullptr)); });
  }
  ~SmallStack() override {
    can_share_blocks = false;
    ::unsetenv("ST_JOURNAL");
  }

  void run(const std::function<void()> &work) { RecordProperty("stack_bytes", static_cast<int>(on_small_stack(work))); }
  static TestTensor tensor(const char *name, unsigned seed) { return u8_tensor(name, large, seed); }

  void redo() { ::setenv("ST_JOURNAL", "redo", 1); }
  void undo() {
    ::setenv("ST_JOURNAL", "undo", 1);
    can_share_blocks = true;
  }

  st_file *open(const std::string &path, st_open_options options = sized<st_open_options>()) {
    st_file *file = nullptr;
    EXPECT_ST(ST_OK, st_open(path.c_str(), &options, &file));
    return file;
  }
  st_file *open_to_write(const std::string &path) {
    auto options = sized<st_open_options>();
    options.flags = ST_OPEN_READ_WRITE;
    return open(path, options);
  }
  static std::string seen(st_file *file, const char *name) {
    st_tensor t = {};
    return st_get(file, name, ST_NTS, &t) == ST_OK ? std::string(static_cast<const char *>(t.data), t.nbytes)
                                                   : std::string();
  }
  std::string state(st_file *file) {
    std::string all;
    for (const char *name : {"a", "b", "c", "d", "e"}) all += name + seen(file, name);
    return all;
  }
  std::string state(const std::string &path) {
    st_file *file = open(path);
    std::string all = state(file);
    st_close(file);
    return all;
  }

  // The changes, each a transaction of its own.
  void patch(const std::string &path) {
    st_file *file = open_to_write(path);
    st_txn *txn = nullptr;
    st_tensor a = {}, b = {};
    EXPECT_ST(ST_OK, st_get(file, "a", ST_NTS, &a));
    EXPECT_ST(ST_OK, st_get(file, "b", ST_NTS, &b));
    EXPECT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
    EXPECT_ST(ST_OK, st_txn_update(txn, "a", ST_NTS, &b));
    EXPECT_ST(ST_OK, st_txn_update(txn, "b", ST_NTS, &a));
    const st_range some = {0, INT64_MAX, 3};
    const uint64_t count = (a.shape[0] + 2) / 3;
    b.shape = &count;
    b.nbytes = a.nbytes / a.shape[0] * count;
    EXPECT_ST(ST_OK, st_txn_update_slice(txn, "a", ST_NTS, &some, 1, nullptr, 0, &b));
    EXPECT_ST(ST_OK, commit(txn));
    st_close(file);
  }
  void publish(const std::string &path) {
    st_file *file = open_to_write(path);
    st_txn *txn = nullptr;
    st_tensor c = {};
    EXPECT_ST(ST_OK, st_get(file, "c", ST_NTS, &c));
    EXPECT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
    EXPECT_ST(ST_OK, st_txn_put(txn, "b", ST_NTS, &c));
    EXPECT_ST(ST_OK, st_txn_rename(txn, "a", ST_NTS, "e", ST_NTS));
    EXPECT_ST(ST_OK, st_txn_set_metadata(txn, "note", ST_NTS, "small", ST_NTS));
    EXPECT_ST(ST_OK, commit(txn));
    EXPECT_ST(ST_OK, st_refresh(file));
    st_close(file);
  }
  void apply_delta(const std::string &path) {
    auto options = sized<st_delta_apply_options>();
    options.reverse = reverse.c_str();
    EXPECT_ST(ST_OK, st_delta_apply(path.c_str(), delta.c_str(), &options, nullptr));
  }

  // The writer is killed at each of its syncs; the next open finds all of the change, or nothing.
  void killed_at_each_sync(const std::string &path, const std::function<void()> &change) {
    const std::string before = dir / "before", was = state(path);
    fs::copy(path, before, fs::copy_options::recursive);
    change();
    const std::string after = state(path);
    EXPECT_TRUE(after != was);
    int tries = 0, done = 0;
    for (int status = -1; status != 0; ++tries) {
      fs::remove_all(path);
      fs::copy(before, path, fs::copy_options::recursive);
      const pid_t writer = ::fork();
      if (writer == 0) {
        syncs_left = tries + 1;
        change();
        ::_exit(HasFailure() ? 1 : 0);
      }
      ::waitpid(writer, &status, 0);
      ASSERT_TRUE(status == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == killed_status)) << status;
      if (tries % 2 == 0) {
        EXPECT_ST(ST_OK, st_recover(path.c_str(), nullptr));
      }
      const std::string now = state(path);
      EXPECT_TRUE(now == was || now == after) << "killed at sync " << tries + 1;
      EXPECT_ST(ST_OK, st_verify(path.c_str(), nullptr));
      done += now == after;
    }
    EXPECT_GE(tries, 3);
    EXPECT_GE(done, 2);
    EXPECT_LT(done, tries);
    fs::remove_all(before);
    fs::remove_all(path + ".st-journal");
  }

  static constexpr size_t large = 300'000;
  const TempDir dir;
  const std::string one = dir / "model.safetensors", many = dir / "shards", other = dir / "other.safetensors",
                    delta = dir / "delta.safetensors", reverse = dir / "reverse.safetensors";
  const std::string old = file_of({tensor("a", 1), tensor("b", 2), u8_tensor("c", 1000, 3)});
};

TEST_F(SmallStack, EveryFunction) {
  run([&] {
    const fs::path here = fs::current_path();
    fs::current_path(dir.path());
    std::string program = "lifecycle", file = "lifecycle.safetensors";
    char *arguments[] = {program.data(), file.data(), nullptr};
    EXPECT_EQ(lifecycle(2, arguments), 0);
    undo();
    EXPECT_EQ(lifecycle(2, arguments), 0);
    fs::current_path(here);
  });
}

TEST_F(SmallStack, WritersOfAFileAreKilledWithRedoJournals) {
  redo();
  run([&] { killed_at_each_sync(one, [&] { patch(one); }); });
}

TEST_F(SmallStack, WritersOfAFileAreKilledWithUndoJournals) {
  undo();
  run([&] { killed_at_each_sync(one, [&] { patch(one); }); });
  EXPECT_GT(ranges_shared, 0);
}

TEST_F(SmallStack, WritersOfShardsAreKilled) {
  undo();  // which across shards is redo, decided when all is staged
  run([&] { killed_at_each_sync(many, [&] { patch(many); }); });
}

TEST_F(SmallStack, PublishersAreKilled) {
  for (const std::string &path : {one, many}) run([&] { killed_at_each_sync(path, [&] { publish(path); }); });
}

TEST_F(SmallStack, DeltasAreAppliedAndTheirAppliersKilled) {
  for (const std::string &path : {one, many}) run([&] { killed_at_each_sync(path, [&] { apply_delta(path); }); });
}

// On a file, on shards, and on a delta on each, in every way to get the bytes.
TEST_F(SmallStack, BulkReadsOfAllKinds) {
  const char *deltas[] = {delta.c_str()};
  const auto read_all = [&](const std::string &path, st_open_options options) {
    st_file *file = open(path, options), *pin = nullptr, *again = nullptr;
    auto load = sized<st_bulk_options>();
    load.flags = ST_BULK_HUGE_PAGES;
    std::string to(large, 0);
    std::vector<st_read_request> requests(2);
    const st_range every_third = {0, INT64_MAX, 3};
    requests[0].name = "a", requests[0].name_len = 1, requests[0].dst = to.data(), requests[0].dst_size = 100'000;
    requests[0].ranges = &every_third, requests[0].range_count = 1;
    requests[1].name = "b", requests[1].name_len = 1, requests[1].dst = to.data(), requests[1].dst_size = large;
    EXPECT_ST(ST_OK, st_read_many(file, requests.data(), 2, nullptr));
    EXPECT_ST(ST_OK, st_prefetch(file, nullptr, 0, nullptr));
    EXPECT_ST(ST_OK, st_snapshot(file, &pin));
    EXPECT_ST(ST_OK, st_reopen(file, 0, &again));
    st_file *written = nullptr;
    EXPECT_ST(ST_OK, st_reopen(file, ST_REOPEN_COPY_ON_WRITE, &written));
    EXPECT_TRUE(state(written) == state(again));
    EXPECT_ST(ST_OK, st_load(pin, nullptr, 0, &load));
    EXPECT_TRUE(state(pin) == state(again));
    st_close(written);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(state(file) == state(pin) ? 0 : 1);
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    auto stats = sized<st_stats>();
    auto info = sized<st_io_info>();
    EXPECT_ST(ST_OK, st_file_stats(file, &stats));
    EXPECT_ST(ST_OK, st_file_io_info(file, &info));
    st_release(file);
    for (st_file *each : {pin, again, file}) st_close(each);
  };
  run([&] {
    for (const std::string &path : {one, many})
      for (const bool layered : {false, true})
        for (uint32_t i = 0; i < 12; ++i) {
          auto options = sized<st_open_options>();
          options.map = i % 4;
          options.prefetch = i % 3 + 1;
          options.direct = i / 2 % 2 ? ST_DIRECT_ON : ST_DIRECT_OFF;
          options.io_threads = i % 5;
          options.block_size = 1 << 16;
          options.worker_count = 2;
          options.memory_limit = i % 3 ? 0 : 200'000;
          options.deltas = deltas;
          options.delta_count = layered;
          read_all(path, options);
        }
    EXPECT_ST(ST_OK, st_delta_merge(many.c_str(), deltas, 1, reverse.c_str(), nullptr));
    EXPECT_TRUE(state(reverse) == state(other));
  });
}

TEST_F(SmallStack, WhatNestsIsReadOrRefused) {
  const auto nested = [](size_t deep) {
    std::string json;
    for (size_t i = 0; i < deep; ++i) json += R"([{"k":)";
    json += "1";
    for (size_t i = 0; i < deep; ++i) json += "}]";
    return json;
  };
  const auto opened = [&](const std::string &path, const std::string &bytes) {
    put_bytes(path, bytes);
    st_file *file = nullptr;
    const st_status status = st_open(path.c_str(), nullptr, &file);
    st_close(file);
    return status;
  };
  const std::string index = many + "/model.safetensors.index.json", said = bytes_of(index);
  run([&] {
    for (const size_t deep : {1, 10, 60, 500, 100'000}) {
      const std::string json = nested(deep);
      opened(one, raw_file(R"({"a":{"x":)" + json + R"(,"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "data"));
      opened(one, raw_file(R"({"__metadata__":{"k":)" + json + "}}", ""));
      opened(index, R"({"metadata":{"deep":)" + json + "}," + said.substr(1));
      opened(index, R"({"deep":)" + json + "," + said.substr(1));
      opened(index, R"({"weight_map":{"a":)" + json + "}}");
      std::string quoted;
      for (const char c : json) quoted += c == '"' ? std::string("\\\"") : std::string(1, c);
      for (const char *key : {"hashes", "deleted", "set", "removed", "order"}) {
        put_bytes(delta, raw_file(text(R"({"__metadata__":{"st.delta.version":"1","st.delta.base":")",
                                       std::string(32, '0'), R"(","st.delta.result":")", std::string(32, '0'),
                                       R"(","st.delta.)", key, R"(":")", quoted, R"("}})"),
                                  ""));
        auto info = sized<st_delta_info>();
        EXPECT_ST(ST_E_DELTA, st_delta_describe(delta.c_str(), &info));
      }
    }
    EXPECT_EQ(opened(index, said), ST_OK);
  });
}

// The sentences of failures, and the holder of a lock.
TEST_F(SmallStack, WhatFailsIsExplained) {
  int ready[2] = {-1, -1};
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const int fd = ::open(one.c_str(), O_RDWR);
    struct flock all = {};
    all.l_type = F_WRLCK;
    const bool locked = ::fcntl(fd, F_OFD_SETLK, &all) == 0;
    static_cast<void>(!::write(ready[1], "x", locked));
    ::close(ready[1]);
    ::pause();
  }
  ::close(ready[1]);
  char locked = 0;
  ASSERT_EQ(::read(ready[0], &locked, 1), 1);
  ::close(ready[0]);
  run([&] {
    auto options = sized<st_open_options>();
    options.flags = ST_OPEN_READ_WRITE;
    options.lock_timeout_ms = ST_TIMEOUT_NONE;
    st_file *file = open(one, options);
    st_tensor a = {};
    auto info = sized<st_error_info>();
    EXPECT_ST(ST_OK, st_get(file, "a", ST_NTS, &a));
    EXPECT_ST(ST_E_BUSY, st_update(file, "a", ST_NTS, &a));
    EXPECT_ST(ST_OK, st_last_error_info(&info));
    EXPECT_EQ(info.holder_pid, holder);
    st_close(file);
    EXPECT_ST(ST_E_NO_FILE, st_open((dir / std::string(200, 'x')).c_str(), nullptr, &file));
    put_bytes(one, old.substr(0, old.size() / 2));
    EXPECT_ST(ST_E_TRUNCATED, st_verify(one.c_str(), nullptr));
    fs::remove(many + "/model-00001-of-00003.safetensors");
    EXPECT_ST(ST_E_SHARD_MISSING, st_verify(many.c_str(), nullptr));
  });
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
}

}  // namespace
}  // namespace st::testing
