// Transactions whose system calls fail: what is said, what is promised, and
// what the next opener finds.
#include "lock_of_file.h"
#include "store_scene.h"
#include "two_devices_env.h"

namespace st::store {
namespace {

using namespace testing;
using testing::Call;
namespace fs = std::filesystem;

// Tells the data file's writes and syncs from the journal's.
class DiskEnv : public TwoDevicesEnv {
 public:
  using TwoDevicesEnv::TwoDevicesEnv;
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
    if (is_data(fd) && data_write) return -data_write;
    return FaultEnv::pwrite(fd, buffer, n, offset);
  }
  int fdatasync(int fd) override {
    if (const int error = is_data(fd) ? data_sync : journal_sync; error) return -error;
    return FaultEnv::fdatasync(fd);
  }
  static bool is_data(int fd) {
    char name[4096];
    const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof name);
    return std::string_view(name, static_cast<size_t>(std::max<ssize_t>(n, 0))).ends_with(".safetensors");
  }
  int data_write = 0, data_sync = 0, journal_sync = 0;
};

class FailedCommit : public testing::StoreScene {
 protected:
  DiskEnv disk{env};
};

TEST_F(FailedCommit, AJournalThatCannotBeSyncedPoisonsTheHandleAndChangesNothing) {
  auto c = open(disk);
  auto waiting = begin(*c);
  ASSERT_TRUE(is_ok(waiting->update("c", value(*c, "c", new_c))));
  disk.journal_sync = EIO;
  auto failed = update(*c, "a", new_a);
  ASSERT_TRUE(fails_with(Status::io, failed));
  EXPECT_EQ(failed.error().os_errno, EIO);
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  disk.journal_sync = 0;  // even if the disk seems well again
  EXPECT_TRUE(fails_with(Status::poisoned, Transaction::begin(*c, {})));
  EXPECT_TRUE(fails_with(Status::poisoned, waiting->update("b", value(*c, "b", new_b))));
  EXPECT_TRUE(fails_with(Status::poisoned, waiting->commit()));
  EXPECT_TRUE(same_bytes(seen(*c, "a"), tensors[0].bytes));  // reading goes on
  waiting.reset();
  c.reset();
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  EXPECT_FALSE(fs::exists(folder()));
  EXPECT_TRUE(is_ok(update(*open(), "a", new_a)));  // a new handle is well
}

// The record was written, and shares the sync: nobody knows what of it the disk has.
TEST_F(FailedCommit, AJournalThatCannotBeSyncedWithItsRecordIsForRecovery) {
  disk.two_devices = false;
  auto c = open(disk);
  disk.journal_sync = EIO;
  auto failed = update(*c, "a", new_a);
  ASSERT_TRUE(fails_with(Status::needs_recovery, failed));
  EXPECT_EQ(failed.error().os_errno, EIO);
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  disk.journal_sync = 0;
  EXPECT_TRUE(fails_with(Status::poisoned, Transaction::begin(*c, {})));
  c.reset();
  EXPECT_TRUE(same_bytes(seen(*open(), "a"), new_a));
  EXPECT_FALSE(fs::exists(folder()));
}

// As where the file alone is mounted over its name.
TEST_F(FailedCommit, AJournalOnAnotherFilesystemReliesOnNoOthersSyncs) {
  struct Apart : TwoDevicesEnv {
    using TwoDevicesEnv::TwoDevicesEnv;
    int fstat(int fd, struct stat *out) override {
      const int r = TwoDevicesEnv::fstat(fd, out);
      if (apart && !DiskEnv::is_data(fd) && S_ISREG(out->st_mode)) ++out->st_dev;
      return r;
    }
    int fstatat(int dir, const char *name, struct stat *out, int flags) override {
      const int r = TwoDevicesEnv::fstatat(dir, name, out, flags);
      if (apart && r == 0 && !std::string_view(name).ends_with(".safetensors") && S_ISREG(out->st_mode)) ++out->st_dev;
      return r;
    }
    bool apart = false;
  };
  for (const bool apart : {false, true}) {
    Apart two(env);
    two.two_devices = false;
    two.apart = apart;
    auto c = open(two);
    two.calls.clear();
    ASSERT_TRUE(is_ok(update(*c, "a", new_a)));
    EXPECT_EQ(std::count(two.calls.begin(), two.calls.end(), Call::fdatasync), apart ? 4 : 2);
  }
}

TEST_F(FailedCommit, AFullDiskChangesNothingAndPoisonsNothing) {
  auto c = open(disk);
  disk.before = [](Call call) { return call == Call::fallocate ? -ENOSPC : 0; };
  EXPECT_TRUE(fails_with(Status::no_space, update(*c, "a", new_a)));
  disk.before = nullptr;
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  EXPECT_TRUE(is_ok(update(*c, "a", new_a)));
}

