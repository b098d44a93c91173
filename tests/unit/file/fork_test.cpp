// Handles and transactions over fork(): a child never ends, uses or keeps what
// is its parent's.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstring>

#include "format/shard_index.h"
#include "os/mapping.h"
#include "shards/shards.h"
#include "store_scene.h"

namespace st::store {
namespace {

using namespace testing;
namespace fs = std::filesystem;

// Two processes take turns.
class Baton {
 public:
  Baton() {
    if (::pipe(there_) != 0 || ::pipe(back_) != 0) std::abort();
  }
  ~Baton() {
    for (int fd : {there_[0], there_[1], back_[0], back_[1]}) ::close(fd);
  }
  void pass(bool to_child) const { static_cast<void>(!::write((to_child ? there_ : back_)[1], "x", 1)); }
  void wait(bool by_child) const {
    char byte;
    static_cast<void>(!::read((by_child ? there_ : back_)[0], &byte, 1));
  }

 private:
  int there_[2], back_[2];
};

class ForkTest : public testing::StoreScene {
 protected:
  // The child's answer: 0 is well.
  static int in_child(const std::function<int()> &body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    int status = -1;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
  }
};

TEST_F(ForkTest, AChildIsRefusedItsParentsTransaction) {
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
  EXPECT_EQ(in_child([&] {
              auto staged = t->update("b", value(*c, "b", new_b));
              if (staged || staged.error().status != Status::forked) return 1;
              auto committed = t->commit();
              if (committed || committed.error().status != Status::forked) return 2;
              t.reset();
              c.reset();
              return 0;
            }),
            0);
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  ASSERT_TRUE(is_ok(t->commit()));  // the parent's goes on
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}})));
}

TEST_F(ForkTest, AChildMayReadViewsItWasGiven) {
  for (read::MapMode mode : {read::MapMode::shared, read::MapMode::none}) {
    OpenOptions options;
    options.map = mode;
    auto c = open(std::move(options));
    const std::byte *view = c->view(c->snapshot(), 0).value();
    EXPECT_EQ(in_child([&] { return std::memcmp(view, tensors[0].bytes.data(), 4000) == 0 ? 0 : 1; }), 0);
  }
}

// Also after the parent changed something, which takes locks on descriptors.
TEST_F(ForkTest, AChildMayReadThroughAnInheritedHandle) {
  for (bool changed : {false, true}) {
    testing::put_bytes(path, old);
    OpenOptions options = writable();
    options.map = read::MapMode::none;
    auto c = open(std::move(options));
    if (changed) {
      ASSERT_TRUE(is_ok(update(*c, "a", new_a)));
    }
    EXPECT_EQ(in_child([&] {
                std::string copy(10007, '?');
                if (!c->read(c->snapshot(), 1, copy.data())) return 1;
                if (copy != tensors[1].bytes) return 2;
                auto view = c->view(c->snapshot(), 2);
                return view && std::memcmp(*view, tensors[2].bytes.data(), 3000) == 0 ? 0 : 3;
              }),
              0)
        << "changed " << changed;
  }
}

TEST_F(ForkTest, AChildsOwnHandleWorks) {
  auto c = open();
  ASSERT_TRUE(is_ok(update(*c, "a", new_a)));
  EXPECT_EQ(in_child([&] {
              auto mine = DataFile::open(env, path, writable());
              if (!mine) return 1;
              return update(**mine, "b", new_b) ? 0 : 2;
            }),
            0);
  ASSERT_TRUE(is_ok(update(*c, "c", new_c)));
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}, {b_at, new_b}, {c_at, new_c}})));
}

// A handle that was changed once keeps a journal for the next time. Parent and
// child must not both write into it.
TEST_F(ForkTest, ParentAndChildOnOneHandleDoNotShareAJournal) {
  auto c = open();
  ASSERT_TRUE(is_ok(update(*c, "c", new_c)));
  TransactionOptions copying;
  copying.copy = true;  // values live in the journal alone
  const Baton baton;
  const std::string childs = pattern(10007, 90), parents = pattern(10007, 91);
  const pid_t child = ::fork();
  if (child == 0) {
    auto t = Transaction::begin(*c, copying);
    if (!t) ::_exit(0);  // refusing is fine
    const bool staged = (*t)->update("b", value(*c, "b", childs)).has_value();
    baton.pass(false);
    baton.wait(true);  // the parent stages and aborts meanwhile
    ::_exit(staged && (*t)->commit() ? 1 : 0);
  }
  baton.wait(false);
  {
    auto t = begin(*c, copying);
    ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
    ASSERT_TRUE(is_ok(t->commit()));
  }
  baton.pass(true);
  int status = -1;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  const std::string after_child = WEXITSTATUS(status) == 1 ? childs : tensors[1].bytes;
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}, {b_at, after_child}, {c_at, new_c}})));
  ASSERT_TRUE(is_ok(update(*c, "b", parents)));
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}, {b_at, parents}, {c_at, new_c}})));
  c.reset();
  EXPECT_EQ(recover().value().aside, 0u);
}

