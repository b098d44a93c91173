// What is no file: a source of the caller's, which counts what is asked of it.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "scene.h"

namespace st {
namespace {

using testing::pattern;
using testing::put_bytes;
using testing::same_bytes;
using testing::sized;

// The bytes of `held`, and all that is asked of them.
struct Held {
  std::string held;
  std::atomic<int> reads = 0, now = 0, most = 0, closed = 0;
  std::atomic<int> answer = 0;
  std::atomic<uint64_t> bytes = 0, longest = 0;
  std::atomic<bool> outside = false;
  int wait_for = 0;  // reads that must run at once before one goes on
  std::mutex mutex;
  std::condition_variable begun;

  static int read(void *user, const st_source_range *ranges, size_t n) {
    auto &h = *static_cast<Held *>(user);
    ++h.reads;
    const int at_once = ++h.now;
    for (int most = h.most; at_once > most && !h.most.compare_exchange_weak(most, at_once);) {
    }
    if (h.wait_for > 0) {
      std::unique_lock lock(h.mutex);
      h.begun.notify_all();
      h.begun.wait_for(lock, std::chrono::minutes(5), [&] { return h.most >= h.wait_for; });
    }
    uint64_t length = 0;
    for (size_t i = 0; i < n; ++i) length += ranges[i].nbytes;
    for (uint64_t longest = h.longest; length > longest && !h.longest.compare_exchange_weak(longest, length);) {
    }
    for (size_t i = 0; i < n; ++i) {
      const st_source_range &r = ranges[i];
      if (r.nbytes == 0 || r.offset > h.held.size() || r.nbytes > h.held.size() - r.offset) {
        h.outside = true;
        continue;
      }
      std::memcpy(r.dst, h.held.data() + r.offset, r.nbytes);
      h.bytes += r.nbytes;
    }
    --h.now;
    return h.answer;
  }
  static void close(void *user) { ++static_cast<Held *>(user)->closed; }

