// Two hosts and one file. Each remembers what it has seen, and is told nothing of what the other changes (stale_env.h).
#include <signal.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "journal/recover.h"
#include "os/rename_over.h"
#include "stale_env.h"
#include "store_scene.h"

namespace st::store {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class Hosts : public testing::StoreScene, public ::testing::WithParamInterface<StaleEnv::Client> {
 protected:
  void SetUp() override {
    StoreScene::SetUp();
    for (StaleEnv *host : {&here, &there}) host->client = GetParam();
  }
  // A reader there has had all of the file in its host's cache.
  void look(StaleEnv &host) {
    auto reader = open(host, {});
    for (const char *name : {"a", "b", "c"}) seen(*reader, name);
  }
  static TransactionOptions at_once() {
    TransactionOptions options;
    options.lock_timeout_ms = 0;
    return options;
  }
  StaleEnv here{env}, there{env};
};

TEST_P(Hosts, ARefreshShowsWhatAnotherHostHasCommitted) {
  auto writer = open(here);
  auto reader = open(there, {}), other = open(there);
  for (int round = 0; round < 3; ++round) {
    const std::string now = pattern(10007, 80 + round);
    for (auto *file : {reader.get(), other.get()}) seen(*file, "b");
    ASSERT_TRUE(is_ok(update(*writer, "b", now)));
    for (auto *file : {reader.get(), other.get()}) {
      ASSERT_TRUE(is_ok(file->refresh()));
      EXPECT_TRUE(same_bytes(seen(*file, "b"), now));
    }
    EXPECT_TRUE(same_bytes(seen(*open(there), "b"), now));
  }
}

TEST_P(Hosts, AChangeGoesToTheFileThatAnotherHostHasPublished) {
  auto writer = open(here), other = open(there);
  seen(*other, "b");
  TransactionOptions publish;
  publish.publish = true;
  ASSERT_TRUE(is_ok(update(*writer, "b", new_b, std::move(publish))));
  ASSERT_TRUE(is_ok(update(*other, "c", new_c)));
  EXPECT_TRUE(same_bytes(seen(*open(here), "b"), new_b));
  EXPECT_TRUE(same_bytes(seen(*open(here), "c"), new_c));
}

// On an overlay, say, of which the table of mounts tells.
TEST_P(Hosts, AFolderWithoutADeviceIsAskedOnceWhatItIs) {
  class WithoutDevice : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int fstat(int fd, struct stat *out) override {
      const int r = FaultEnv::fstat(fd, out);
      out->st_dev = makedev(0, 99);
      return r;
    }
  } without(env);
  const auto at = os::Location::find_new(without, dir / "none");
  ASSERT_TRUE(is_ok(at));
  struct stat s;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(at->stat(&s), -ENOENT);
  EXPECT_EQ(std::ranges::count(without.calls, Call::fstatfs), 1);
}

TEST_P(Hosts, AFolderOnADiskIsAskedNothingMore) {
  FaultEnv disk(env);
  const auto at = os::Location::find_new(disk, dir / "none");
  ASSERT_TRUE(is_ok(at));
  struct stat s;
  EXPECT_EQ(at->stat(&s), -ENOENT);
  disk.calls.clear();
  EXPECT_FALSE(*os::await_rename_over(*at, {}));
  EXPECT_EQ(at->stat(&s), -ENOENT);
  EXPECT_EQ(disk.calls, std::vector<Call>{Call::fstatat});
}

