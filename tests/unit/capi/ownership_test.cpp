// What frees: st_txn_free, st_writer_free and st_close, and nothing else. Run under AddressSanitizer too: there a
// leak or a stale pointer is a failure.
#include <sys/resource.h>

#include "lock_of_file.h"
#include "scene.h"

namespace st::testing {
namespace {

namespace fs = std::filesystem;

class CapiOwnership : public CapiScene {
 protected:
  using Lock = LockOfFile;

  static st_txn *begin(st_file *file, const st_txn_options &given = sized<st_txn_options>()) {
    st_txn_options options = given;
    options.lock_timeout_ms = ST_TIMEOUT_NONE;
    st_txn *txn = nullptr;
    EXPECT_ST(ST_OK, st_txn_begin(file, &options, &txn));
    return txn;
  }
  st_txn *staged(st_file *file) const {
    st_txn *txn = begin(file);
    EXPECT_ST(ST_OK, st_txn_update(txn, "a", ST_NTS, &a));
    return txn;
  }
  // Whatever is asked of it, it does nothing.
  void expect_ended(st_txn *txn) const {
    const std::string before = bytes_of(path);
    auto plan = sized<st_plan>();
    for (int again = 0; again < 2; ++again) {
      EXPECT_ST(ST_E_TXN_FAILED, st_txn_update(txn, "b", ST_NTS, &b));
      EXPECT_ST(ST_E_TXN_FAILED, st_txn_put(txn, "b", ST_NTS, &b));
      EXPECT_ST(ST_E_TXN_FAILED, st_txn_delete(txn, "b", ST_NTS));
      EXPECT_ST(ST_E_TXN_FAILED, st_txn_rename(txn, "b", ST_NTS, "c", ST_NTS));
      EXPECT_ST(ST_E_TXN_FAILED, st_txn_set_metadata(txn, "by", ST_NTS, "me", ST_NTS));
      EXPECT_ST(ST_E_TXN_FAILED, st_txn_plan(txn, &plan));
      EXPECT_ST(ST_E_TXN_FAILED, st_txn_commit(txn));
    }
    EXPECT_EQ(plan.kind | plan.file_size, 0u);
    EXPECT_TRUE(same_bytes(bytes_of(path), before));
  }

  st_writer *writer_of(const std::string &to, size_t declared = 1) {
    auto options = sized<st_save_options>();
    options.lock_timeout_ms = ST_TIMEOUT_NONE;
    st_writer *writer = nullptr;
    EXPECT_ST(ST_OK, st_writer_open(to.c_str(), &x, declared, nullptr, 0, &options, &writer));
    return writer;
  }
  void expect_ended(st_writer *writer) const {
    for (int again = 0; again < 2; ++again) {
      EXPECT_ST(ST_E_TXN_FAILED, st_writer_write(writer, "x", ST_NTS, new_a.data(), 1));
      EXPECT_ST(ST_E_TXN_FAILED, st_writer_put(writer, &x));
      EXPECT_ST(ST_E_TXN_FAILED, st_writer_finish(writer));
    }
  }

