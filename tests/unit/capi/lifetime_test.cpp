// For how long pointers live, and what callbacks may do. Run under AddressSanitizer too: there a leak or a stale
// pointer is a failure.
#include <unistd.h>

#include <thread>

#include "scene.h"

namespace st {
namespace {

using namespace testing;
using testing::commit;
namespace fs = std::filesystem;

class CapiLifetime : public testing::CapiScene {
 protected:
  st_txn *begin(st_file *file, uint32_t flags = 0) {
    auto options = sized<st_txn_options>();
    options.flags = flags;
    options.lock_timeout_ms = ST_TIMEOUT_NONE;
    st_txn *txn = nullptr;
    EXPECT_ST(ST_OK, st_txn_begin(file, &options, &txn));
    return txn;
  }
};

TEST_F(CapiLifetime, PayloadsAreBorrowedOrCopiedAsAsked) {
  st_file *file = open();
  st_txn *txn = begin(file, ST_TXN_COPY);
  {
    const auto gone = std::make_unique<std::string>(new_a);
    const auto shape = std::make_unique<uint64_t>(4000);
    st_tensor v = value(0, *gone);
    v.shape = shape.get();
    const std::string name = "a";
    ASSERT_ST(ST_OK, st_txn_update(txn, name.c_str(), ST_NTS, &v));
  }
  ASSERT_ST(ST_OK, commit(txn));
  EXPECT_TRUE(same_bytes(bytes_of(path), with(a_at, new_a)));
  st_close(file);
}

TEST_F(CapiLifetime, ViewsAndNamesLiveAcrossCommitsAndReplacedFiles) {
  for (uint32_t map : {ST_MAP_SHARED, ST_MAP_PRIVATE, ST_MAP_NONE, ST_MAP_COPY_ON_WRITE}) {
    testing::put_bytes(path, old);
    st_file *file = open(ST_OPEN_READ_WRITE, map);
    st_tensor before;
    const char *format;
    size_t n;
    ASSERT_ST(ST_OK, st_get(file, "b", ST_NTS, &before));
    ASSERT_ST(ST_OK, st_metadata_get(file, "format", ST_NTS, &format, &n));
    const st_tensor b = value(1, new_b);
    ASSERT_ST(ST_OK, st_update(file, "b", ST_NTS, &b));
    const std::string &shown = map == ST_MAP_COPY_ON_WRITE ? tensors[1].bytes : new_b;
    EXPECT_EQ(std::memcmp(before.data, shown.data(), shown.size()), 0);  // the new bytes, in the old place

    testing::replace_by(path, old);
    const st_tensor a = value(0, new_a);
    ASSERT_ST(ST_OK, st_update(file, "a", ST_NTS, &a));  // the handle moves on
    EXPECT_EQ(std::memcmp(before.data, shown.data(), shown.size()), 0);
    EXPECT_STREQ(before.name, "b");
    EXPECT_EQ(before.shape[0], 10007u);
    EXPECT_STREQ(format, "pt");
    EXPECT_EQ(seen(file, "b"), tensors[1].bytes);
    st_close(file);
  }
}

TEST_F(CapiLifetime, AReopenedHandleOutlivesTheFirst) {
  st_file *file = open(), *second = nullptr;
  ASSERT_ST(ST_OK, st_reopen(file, 0, &second));
  st_close(file);
  const st_tensor a = value(0, new_a);
  ASSERT_ST(ST_OK, st_update(second, "a", ST_NTS, &a));  // with the same options
  EXPECT_EQ(seen(second, "a"), new_a);
  st_close(second);
}

TEST_F(CapiLifetime, TransactionsOfManyThreadsMayBeginAndEndAtOnce) {
  st_file *file = open();
  std::vector<std::thread> threads;
  std::atomic<int> failed = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        st_txn *txn = nullptr;
        if (st_txn_begin(file, nullptr, &txn) != ST_OK)
          ++failed;
        else if ((i + t) % 2)
          st_txn_free(txn);
        else if (commit(txn) != ST_OK)
          ++failed;
      }
    });
  for (std::thread &t : threads) t.join();
  EXPECT_EQ(failed, 0);
  st_close(file);
}

int cancel(void *user, uint64_t, uint64_t) {
  return --*static_cast<int *>(user) < 0;
}
int throw_up(void *, uint64_t, uint64_t) {
  throw 42;
}

TEST_F(CapiLifetime, ProgressCancelsAndChangesNothing) {
  auto options = sized<st_open_options>();
  options.flags = ST_OPEN_READ_WRITE;
  int calls_left = 1000;
  options.progress = cancel;
  options.progress_user = &calls_left;
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, st_open(path.c_str(), &options, &file));
  const st_tensor a = value(0, new_a);
  for (calls_left = 0;; ++calls_left) {
    int before = calls_left;
    const st_status status = st_update(file, "a", ST_NTS, &a);
    calls_left = before;
    if (status == ST_OK) break;
    ASSERT_STREQ(st_status_name(status), "ST_E_CANCELLED");
    EXPECT_TRUE(same_bytes(bytes_of(path), old));
    ASSERT_LT(calls_left, 100);
  }
  EXPECT_GE(calls_left, 1);
  st_close(file);
}