// This kernel leads the name to a file that is gone, and has forgotten all else of it. Then the server says of the name
// that there is no such file, until it is asked for the name.
TEST_P(Hosts, ANameThatIsRememberedOfAFileThatIsGoneIsAskedForAnew) {
  struct Remembering : StaleEnv {
    using StaleEnv::StaleEnv;
    int openat(int dir, const char *name, int flags, mode_t mode) override {
      return is_old(name) ? -ENOENT : StaleEnv::openat(dir, name, flags, mode);
    }
    int fstatat(int dir, const char *name, struct stat *out, int flags) override {
      return is_old(name) ? -ENOENT : StaleEnv::fstatat(dir, name, out, flags);
    }
    int renew_name(int dir, const char *name) override {
      if (is_old(name)) remembers.clear();
      return StaleEnv::renew_name(dir, name);
    }
    bool is_old(const char *name) const { return name == remembers; }
    std::string remembers;
  };
  for (const bool writable : {false, true}) {
    Remembering host(env);
    host.client = GetParam();
    host.remembers = fs::path(path).filename().string();
    EXPECT_TRUE(
        same_bytes(seen(*open(host, writable ? StoreScene::writable() : OpenOptions()), "b"), seen(*open(), "b")));
    EXPECT_EQ(host.remembers, "");
    auto at = os::Location::find(host, path);
    ASSERT_TRUE(is_ok(at));
    host.remembers = fs::path(path).filename().string();
    struct stat now;
    EXPECT_EQ(at->stat(&now), 0);
  }
}

TEST_P(Hosts, APublishTakesTheOldBytesPastTheCache) {
  auto writer = open(here);
  look(there);
  ASSERT_TRUE(is_ok(update(*writer, "b", new_b)));
  TransactionOptions publish;
  publish.publish = true;
  ASSERT_TRUE(is_ok(update(*open(there), "c", new_c, std::move(publish))));
  EXPECT_TRUE(same_bytes(seen(*open(here), "b"), new_b));
}

// One commits; the other, whose cache is of before, dies at each of its calls. Then the first goes on.
TEST_P(Hosts, AHostFinishesWhatAnotherBegan) {
  for (const bool parked : {false, true})
    for (size_t n = 0;; ++n) {
      StaleEnv one(env), two(env);
      one.client = two.client = GetParam();
      put_bytes(path, old);
      auto first = open(one);
      look(two);
      auto second = open(two);
      ASSERT_TRUE(is_ok(update(*first, "b", new_b)));
      if (!parked) {
        first->close_idle_journals();
        look(one);  // the folder is gone there, and known to be
        look(two);
      }
      const std::string theirs = pattern(10007, 90);
      bool failed = false;
      auto fails = nth_call_fails(n, -EIO, true, testing::can_fail);
      two.before = [&](testing::Call call) {
        const int r = fails(call);
        failed |= r < 0;
        return r;
      };
      const auto done = update(*second, "b", theirs);
      second.reset();
      ASSERT_TRUE(is_ok(update(*first, "c", new_c))) << "call " << n;
      first.reset();
      auto judge = open(one);
      const std::string b = seen(*judge, "b");
      EXPECT_TRUE(b == theirs || (!done && b == new_b)) << "call " << n;
      EXPECT_TRUE(same_bytes(seen(*judge, "c"), new_c)) << "call " << n;
      judge.reset();
      EXPECT_FALSE(fs::exists(path + ".st-journal")) << "call " << n;
      fs::remove_all(path + ".st-journal");
      if (!failed) break;
    }
}

// Its writer may be alive, and have lost its locks.
TEST_P(Hosts, AReaderLeavesAnEmptyJournal) {
  const std::string journal = leave({{a_at, new_a}}, false);
  EXPECT_TRUE(same_bytes(seen(*open(there, {}), "a"), tensors[0].bytes));
  EXPECT_TRUE(fs::exists(journal));
}

// The folder of journals that a host remembers is gone, and another has its name.
TEST_P(Hosts, AHotJournalIsFoundInAFolderThatWasMadeAnew) {
  auto first = open(here);
  ASSERT_TRUE(is_ok(update(*first, "b", new_b)));
  look(there);  // and sees the folder
  first.reset();
  auto second = open(here);
  here.before = nth_call_fails(1, -EIO, true, [](testing::Call call) { return call == testing::Call::fdatasync; });
  EXPECT_FALSE(update(*second, "a", new_a));  // its record may be durable
  second.reset();
  const bool waits = fs::exists(path + ".st-journal");
  ASSERT_TRUE(waits);
  auto judge = open(there);
  EXPECT_GT(judge->counters().recoveries, 0u);
}