// The parent is killed between its commit record and the end of its writes. Its
// workers, forked before, live on: that must not make its journal look alive.
TEST_F(ForkTest, AWorkerThatLivesOnDoesNotHideItsDeadParentsJournal) {
  for (bool forked_while_staged : {false, true}) {
    testing::put_bytes(path, old);
    const Baton baton;
    const pid_t parent = ::fork();
    if (parent == 0) {
      class Killed : public testing::FaultEnv {
       public:
        using FaultEnv::FaultEnv;
        ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
          struct stat s;
          if (armed && ::fstat(fd, &s) == 0 && s.st_ino == inode) ::kill(::getpid(), SIGKILL);
          return FaultEnv::pwrite(fd, buffer, n, offset);
        }
        bool armed = false;
        ino_t inode = 0;
      } killed(env);
      auto c = DataFile::open(killed, path, writable());
      if (!c) ::_exit(1);
      killed.inode = (*c)->snapshot().identity.st_ino;
      if (!update(**c, "c", new_c)) ::_exit(2);
      auto t = Transaction::begin(**c, {});
      if (forked_while_staged && !(*t)->update("a", value(**c, "a", new_a))) ::_exit(3);
      if (::fork() == 0) {  // the worker
        baton.pass(false);
        baton.wait(true);
        ::_exit(0);
      }
      baton.wait(false);
      if (!forked_while_staged && !(*t)->update("a", value(**c, "a", new_a))) ::_exit(3);
      killed.armed = true;
      static_cast<void>(!(*t)->commit());
      ::_exit(4);
    }
    int status = 0;
    ::waitpid(parent, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    EXPECT_EQ(testing::names_in(folder()).size(), 1u);
    EXPECT_TRUE(same_bytes(seen(*open({}), "a"), new_a)) << "forked while staged: " << forked_while_staged;
    EXPECT_TRUE(is_ok(update(*open(), "b", new_b, {false, 0, {}})));
    baton.pass(true);
    EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}, {b_at, new_b}, {c_at, new_c}})));
    fs::remove_all(folder());
  }
}

TEST_F(ForkTest, AWorkerForkedDuringACommitDoesNotKeepItsLocks) {
  const Baton baton;
  class Forking : public testing::FaultEnv {
   public:
    Forking(os::Env &base, const Baton &b) : FaultEnv(base), baton(b) {}
    int fdatasync(int fd) override {
      if (std::exchange(armed, false)) {
        child = ::fork();
        if (child == 0) {
          baton.pass(false);
          baton.wait(true);
          ::_exit(0);
        }
        baton.wait(false);
      }
      return FaultEnv::fdatasync(fd);
    }
    const Baton &baton;
    bool armed = true;
    pid_t child = -1;
  } forking(env, baton);
  auto c = open(forking);
  ASSERT_TRUE(is_ok(update(*c, "a", new_a)));
  EXPECT_TRUE(is_ok(update(*open(), "a", tensors[0].bytes, {false, 0, {}})));
  baton.pass(true);
  ::waitpid(forking.child, nullptr, 0);
}

// There may be no descriptor free, none at all by a lower limit, and no /dev/null in a chroot.
TEST_F(ForkTest, AWorkerKeepsNoLockWhateverItCannotOpen) {
  enum Want { full, lowered, without_null };
  const std::string other = dir / "other";
  testing::put_bytes(other, old);
  for (const Want want : {full, lowered, without_null}) {
    const int answer = in_child([&] {
      const Baton baton;
      int held[2], fresh[2];
      for (int i : {0, 1}) {
        held[i] = env.openat(AT_FDCWD, (i ? other : path).c_str(), O_RDWR | O_CLOEXEC, 0);
        fresh[i] = env.openat(AT_FDCWD, (i ? other : path).c_str(), O_RDWR | O_CLOEXEC, 0);
        struct flock whole = {F_WRLCK, SEEK_SET, 0, 0, 0};
        if (env.lock(held[i], F_OFD_SETLK, &whole) != 0) return 1;
      }
      if (want == without_null) {
#ifdef CLONE_NEWUSER
        static_cast<void>(::unshare(CLONE_NEWUSER));
#endif
        if (::chroot(dir.path().c_str()) != 0) return 77;
      } else {
        const struct rlimit few = {want == full ? 100u : 3u, 4096};
        if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 2;
        while (::open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) continue;
      }
      const pid_t worker = ::fork();
      if (worker == 0) {
        baton.pass(false);
        baton.wait(true);
        ::_exit(0);
      }
      baton.wait(false);
      int kept = 0;
      for (int i : {0, 1}) {
        ::close(held[i]);  // as if this process were killed
        struct flock whole = {F_WRLCK, SEEK_SET, 0, 0, 0};
        kept += ::fcntl(fresh[i], F_OFD_SETLK, &whole) != 0;
      }
      baton.pass(true);
      ::waitpid(worker, nullptr, 0);
      return kept == 0 ? 0 : 10 + kept;
    });
    const bool refused = want == without_null && answer == 77;
    EXPECT_TRUE(refused || answer == 0) << want << ": " << answer;
  }
}