  st_source source(uint32_t most_reads = 0) {
    auto s = sized<st_source>();
    s.size = held.size();
    s.most_reads = most_reads;
    s.read = read;
    s.close = close;
    s.user = this;
    return s;
  }
};

class CapiSource : public testing::CapiScene {
 protected:
  CapiSource() { store.held = old; }
  ~CapiSource() override { EXPECT_FALSE(store.outside) << "a range that is empty, or not inside the source"; }
  static st_file *open_source(const st_source &source, const st_open_options *options = nullptr) {
    st_file *file = nullptr;
    EXPECT_ST(ST_OK, st_open_source(&source, options, &file));
    return file;
  }
  void refused(const char *status, const st_source &source, const st_open_options *options = nullptr) {
    st_file *file = nullptr;
    EXPECT_STREQ(st_status_name(st_open_source(&source, options, &file)), status) << st_last_error();
    EXPECT_EQ(file, nullptr);
    EXPECT_EQ(store.closed, 0) << "it is still the caller's";
  }
  Held store;
};

TEST_F(CapiSource, IsReadAsAFileIs) {
  for (uint32_t map : {ST_MAP_AUTO, ST_MAP_SHARED, ST_MAP_NONE, ST_MAP_COPY_ON_WRITE}) {
    auto options = sized<st_open_options>();
    options.map = map;
    st_file *file = open_source(store.source(), &options);
    ASSERT_EQ(st_count(file), 3u);
    const char *value = nullptr;
    size_t value_len = 0;
    ASSERT_ST(ST_OK, st_metadata_get(file, "format", ST_NTS, &value, &value_len));
    EXPECT_EQ(std::string(value, value_len), "pt");
    EXPECT_TRUE(same_bytes(seen(file, "b"), tensors[1].bytes));

    std::string copy(4000, '?'), part(1000, '?'), many(10007, '?');
    ASSERT_ST(ST_OK, st_read(file, "a", ST_NTS, copy.data(), copy.size(), nullptr));
    EXPECT_TRUE(same_bytes(copy, tensors[0].bytes));
    const st_range every_third = {10, 3010, 3};
    ASSERT_ST(ST_OK, st_read_slice(file, "b", ST_NTS, &every_third, 1, part.data(), part.size(), nullptr));
    for (size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], tensors[1].bytes[10 + 3 * i]);
    const st_read_request request = {"b", 1, 0, many.data(), many.size(), nullptr, 0, 0};
    ASSERT_ST(ST_OK, st_read_many(file, &request, 1, nullptr));
    EXPECT_TRUE(same_bytes(many, tensors[1].bytes));
    ASSERT_ST(ST_OK, st_load(file, nullptr, 0, nullptr));
    EXPECT_TRUE(same_bytes(seen(file, "a"), tensors[0].bytes));
    ASSERT_ST(ST_OK, st_refresh(file));
    EXPECT_TRUE(same_bytes(seen(file, "a"), tensors[0].bytes));
    st_close(file);
  }
  EXPECT_EQ(store.closed, 4);
}

TEST_F(CapiSource, OpeningTakesOneReadAndNoMoreThanWhatMayBeTheHeader) {
  store.held = testing::file_of(std::vector{testing::u8_tensor("large", size_t{1} << 20, 1)});
  st_file *file = open_source(store.source());
  EXPECT_EQ(store.reads, 1);
  EXPECT_LE(store.bytes, uint64_t{16} << 10);
  auto info = sized<st_io_info>();
  ASSERT_ST(ST_OK, st_file_io_info(file, &info));
  EXPECT_STREQ(info.filesystem, "source");
  EXPECT_EQ(info.map, ST_MAP_NONE);
  EXPECT_NE(std::string(info.reason).find("cannot map"), std::string::npos) << info.reason;
  EXPECT_NE(std::string(info.prefetch_reason).find("1 read at once"), std::string::npos) << info.prefetch_reason;
  st_close(file);
}

// The scanner leaves such a header to the full parser.
TEST_F(CapiSource, OpeningTakesOneReadAlsoWhereTheHeaderHasEscapes) {
  store.held = testing::raw_file(
      R"({"__metadata__":{"k":"a \"quote\""},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x");
  st_file *file = open_source(store.source());
  EXPECT_EQ(store.reads, 1);
  EXPECT_EQ(seen(file, "a"), "x");
  EXPECT_EQ(store.reads, 2);
  ASSERT_ST(ST_OK, st_refresh(file)) << "the hash of the header is the same";
  st_close(file);
}

TEST_F(CapiSource, ViewsThatMayBeWrittenNeverReachIt) {
  auto options = sized<st_open_options>();
  options.map = ST_MAP_COPY_ON_WRITE;
  st_file *file = open_source(store.source(), &options);
  st_tensor t = {};
  ASSERT_ST(ST_OK, st_get(file, "a", ST_NTS, &t));
  std::memset(const_cast<void *>(t.data), 'x', t.nbytes);
  EXPECT_EQ(seen(file, "a"), std::string(4000, 'x'));
  EXPECT_EQ(store.held, old);
  st_close(file);
}

TEST_F(CapiSource, TakesAsManyReadsAtOnceAsItSays) {
  store.held = testing::file_of(std::vector{testing::u8_tensor("large", size_t{4} << 20, 7)});
  for (const uint32_t most : {0u, 1u, 4u}) {
    store.most = 0;
    store.wait_for = 0;
    auto options = sized<st_open_options>();
    options.block_size = 64 << 10;
    st_file *file = open_source(store.source(most), &options);
    store.wait_for = most == 4 ? 4 : 0;  // it hangs five minutes, and fails, if four never run
    std::vector<std::thread> callers;
    for (int i = 0; i < 3; ++i)
      callers.emplace_back([&] {
        std::string room(size_t{4} << 20, '?');
        const st_read_request request = {"large", 5, 0, room.data(), room.size(), nullptr, 0, 0};
        EXPECT_ST(ST_OK, st_read_many(file, &request, 1, nullptr));
        EXPECT_TRUE(same_bytes(room, pattern(size_t{4} << 20, 7)));
      });
    for (std::thread &caller : callers) caller.join();
    EXPECT_EQ(store.most, static_cast<int>(std::max(most, 1u)));
    st_close(file);
  }
}

// The first columns of a tensor: a run of each row.
class CapiSourceSlices : public CapiSource {
 protected:
  CapiSourceSlices() {
    store.held = testing::file_of(std::vector{testing::TestTensor{"w", Dtype::U8, {rows, columns}, bytes}});
  }
  void read_left(st_file *file) {
    ASSERT_ST(ST_OK, st_read_slice(file, "w", ST_NTS, left, 2, part.data(), part.size(), nullptr));
    for (uint64_t row = 0; row < rows; ++row)
      ASSERT_TRUE(same_bytes(part.substr(row * taken, taken), bytes.substr(row * columns, taken))) << row;
  }