// While it waited for the lock, another host has finished what it met. Its own kernel has pages of before.
TEST_P(Hosts, AReaderThatMetAHotJournalShowsNoneOfTheOldBytes) {
  size_t finished = 0;
  for (size_t n = 0;; ++n) {
    StaleEnv dies(env), third(env);
    dies.client = third.client = GetParam();
    put_bytes(path, old);
    auto writer = open(dies);
    look(there);
    size_t calls = 0;
    dies.before = [&](testing::Call call) { return testing::can_fail(call) && calls++ >= n ? -EIO : 0; };
    const auto done = update(*writer, "b", new_b);
    writer.reset();
    size_t locks = 0;  // the first asks who holds the journal
    bool was_hot = false;
    there.before = [&](testing::Call call) {
      if (call != testing::Call::lock || ++locks != 2) return 0;
      const auto recovered = write::recover(*os::Location::find(third, path), {}, {});
      was_hot = recovered && recovered->applied > 0;
      return 0;
    };
    auto reader = open(there, {});
    there.before = nullptr;
    if (was_hot) {
      ++finished;
      EXPECT_TRUE(same_bytes(seen(*reader, "b"), new_b)) << "call " << n;
    }
    reader.reset();
    there.forget_all();
    fs::remove_all(path + ".st-journal");
    if (done) break;
  }
  EXPECT_GT(finished, 0u);
}

TEST_P(Hosts, NeighboursInOnePageWaitForEachOtherWherePagesAreWritten) {
  auto file = open(here);
  const auto other = *os::File::open(env, AT_FDCWD, path, O_RDWR, 0, path);
  {
    const auto held = os::RangeLock::acquire(other, {{b_at, 10007, true}}, {});
    ASSERT_TRUE(is_ok(held));
    auto beside = update(*file, "a", new_a, at_once());
    if (GetParam() == StaleEnv::Client::glusterfs) {
      EXPECT_TRUE(is_ok(beside));
    } else {
      ASSERT_TRUE(fails_with(Status::busy, beside));
      EXPECT_EQ(beside.error().tensor, "a");
    }
  }
  EXPECT_TRUE(is_ok(update(*file, "a", new_a, at_once())));
}

#ifndef _WIN32  // which has no signals to hold back
// Nor at a journal or a temporary file, of which nobody has asked where it lies.
TEST_P(Hosts, NoRequestForALockIsInterruptedOnGlusterFs) {
  struct Masked final : StaleEnv {
    using StaleEnv::StaleEnv;
    int lock(int fd, int command, struct flock *lock) override {
      sigset_t mask;
      const bool is_held_back = ::pthread_sigmask(SIG_BLOCK, nullptr, &mask) == 0 && sigismember(&mask, SIGTERM) == 1;
      ++(command == F_OFD_GETLK || is_held_back ? calm : exposed);
      return StaleEnv::lock(fd, command, lock);
    }
    int calm = 0, exposed = 0;
  } host(env);
  host.client = GetParam();
  auto file = open(host);
  ASSERT_TRUE(is_ok(update(*file, "b", new_b)));
  TransactionOptions publish;
  publish.publish = true;
  ASSERT_TRUE(is_ok(update(*file, "c", new_c, std::move(publish))));
  file.reset();
  EXPECT_GT(host.calm, 0);
  if (GetParam() != StaleEnv::Client::glusterfs) host.exposed = 0;
  EXPECT_EQ(host.exposed, 0);
}
#endif

TEST_P(Hosts, ALocalFileIsAskedNoMore) {
  testing::FaultEnv local(env);
  auto file = open(local);
  ASSERT_TRUE(is_ok(update(*file, "b", new_b)));
  for (const testing::Call call : local.calls) EXPECT_NE(call, testing::Call::renew_name);
}

constexpr const char *name_of_client(StaleEnv::Client client) {
  return std::array{"Kernel", "OneThatRemembers", "JuiceFs", "GlusterFs"}[static_cast<size_t>(client)];
}
INSTANTIATE_TEST_SUITE_P(Clients, Hosts,
                         ::testing::Values(StaleEnv::Client::kernel, StaleEnv::Client::remembers,
                                           StaleEnv::Client::juicefs, StaleEnv::Client::glusterfs),
                         [](const auto &info) { return name_of_client(info.param); });

}  // namespace
}  // namespace st::store