TEST_F(FailedCommit, AfterThePointOfNoReturnTheNextOpenerFinishesIt) {
  for (bool at_sync : {false, true})
    for (int error : {EIO, ENOSPC}) {
      testing::put_bytes(path, old);
      auto c = open(disk);
      auto t = begin(*c);
      ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
      ASSERT_TRUE(is_ok(t->update("b", value(*c, "b", new_b))));
      (at_sync ? disk.data_sync : disk.data_write) = error;
      auto failed = t->commit();
      ASSERT_TRUE(fails_with(Status::needs_recovery, failed));
      EXPECT_EQ(failed.error().os_errno, error);
      t.reset();
      auto next = Transaction::begin(*c, {});
      ASSERT_TRUE(fails_with(Status::poisoned, next));
      EXPECT_NE(next.error().message.find("an earlier write or sync of"), std::string::npos);
      EXPECT_EQ(testing::names_in(folder()).size(), 1u);
      disk.data_sync = disk.data_write = 0;
      EXPECT_TRUE(same_bytes(seen(*open({}), "b"), new_b));  // also while the failed handle is open
      EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}, {b_at, new_b}})));
      c.reset();
      EXPECT_FALSE(fs::exists(folder()));
    }
}

TEST_F(FailedCommit, OthersOnTheSameFileFinishItToo) {
  auto c = open(disk), neighbour = open();
  disk.data_write = EIO;
  ASSERT_TRUE(fails_with(Status::needs_recovery, update(*c, "a", new_a)));
  ASSERT_TRUE(is_ok(update(*neighbour, "c", new_c)));
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}, {c_at, new_c}})));
  EXPECT_TRUE(same_bytes(seen(*neighbour, "a"), new_a));
}

// A committed journal is evidence: neither used again nor thrown away.
TEST_F(FailedCommit, TheJournalOutlivesTheHandle) {
  {
    auto c = open(disk);
    disk.data_write = EIO;
    ASSERT_TRUE(fails_with(Status::needs_recovery, update(*c, "a", new_a)));
  }
  EXPECT_EQ(testing::names_in(folder()).size(), 1u);
  auto r = recover();
  ASSERT_TRUE(is_ok(r));
  EXPECT_EQ(r->applied, 1u);
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}})));
}

// Every call in turn, once and for good: a status, and the old bytes or the new.
TEST_F(FailedCommit, AtAnyCallLeavesTheOldBytesOrTheNewOnes) {
  for (bool sticky : {false, true})
    for (int error : {EIO, ENOSPC, EINTR}) {
      size_t n = 0;
      for (;; ++n) {
        testing::put_bytes(path, old);
        FaultEnv faulty(env);
        bool acknowledged = false, over = false;
        {
          auto c = open(faulty);
          auto t = begin(*c);
          faulty.calls.clear();
          faulty.before = testing::nth_call_fails(n, -error, sticky, testing::can_fail);
          auto staged = t->update("a", value(*c, "a", new_a));
          if (staged) staged = t->update("c", value(*c, "c", new_c));
          auto done = staged ? t->commit() : std::move(staged);
          acknowledged = done.has_value();
          if (!done) {
            EXPECT_FALSE(done.error().message.empty());
            EXPECT_NE(done.error().status, Status::internal);
            if (done.error().status != Status::needs_recovery) {
              EXPECT_TRUE(same_bytes(bytes_of(path), old)) << n;
            }
          }
          over = static_cast<size_t>(std::count_if(faulty.calls.begin(), faulty.calls.end(), testing::can_fail)) <= n;
          t.reset();
        }
        auto reader = DataFile::open(env, path, {});
        ASSERT_TRUE(is_ok(reader)) << n << " errno " << error;
        const std::string now = bytes_of(path);
        if (acknowledged) {
          ASSERT_TRUE(same_bytes(now, with({{a_at, new_a}, {c_at, new_c}}))) << n;
        } else {
          ASSERT_TRUE(now == old || now == with({{a_at, new_a}, {c_at, new_c}})) << n;
        }
        fs::remove_all(folder());
        if (over) break;
      }
      EXPECT_GT(n, 20u);
    }
}

TEST_F(FailedCommit, AViewThatCannotBeBroughtUpToDateIsOnlyLogged) {
  std::vector<std::string> log;
  OpenOptions options = writable();
  options.map = read::MapMode::none;
  options.log = [&](LogLevel, const std::string &m) {
    log.push_back(m);
    const LockOfFile free(path);
  };
  auto c = open(disk, std::move(options));
  ASSERT_TRUE(same_bytes(seen(*c, "a"), tensors[0].bytes));
  int syncs = 0;  // of the journal, the record, the file, the emptied journal
  disk.before = [&](Call call) {
    if (call == Call::fdatasync) ++syncs;
    return call == Call::pread && syncs == 4 ? -EIO : 0;
  };
  EXPECT_TRUE(is_ok(update(*c, "a", new_a)));
  EXPECT_EQ(log.size(), 1u);
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}})));
}

}  // namespace
}  // namespace st::store