// The process forks at its next call of a kind, as another thread may at any call, and waits for the child.
class ForksAt : public FaultEnv {
 public:
  ForksAt(os::Env &base, Call call) : FaultEnv(base) {
    before = [this, call](Call now) {
      if (now == call && std::exchange(armed, false)) fork_once();
      return 0;
    };
  }
  std::function<void()> in_child;
  bool armed = true;
  pid_t child = -1;

 private:
  void fork_once() {
    child = ::fork();
    if (child == 0) {
      ::alarm(300);
      in_child();
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
};

// The thread that holds it is not in the child, and would never come.
TEST_F(ForkTest, AChildWaitsForNoMutexOfItsParents) {
  for (const bool changes : {true, false}) {
    ForksAt forking(env, Call::mkdirat);
    auto c = open(forking);
    forking.in_child = [&] {
      const bool done = !changes || update(*c, "b", new_b);
      c.reset();
      ::_exit(done ? 0 : 1);
    };
    ASSERT_TRUE(is_ok(update(*c, "a", new_a)));  // makes a journal, under the mutex
    EXPECT_GT(forking.child, 0);
  }
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}, {b_at, new_b}})));
  EXPECT_FALSE(fs::exists(folder()));
}

// Nor where it may not open the file, and has what it inherited.
TEST_F(ForkTest, AChildThatMayNotOpenTheFileWaitsForNoMutexOfItsParents) {
  ForksAt forking(env, Call::pread);
  forking.armed = false;
  OpenOptions options;
  options.map = read::MapMode::none;
  auto c = open(forking, options);
  const HeldSnapshot state = c->hold();
  seen(*c, "a");
  forking.in_child = [&] {
    forking.before = [](Call call) { return call == Call::openat ? -EACCES : 0; };
    for (size_t i : {0, 1}) {
      auto view = c->view(*state, i);
      if (!view || std::memcmp(*view, tensors[i].bytes.data(), tensors[i].bytes.size()) != 0) ::_exit(1);
    }
    ::_exit(0);
  };
  forking.armed = true;
  ASSERT_TRUE(is_ok(state->refresh_own_memory()));  // under the mutex
  EXPECT_GT(forking.child, 0);
}

// The same of a handle on shards, which removes the journal of one that was not changed for long.
TEST(ForkedShards, AChildWaitsForNoMutexOfItsParents) {
  constexpr int most_with_journals = 16;
  const testing::TempDir dir;
  ShardIndex index = ShardIndex::of({}, 0);
  for (int i = 0; i <= most_with_journals; ++i) {
    const std::string shard = text("m-", i, ".safetensors");
    put_bytes(dir / shard, testing::file_of({testing::u8_tensor(text("t", i), 8, 1)}));
    index.assign(text("t", i), shard);
  }
  put_bytes(dir / "m.safetensors.index.json", index.spell());
  ForksAt forking(os::Env::posix(), Call::unlinkat);
  forking.armed = false;
  OpenOptions options;
  options.writable = true;
  auto c = Shards::open(forking, dir / "m.safetensors.index.json", options);
  ASSERT_TRUE(is_ok(c));
  const auto update = [&](int i, const std::string &bytes) -> Result<void> {
    const uint64_t shape = bytes.size();
    ST_TRY(auto t, (*c)->begin({}));
    ST_TRY(t->update(text("t", i), {static_cast<uint32_t>(Dtype::U8), {&shape, 1}, bytes.data(), bytes.size()}));
    return t->commit();
  };
  forking.in_child = [&] {
    const bool done = update(3, "of child") && (*c)->refresh();
    c->reset();
    ::_exit(done ? 0 : 1);
  };
  for (int i = 0; i <= most_with_journals; ++i) {
    forking.armed = i == most_with_journals;
    ASSERT_TRUE(is_ok(update(i, "of owner"))) << i;
  }
  EXPECT_GT(forking.child, 0);
  c->reset();
  for (int i = 0; i <= most_with_journals; ++i)
    EXPECT_TRUE(bytes_of(dir / text("m-", i, ".safetensors")).ends_with(i == 3 ? "of child" : "of owner")) << i;
}

// What the parent's thread has noted in the list of copy-on-write mappings is not there any more.
TEST_F(ForkTest, AChildMapsAsIfItsParentPatchedNothing) {
  testing::FaultEnv committing(os::Env::posix());
  auto c = open(committing);
  int asked = 0;
  committing.before = [&](Call call) {
    if (call != Call::fdatasync || asked++ > 0) return 0;
    EXPECT_EQ(in_child([&] {
                auto file = os::File::open(os::Env::posix(), AT_FDCWD, path, O_RDONLY, 0, path);
                auto made = os::Mapping::of_file(*file, old.size(), os::MapKind::copy_on_write);
                return made && made->private_dirty() == 0 ? 0 : 1;
              }),
              0);
    return 0;
  };
  ASSERT_TRUE(is_ok(update(*c, "b", new_b)));
  committing.before = nullptr;
  EXPECT_GT(asked, 0);
}

}  // namespace
}  // namespace st::store