// A read of 64 KiB in one piece asks nobody.
TEST_F(CapiLifetime, ProgressCancelsReadsThatAreLong) {
  const std::string content = testing::pattern(131074, 5);
  testing::put_bytes(path, testing::file_of({testing::TestTensor{"long", Dtype::U8, {2, 65537}, content}}, metadata));
  auto options = sized<st_open_options>();
  int calls_left = 0;
  options.progress = cancel;
  options.progress_user = &calls_left;
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, st_open(path.c_str(), &options, &file));
  std::string room(content.size(), '?');
  EXPECT_ST(ST_E_CANCELLED, st_read(file, "long", ST_NTS, room.data(), room.size(), nullptr));
  const auto slice = [&](std::vector<st_range> ranges) {
    calls_left = 0;
    return st_read_slice(file, "long", ST_NTS, ranges.data(), ranges.size(), room.data(), room.size(), nullptr);
  };
  EXPECT_ST(ST_E_CANCELLED, slice({{1, 2, 1}}));
  EXPECT_ST(ST_E_CANCELLED, slice({{0, 2, 1}, {0, 1, 1}}));
  EXPECT_ST(ST_OK, slice({{1, 2, 1}, {1, 65537, 1}}));
  EXPECT_TRUE(testing::same_bytes(room.substr(0, 65536), content.substr(65538)));
  EXPECT_EQ(calls_left, 0);
  st_close(file);
}

TEST_F(CapiLifetime, ATransactionTellsItsOwnProgressOrElseTheHandles) {
  const auto count = [](void *user, uint64_t, uint64_t) { return ++*static_cast<int *>(user), 0; };
  int of_handle = 0, of_transaction = 0;
  auto options = sized<st_open_options>();
  options.flags = ST_OPEN_READ_WRITE;
  options.progress = count;
  options.progress_user = &of_handle;
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, st_open(path.c_str(), &options, &file));
  const st_tensor a = value(0, new_a);
  for (const bool own : {false, true}) {
    of_handle = of_transaction = 0;
    auto given = sized<st_txn_options>();
    given.progress = own ? count : st_progress_fn();
    given.progress_user = &of_transaction;
    st_txn *txn = nullptr;
    ASSERT_ST(ST_OK, st_txn_begin(file, &given, &txn));
    ASSERT_ST(ST_OK, st_txn_update(txn, "a", ST_NTS, &a));
    ASSERT_ST(ST_OK, commit(txn));
    EXPECT_EQ(of_transaction > 0, own);
    EXPECT_EQ(of_handle > 0, !own);
  }
  st_close(file);
}

// C++ callers may throw; what C frames would make of it nobody knows.
TEST_F(CapiLifetime, ExceptionsFromCallbacksDoNotCross) {
  auto options = sized<st_open_options>();
  options.flags = ST_OPEN_READ_WRITE;
  options.progress = throw_up;
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, st_open(path.c_str(), &options, &file));
  std::string room(4000, '?');
  const st_read_request request = {"a", ST_NTS, 0, room.data(), room.size(), nullptr, 0, 0};
  EXPECT_ST(ST_E_INTERNAL, st_read_many(file, &request, 1, nullptr));
  const st_tensor a = value(0, new_a);
  EXPECT_ST(ST_E_INTERNAL, st_update(file, "a", ST_NTS, &a));
  st_close(file);
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  auto verify = sized<st_verify_options>();
  verify.report = [](void *, const st_report *) -> int { throw std::string("no"); };
  EXPECT_ST(ST_E_INTERNAL, st_verify(path.c_str(), &verify));
}

TEST_F(CapiLifetime, ReportsSayTheirSizeAndCanStop) {
  testing::put_bytes(path, old + "x");
  struct Seen {
    std::vector<st_status> statuses;
    int answer = 0;
  } reports;
  auto verify = sized<st_verify_options>();
  verify.report = [](void *user, const st_report *r) {
    EXPECT_EQ(r->struct_size, sizeof(st_report));
    EXPECT_EQ(r->reserved0, 0u);
    EXPECT_EQ(r->reserved1, 0u);
    EXPECT_NE(r->message[0], '\0');
    auto *s = static_cast<Seen *>(user);
    s->statuses.push_back(r->status);
    return s->answer;
  };
  verify.report_user = &reports;
  EXPECT_ST(ST_E_TRAILING_DATA, st_verify(path.c_str(), &verify));
  EXPECT_EQ(reports.statuses, std::vector<st_status>{ST_E_TRAILING_DATA});
  testing::put_bytes(path, old);
  reports.answer = 1;
  EXPECT_ST(ST_E_CANCELLED, st_verify(path.c_str(), &verify));
  // Two hot journals: the first report stops the recovery of the second.
  fs::create_directory(path + ".st-journal");
  for (const char *name : {"/0000000000000001", "/0000000000000002"})
    testing::put_bytes(path + ".st-journal" + name, std::string(4096, '\0'));
  auto options = sized<st_recover_options>();
  options.report = verify.report;
  options.report_user = &reports;
  EXPECT_ST(ST_E_CANCELLED, st_recover(path.c_str(), &options));
  EXPECT_EQ(testing::names_in(path + ".st-journal").size(), 1u);
  EXPECT_ST(ST_OK, st_recover(path.c_str(), nullptr));
  EXPECT_FALSE(fs::exists(path + ".st-journal"));
}

TEST_F(CapiLifetime, TheLogTellsOfARecovery) {
  fs::create_directory(path + ".st-journal");
  testing::put_bytes(path + ".st-journal/0000000000000001", std::string(4096, '\1'));
  std::vector<std::string> log;
  auto options = sized<st_open_options>();
  options.log = [](void *user, uint32_t level, const char *message) {
    EXPECT_EQ(level, static_cast<uint32_t>(ST_LOG_WARNING));
    static_cast<std::vector<std::string> *>(user)->push_back(message);
  };
  options.log_user = &log;
  st_file *file = nullptr;
  EXPECT_ST(ST_E_JOURNAL, st_open(path.c_str(), &options, &file));
  EXPECT_EQ(log.size(), 1u);
  EXPECT_EQ(file, nullptr);
}

}  // namespace
}  // namespace st