  static constexpr uint64_t rows = 64, columns = 65536, taken = 16384;
  const std::string bytes = pattern(rows * columns, 7);
  const st_range left[2] = {{0, rows, 1}, {0, taken, 1}};
  std::string part = std::string(rows * taken, '?');
};

// Alone and with others: in blocks, and not one after the other.
TEST_F(CapiSourceSlices, AreReadInBlocksSeveralAtOnce) {
  auto options = sized<st_open_options>();
  options.block_size = 1 << 20;
  st_file *file = open_source(store.source(4), &options);
  const auto begin_anew = [&] { store.reads = store.most = 0, store.wait_for = 4; };
  begin_anew();
  read_left(file);
  EXPECT_LE(store.reads, 10);
  EXPECT_EQ(store.most, 4);

  const st_range upper[] = {{0, rows / 2, 1}, {0, taken, 1}}, lower[] = {{rows / 2, rows, 1}, {0, taken, 1}};
  std::string again(part.size(), '?');
  const st_read_request both[] = {{"w", 1, 0, again.data(), again.size() / 2, upper, 2, 0},
                                  {"w", 1, 0, again.data() + again.size() / 2, again.size() / 2, lower, 2, 0}};
  begin_anew();
  ASSERT_ST(ST_OK, st_read_many(file, both, 2, nullptr));
  EXPECT_LE(store.reads, 10);
  EXPECT_EQ(store.most, 4);
  EXPECT_TRUE(same_bytes(again, part));
  store.wait_for = 0;
  store.answer = EIO;
  EXPECT_ST(ST_E_IO, st_read_slice(file, "w", ST_NTS, left, 2, part.data(), part.size(), nullptr));
  EXPECT_ST(ST_E_IO, st_read_many(file, both, 2, nullptr));
  store.answer = 0;
  st_close(file);
}

TEST_F(CapiSourceSlices, TakeNoMoreMemoryThanTheCallerSays) {
  auto options = sized<st_open_options>();
  options.memory_limit = 256 << 10;
  st_file *file = open_source(store.source(4), &options);
  read_left(file);
  EXPECT_LE(store.longest, options.memory_limit);
  st_close(file);
}

TEST_F(CapiSource, WhatItAnswersIsAStatus) {
  auto source = store.source();
  source.name = "bucket/model";
  source.identity = "\"etag-1\"";
  st_file *file = open_source(source);
  std::string room(4000, '?');
  const auto read = [&](int answer) {
    store.answer = answer;
    return st_read(file, "a", ST_NTS, room.data(), room.size(), nullptr);
  };
  EXPECT_ST(ST_E_FILE_CHANGED, read(ESTALE));
  const std::string said = st_last_error();
  EXPECT_NE(said.find("'bucket/model (version \"etag-1\")'"), std::string::npos) << said;
  EXPECT_ST(ST_E_CANCELLED, read(ECANCELED));
  EXPECT_ST(ST_E_UNSUPPORTED, read(EOPNOTSUPP));
  EXPECT_ST(ST_E_PERMISSION, read(EACCES));
  EXPECT_ST(ST_E_NO_FILE, read(ENOENT));
  EXPECT_ST(ST_E_NOMEM, read(ENOMEM));
  for (const int odd : {EIO, EINTR, -1, -EAGAIN, 100000}) EXPECT_ST(ST_E_IO, read(odd));
  EXPECT_ST(ST_OK, read(0));
  EXPECT_TRUE(same_bytes(room, tensors[0].bytes));
  // A load that fails leaves nothing half there.
  store.answer = EIO;
  EXPECT_ST(ST_E_IO, st_load(file, nullptr, 0, nullptr));
  store.answer = 0;
  EXPECT_TRUE(same_bytes(seen(file, "b"), tensors[1].bytes));
  st_close(file);
}

TEST_F(CapiSource, IsClosedOnceByTheLastThatUsesIt) {
  st_file *file = open_source(store.source());
  st_file *snapshot = nullptr;
  ASSERT_ST(ST_OK, st_snapshot(file, &snapshot));
  st_close(file);
  EXPECT_EQ(store.closed, 0);
  EXPECT_TRUE(same_bytes(seen(snapshot, "b"), tensors[1].bytes));
  st_close(snapshot);
  EXPECT_EQ(store.closed, 1);
  auto source = store.source();
  source.close = nullptr;
  st_close(open_source(source));
}

TEST_F(CapiSource, WhereOpeningFailsItIsStillTheCallers) {
  auto source = store.source();
  source.read = nullptr;
  refused("ST_E_INVALID_ARGUMENT", source);
  source = store.source();
  source.size = UINT64_MAX;
  refused("ST_E_INVALID_ARGUMENT", source);
  source = store.source();
  source.struct_size = 0;
  refused("ST_E_INVALID_ARGUMENT", source);
  auto options = sized<st_open_options>();
  options.flags = ST_OPEN_READ_WRITE;
  refused("ST_E_UNSUPPORTED", store.source(), &options);
  options.flags = 0;
  const char *const delta = path.c_str();
  options.deltas = &delta;
  options.delta_count = 1;
  refused("ST_E_UNSUPPORTED", store.source(), &options);
  store.answer = EACCES;
  refused("ST_E_PERMISSION", store.source());
  store.answer = 0;
  for (const size_t kept : {size_t{0}, size_t{7}, size_t{20}, old.size() - 1}) {
    store.held = old.substr(0, kept);
    st_file *file = nullptr;
    const st_source cut = store.source();
    const st_status status = st_open_source(&cut, nullptr, &file);
    EXPECT_GE(status, 40) << st_status_name(status);
    EXPECT_LE(status, 61) << st_status_name(status);
    EXPECT_EQ(file, nullptr);
  }
  EXPECT_EQ(store.closed, 0);
}

// As all structs that may grow: a newer caller's is taken if what is new is zero, an older one's ends with zeros.
TEST_F(CapiSource, ItsStructMayGrow) {
  struct {
    st_source known;
    uint64_t later[2];
  } newer = {store.source(), {0, 0}};
  newer.known.struct_size = sizeof newer;
  st_close(open_source(newer.known));
  EXPECT_EQ(store.closed.exchange(0), 1);
  newer.later[1] = 1;
  refused("ST_E_UNSUPPORTED", newer.known);
  auto reserved = store.source();
  reserved.reserved0 = 1;
  refused("ST_E_UNSUPPORTED", reserved);
  auto older = store.source();
  older.struct_size = offsetof(st_source, user);  // which is set, but beyond what the caller has
  older.read = [](void *user, const st_source_range *, size_t) { return user ? 0 : EACCES; };
  refused("ST_E_PERMISSION", older);
  older.struct_size = offsetof(st_source, read);
  refused("ST_E_INVALID_ARGUMENT", older);
}

TEST_F(CapiSource, IsOnlyRead) {
  st_file *file = open_source(store.source());
  st_txn *txn = nullptr;
  EXPECT_ST(ST_E_READ_ONLY, st_txn_begin(file, nullptr, &txn));
  const st_tensor t = value(0, new_a);
  EXPECT_ST(ST_E_READ_ONLY, st_update(file, "a", ST_NTS, &t));
  st_file *again = nullptr;
  EXPECT_ST(ST_E_UNSUPPORTED, st_reopen(file, 0, &again));
  EXPECT_EQ(again, nullptr);
  EXPECT_NE(std::string(st_last_error()).find("source"), std::string::npos) << st_last_error();
  st_close(file);
}

TEST_F(CapiSource, AForkedChildSeesWhatWasInMemoryAndReadsNothing) {
  st_file *file = open_source(store.source());
  EXPECT_TRUE(same_bytes(seen(file, "a"), tensors[0].bytes));
  const int before = store.reads;
  const pid_t child = ::fork();
  if (child == 0) {
    st_tensor t = {};
    std::string room(10007, '?');
    int wrong = 0;
    if (st_get(file, "a", ST_NTS, &t) != ST_OK || std::memcmp(t.data, tensors[0].bytes.data(), 4000) != 0) wrong |= 1;
    if (st_get(file, "b", ST_NTS, &t) != ST_E_UNSUPPORTED) wrong |= 2;
    if (st_read(file, "b", ST_NTS, room.data(), room.size(), nullptr) != ST_E_UNSUPPORTED) wrong |= 4;
    if (st_load(file, nullptr, 0, nullptr) != ST_E_UNSUPPORTED) wrong |= 8;
    if (store.reads != before) wrong |= 16;
    st_close(file);
    ::_exit(wrong);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(same_bytes(seen(file, "b"), tensors[1].bytes));
  st_close(file);
}

// A child that comes back from the read of its parent has neither the threads nor the place of the source.
TEST_F(CapiSource, AReadThatForksFailsInTheChild) {
  struct Forks {
    st_source of;
    bool armed;
    pid_t child;
    static int read(void *user, const st_source_range *ranges, size_t n) {
      auto &forks = *static_cast<Forks *>(user);
      if (std::exchange(forks.armed, false)) forks.child = ::fork();
      return forks.of.read(forks.of.user, ranges, n);
    }
  } forks{store.source(), false, -1};
  st_source source = forks.of;
  source.read = Forks::read;
  source.user = &forks;
  source.close = nullptr;
  st_file *file = open_source(source);
  std::string room(tensors[1].bytes.size(), '?');
  forks.armed = true;
  const st_status status = st_read(file, "b", ST_NTS, room.data(), room.size(), nullptr);
  if (forks.child == 0) {
    const bool is_told = std::string(st_last_error()).find("open it anew") != std::string::npos;
    st_close(file);
    ::_exit(status == ST_E_UNSUPPORTED && is_told ? 0 : 1);
  }
  ASSERT_EQ(status, ST_OK);
  EXPECT_EQ(room, std::string(reinterpret_cast<const char *>(tensors[1].bytes.data()), room.size()));
  int ended = -1;
  ASSERT_EQ(::waitpid(forks.child, &ended, 0), forks.child);
  EXPECT_TRUE(WIFEXITED(ended));
  EXPECT_EQ(WEXITSTATUS(ended), 0);
  st_close(file);
}

}  // namespace
}  // namespace st