  const st_tensor a = value(0, new_a), b = value(1, new_b);
  const st_tensor x = [this] {
    st_tensor t = value(0, new_a);
    t.name = "x";
    t.name_len = ST_NTS;
    return t;
  }();
};

TEST_F(CapiOwnership, ATransactionIsFreedAfterItsCommit) {
  st_file *file = open();
  st_txn *txn = staged(file);
  ASSERT_ST(ST_OK, st_txn_commit(txn));
  EXPECT_TRUE(same_bytes(bytes_of(path), with(a_at, new_a)));
  expect_ended(txn);
  EXPECT_ST(ST_OK, st_update(file, "b", ST_NTS, &b));  // what has ended is in nobody's way
  st_txn_free(txn);
  st_txn *of_nothing = begin(file);
  EXPECT_ST(ST_OK, st_txn_commit(of_nothing));
  expect_ended(of_nothing);
  st_txn_free(of_nothing);
  st_close(file);
}

TEST_F(CapiOwnership, ATransactionIsFreedAfterAPublish) {
  st_file *file = open();
  st_txn *txn = begin(file);
  ASSERT_ST(ST_OK, st_txn_put(txn, "x", ST_NTS, &a));
  ASSERT_ST(ST_OK, st_txn_commit(txn));
  EXPECT_EQ(st_count(file), 4u);
  expect_ended(txn);
  st_close(file);
  expect_ended(txn);
  st_txn_free(txn);
}

TEST_F(CapiOwnership, ATransactionIsFreedAfterACommitThatFailed) {
  st_file *file = open();
  st_txn *txn = staged(file);
  fs::rename(path, dir / "away");
  EXPECT_ST(ST_E_NO_FILE, st_txn_commit(txn));
  fs::rename(dir / "away", path);
  expect_ended(txn);
  st_txn_free(txn);
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  st_close(file);
  EXPECT_FALSE(fs::exists(path + ".st-journal"));
}

TEST_F(CapiOwnership, ATransactionIsFreedAfterACallThatEndedIt) {
  st_file *file = open();
  auto options = sized<st_txn_options>();
  options.flags = ST_TXN_COPY;
  options.progress = [](void *, uint64_t, uint64_t) { return 1; };
  st_txn *txn = begin(file, options);
  EXPECT_ST(ST_E_CANCELLED, st_txn_update(txn, "a", ST_NTS, &a));
  expect_ended(txn);
  st_txn_free(txn);
  st_close(file);
  EXPECT_FALSE(fs::exists(path + ".st-journal"));
}

TEST_F(CapiOwnership, ARefusalEndsNoTransaction) {
  st_file *file = open();
  st_txn *txn = begin(file);
  EXPECT_ST(ST_E_NOT_FOUND, st_txn_update(txn, "x", ST_NTS, &a));
  EXPECT_ST(ST_E_SHAPE_MISMATCH, st_txn_update(txn, "b", ST_NTS, &a));
  EXPECT_ST(ST_OK, st_txn_update(txn, "a", ST_NTS, &a));
  EXPECT_ST(ST_OK, st_txn_commit(txn));
  st_txn_free(txn);
  st_close(file);
  EXPECT_TRUE(same_bytes(bytes_of(path), with(a_at, new_a)));
}

TEST_F(CapiOwnership, TransactionsAreFreedAfterTheirHandleWasClosed) {
  st_file *file = open();
  st_txn *freed = staged(file), *committed = staged(file), *live = staged(file), *empty = begin(file),
         *publishes = begin(file);
  ASSERT_ST(ST_OK, st_txn_delete(publishes, "b", ST_NTS));
  st_txn_free(freed);
  ASSERT_ST(ST_OK, st_txn_commit(committed));
  st_close(file);
  EXPECT_FALSE(fs::exists(path + ".st-journal"));  // what was staged has gone with the handle
  EXPECT_TRUE(same_bytes(bytes_of(path), with(a_at, new_a)));
  for (st_txn *each : {live, committed, publishes, empty}) {
    expect_ended(each);
    st_txn_free(each);
  }
}

TEST_F(CapiOwnership, ABusyTransactionMayBeCommittedAgain) {
  st_file *file = open(), *other = open();
  st_txn *txn = staged(file), *dropped = staged(other);
  {
    const Lock lock(path);
    EXPECT_ST(ST_E_BUSY, st_txn_commit(txn));
    EXPECT_ST(ST_E_BUSY, st_txn_commit(dropped));
    EXPECT_ST(ST_E_BUSY, st_txn_commit(txn));
    EXPECT_ST(ST_OK, st_txn_update(txn, "b", ST_NTS, &b));  // it may grow meanwhile
  }
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  EXPECT_ST(ST_OK, st_txn_commit(txn));
  expect_ended(txn);
  st_txn_free(txn);
  st_txn_free(dropped);
  st_close(other);
  st_close(file);
  EXPECT_TRUE(same_bytes(bytes_of(path), with(a_at, new_a + new_b)));
}

TEST_F(CapiOwnership, ABusyTransactionEndsWithItsHandle) {
  st_file *file = open();
  st_txn *txn = staged(file);
  {
    const Lock lock(path);
    EXPECT_ST(ST_E_BUSY, st_txn_commit(txn));
    st_close(file);
  }
  expect_ended(txn);
  st_txn_free(txn);
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

TEST_F(CapiOwnership, AWriterIsFreedAfterItsFile) {
  const std::string to = dir / "new.safetensors";
  for (const size_t declared : {0, 1}) {
    st_writer *writer = writer_of(to, declared);
    ASSERT_ST(ST_OK, st_writer_put(writer, &x));
    ASSERT_ST(ST_OK, st_writer_finish(writer));
    const std::string written = bytes_of(to);
    expect_ended(writer);
    st_writer_free(writer);
    EXPECT_TRUE(same_bytes(bytes_of(to), written));
    st_file *file = nullptr;
    ASSERT_ST(ST_OK, st_open(to.c_str(), nullptr, &file));
    EXPECT_TRUE(same_bytes(seen(file, "x"), new_a));
    st_close(file);
  }
}

TEST_F(CapiOwnership, AWriterIsFreedWithoutAFile) {
  st_writer *writer = writer_of(dir / "new.safetensors"), *untouched = writer_of(dir / "other.safetensors");
  ASSERT_ST(ST_OK, st_writer_write(writer, "x", ST_NTS, new_a.data(), 1000));
  st_writer_free(writer);
  st_writer_free(untouched);
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"model.safetensors"});
}

TEST_F(CapiOwnership, AWriterIsFreedAfterAFailure) {
  const std::string folder = dir / "folder";
  fs::create_directory(folder);
  st_writer *writer = writer_of(folder + "/new.safetensors");
  ASSERT_ST(ST_OK, st_writer_put(writer, &x));
  fs::remove_all(folder);
  const st_status status = st_writer_finish(writer);
  EXPECT_TRUE(status != ST_OK && status != ST_E_BUSY && status != ST_E_INCOMPLETE) << st_status_name(status);
  expect_ended(writer);
  st_writer_free(writer);
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(CapiOwnership, AnIncompleteWriterMayGoOn) {
  const std::string to = dir / "new.safetensors";
  st_writer *writer = writer_of(to);
  EXPECT_ST(ST_E_INCOMPLETE, st_writer_finish(writer));
  ASSERT_ST(ST_OK, st_writer_write(writer, "x", ST_NTS, new_a.data(), 1000));
  EXPECT_ST(ST_E_INCOMPLETE, st_writer_finish(writer));
  EXPECT_ST(ST_E_NBYTES_MISMATCH, st_writer_write(writer, "x", ST_NTS, new_a.data(), 4000));
  ASSERT_ST(ST_OK, st_writer_write(writer, "x", ST_NTS, new_a.data() + 1000, 3000));
  EXPECT_FALSE(fs::exists(to));
  EXPECT_ST(ST_OK, st_writer_finish(writer));
  expect_ended(writer);
  st_writer_free(writer);
  EXPECT_TRUE(bytes_of(to).ends_with(new_a));
}

TEST_F(CapiOwnership, ABusyWriterMayFinishLater) {
  st_writer *writer = writer_of(path), *dropped = writer_of(path);
  for (st_writer *each : {writer, dropped}) ASSERT_ST(ST_OK, st_writer_put(each, &x));
  {
    const Lock lock(path);
    EXPECT_ST(ST_E_BUSY, st_writer_finish(writer));
    EXPECT_ST(ST_E_BUSY, st_writer_finish(dropped));
    EXPECT_ST(ST_E_BUSY, st_writer_finish(writer));
  }
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  st_tensor late = x;  // the header is written
  late.name = "late";
  late.name_len = ST_NTS;
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_writer_put(writer, &late));
  EXPECT_ST(ST_OK, st_writer_finish(writer));
  expect_ended(writer);
  st_writer_free(writer);
  st_writer_free(dropped);
  EXPECT_TRUE(bytes_of(path).ends_with(new_a));
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"model.safetensors"});
}

TEST_F(CapiOwnership, AWriterMayFinishWhenFilesCanBeOpenedAgain) {
  st_writer *writer = writer_of(path);
  ASSERT_ST(ST_OK, st_writer_put(writer, &x));
  rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none = {1, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_ST(ST_E_IO, st_writer_finish(writer));
  EXPECT_ST(ST_E_IO, st_writer_finish(writer));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  EXPECT_ST(ST_OK, st_writer_finish(writer));
  expect_ended(writer);
  st_writer_free(writer);
  EXPECT_TRUE(bytes_of(path).ends_with(new_a));
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"model.safetensors"});
}

TEST_F(CapiOwnership, NothingIsFreedByNull) {
  st_txn_free(nullptr);
  st_writer_free(nullptr);
  st_close(nullptr);
}

}  // namespace
}  // namespace st::testing
