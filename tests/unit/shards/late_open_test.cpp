// A shard that is opened when others of the model already are: by a handle, by an older state, and by a
// transaction. What others have committed meanwhile is shown as a whole, or not at all.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <future>
#include <thread>
#include <utility>

#include "bound.h"
#include "journal/super_recover.h"
#include "shards/shards.h"
#include "shards_scene.h"
#include "without_syncs.h"

namespace st::store {
namespace {

using namespace testing;
using read::MapMode;
using testing::Call;

// Where what was written before age() was changed an hour ago.
class Aged : public Unsynced {
 public:
  using Unsynced::Unsynced;
  void age() {
    aged_ = now(CLOCK_REALTIME);
    while (!is_before(aged_, now(CLOCK_REALTIME_COARSE))) std::this_thread::yield();  // which files get their times by
  }
  uint64_t unix_time() override { return Unsynced::unix_time() + ahead; }
  uint64_t ahead = 0;
  int fstat(int fd, struct stat *out) override { return aged(Unsynced::fstat(fd, out), out); }
  int fstatat(int dir, const char *path, struct stat *out, int flags) override {
    return aged(Unsynced::fstatat(dir, path, out, flags), out);
  }

 private:
  static timespec now(clockid_t clock) {
    timespec now = {};
    ::clock_gettime(clock, &now);
    return now;
  }
  static bool is_before(const timespec &a, const timespec &b) {
    return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
  }
  int aged(int r, struct stat *out) const {
    if (r == 0)
      for (timespec *time : {&out->st_mtim, &out->st_ctim})
        if (is_before(*time, aged_)) time->tv_sec -= 3600;
    return r;
  }

  timespec aged_ = {};
};

// Whose waits are known.
class Patient : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  void sleep_us(uint32_t microseconds) override {
    if (before_sleep) before_sleep();
    FaultEnv::sleep_us(microseconds);
  }
  std::function<void()> before_sleep;
};

class LateOpen : public testing::ShardsScene {
 protected:
  LateOpen() { put_model(); }
  void put_model() const {
    put_shards(dir.path());
    put_bytes(dir / "m-3.safetensors", file_of(std::vector{u8_tensor("d", 100, 4)}));
    put_bytes(index, R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors",)"
                     R"("c":"m-2.safetensors","d":"m-3.safetensors"}})");
  }
  std::unique_ptr<Shards> open(os::Env &with, MapMode map = MapMode::automatic, int32_t timeout_ms = 10000) const {
    OpenOptions options;
    options.writable = true;
    options.map = map;
    options.lock_timeout_ms = timeout_ms;
    auto opened = Shards::open(with, index, options);
    EXPECT_TRUE(is_ok(opened));
    return opened ? std::move(*opened) : nullptr;
  }
  std::unique_ptr<AnyTransaction> begin(Shards &shards, TransactionOptions options) const {
    auto begun = shards.begin(std::move(options));
    EXPECT_TRUE(is_ok(begun));
    return begun ? std::move(*begun) : nullptr;
  }
  std::unique_ptr<AnyTransaction> begin(Shards &shards, bool publish = true) const {
    TransactionOptions options;
    options.publish = publish;
    return begin(shards, std::move(options));
  }
  void change(Shards &by, const std::vector<std::string_view> &names, bool publish = true) const {
    const auto t = begin(by, publish);
    for (const std::string_view name : names) ASSERT_TRUE(is_ok(t->update(name, u8(fresh(name)))));
    ASSERT_TRUE(is_ok(t->commit()));
  }
  void change_by_another(const std::vector<std::string_view> &names, bool publish = true) const {
    change(*open(unsynced), names, publish);
  }
  const std::string &fresh(std::string_view name) const { return name == "a" ? new_a : name == "c" ? new_c : new_d; }
  // "old", "new", or the name of the status.
  std::string one(const Catalogue &state, std::string_view name) const {
    const auto place = state.find(name);
    if (!place) return std::string(name_of(place.error().status));
    std::string out(place->tensor().nbytes, '\0');
    if (const auto read = place->member->read(*place->snapshot, place->index, out.data()); !read)
      return std::string(name_of(read.error().status));
    return out == fresh(name) ? "new" : "old";
  }
  static std::string name_of(Status s) {
    if (s == Status::busy) return "busy";
    return s == Status::file_changed ? "changed" : text("status ", static_cast<int>(s));
  }
  template <class T>
  static Status status_of(const Result<T> &r) {
    return r ? Status::ok : r.error().status;
  }
  std::string look(const Catalogue &state, const std::vector<std::string_view> &names) const {
    std::string all;
    for (const std::string_view name : names) all += (all.empty() ? "" : " ") + one(state, name);
    return all;
  }
  // Before the n-th system call of `call`. Whether there were as many.
  bool before_call(size_t n, const std::function<void()> &then, const std::function<void()> &call) {
    bool came = false;
    env.before = [&, left = n](Call) mutable {
      if (!came && left-- == 0) {
        came = true;
        then();
      }
      return 0;
    };
    call();
    env.before = nullptr;
    return came;
  }
  // `with_call` is asked once for each call, with a fresh model, until it answers false: there were not as many.
  void for_each_call(const std::function<bool(size_t n)> &with_call) {
    bool more = true;
    for (size_t n = every.first(); more; n += every.step) {
      SCOPED_TRACE(text("call ", n));
      put_model();
      more = with_call(n);
      if (HasFailure()) return;
    }
  }

  // Those locks of this process that are of files in the folder.
  void unlock_all_but_journals() const {
    for (const auto &fd : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string path = std::filesystem::read_symlink(fd.path(), gone).string();
      if (gone || !path.starts_with(dir.path()) || path.find(".st-journal/") != std::string::npos) continue;
      struct flock all = {};
      all.l_type = F_UNLCK;
      ::fcntl(std::stoi(fd.path().filename().string()), F_OFD_SETLK, &all);
    }
  }

  const testing::TempDir dir;
  const std::string index = dir / "m.safetensors.index.json";
  const std::string new_a = pattern(4000, 11), new_c = pattern(5000, 13), new_d = pattern(100, 14);
  mutable Aged unsynced{os::Env::posix()};
  FaultEnv env{static_cast<os::Env &>(unsynced)};
  testing::EveryNth every{6, 1};
};

TEST_F(LateOpen, AHandleShowsNoPartOfACommitByAnother) {
  for (const MapMode map : {MapMode::automatic, MapMode::none}) {
    put_model();
    const auto c = open(env, map);
    EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
    change_by_another({"a", "c"});
    EXPECT_EQ(look(c->catalogue(), {"c", "a", "c", "d"}), "changed old changed changed");
    const auto all = c->catalogue().all();
    ASSERT_FALSE(all);
    EXPECT_EQ(all.error().status, Status::file_changed);
    EXPECT_EQ(all.error().shard, 0);
    ASSERT_TRUE(is_ok(c->refresh()));
    EXPECT_EQ(look(c->catalogue(), {"a", "c", "d"}), "new new old");
  }
}

TEST_F(LateOpen, OneThatWasReplacedAloneGoesWithTheOthers) {
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  change_by_another({"c"});
  EXPECT_EQ(look(c->catalogue(), {"c", "d", "a"}), "new old old");
}

TEST_F(LateOpen, APatchReplacesNothing) {
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  change_by_another({"a", "c"}, false);
  EXPECT_EQ(look(c->catalogue(), {"a", "c", "d"}), "new new old");
}

// Whichever shards it changes.
TEST_F(LateOpen, OnesOwnCommitIsInNobodysWay) {
  for (const bool several : {false, true}) {
    put_model();
    const auto c = open(env);
    const Catalogue before = c->catalogue();
    EXPECT_EQ(look(before, {"a"}), "old");
    change(*c, several ? std::vector<std::string_view>{"a", "c"} : std::vector<std::string_view>{"a"});
    EXPECT_EQ(look(before, {"a", "d", "c"}), "old old old");
    EXPECT_EQ(look(c->catalogue(), {"a", "d", "c"}), several ? "new old new" : "new old old");
  }
}

// Views that may be written are made by opening the model once more. They show what is shown, or there are none.
TEST_F(LateOpen, ACopyOnWriteHandleIsOfTheFilesThatAreShown) {
  const auto views_of = [](const Shards &c, const Catalogue &state) { return c.reopen(state, Again::copy_on_write); };
  for (const MapMode map : {MapMode::automatic, MapMode::none}) {
    put_model();
    const auto c = open(env, map);
    const Catalogue before = c->catalogue();
    EXPECT_EQ(look(before, {"a"}), "old");
    const auto views = views_of(*c, before);
    ASSERT_TRUE(is_ok(views));
    EXPECT_EQ(look((*views)->catalogue(), {"a", "c"}), "old old");
    change_by_another({"a"});
    EXPECT_EQ(look(before, {"a"}), "old");
    EXPECT_EQ(status_of(views_of(*c, before)), Status::file_changed);
    EXPECT_EQ(status_of(c->reopen_shown(Again::copy_on_write)), Status::file_changed);
    ASSERT_TRUE(is_ok(c->refresh()));
    EXPECT_EQ(status_of(c->reopen_shown(Again::copy_on_write)), Status::ok);
    put_model();
    ASSERT_TRUE(is_ok(c->refresh()));
    change(*c, {"a", "c"});
    EXPECT_EQ(status_of(views_of(*c, before)), Status::file_changed);
    const auto own = c->reopen_shown(Again::copy_on_write);
    ASSERT_TRUE(is_ok(own));
    EXPECT_EQ(look((*own)->catalogue(), {"a", "c"}), "new new");
    put_bytes(index, R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
    put_bytes(dir / "m-3.safetensors", "");
    EXPECT_EQ(status_of(c->reopen_shown(Again::copy_on_write)), Status::file_changed);
  }
}

// Before each of its system calls the handle itself changes what it shows, as by another thread.
TEST_F(LateOpen, ACopyOnWriteHandleFollowsACommitOfItsOwn) {
  for_each_call([&](size_t n) {
    const auto c = open(env);
    EXPECT_EQ(look(c->catalogue(), {"a", "c"}), "old old");
    Result<std::unique_ptr<Model>> views = nullptr;
    const bool more = before_call(
        n,
        [&] {
          change(*c, {"a", "c"});
        },
        [&] { views = c->reopen_shown(Again::copy_on_write); });
    EXPECT_TRUE(is_ok(views));
    if (!views) return false;
    const std::string seen = look((*views)->catalogue(), {"a", "c"});
    EXPECT_TRUE(seen == "new new" || seen == "old old") << seen;
    return more;
  });
}

// These are so new that no times tell what is untouched. So each shard that is opened by itself looks at all others.
TEST_F(LateOpen, ACopyOnWriteHandleOpensAllThatIsShownInOneRound) {
  const auto looks_of = [&](int shards) {
    std::string map;
    for (int i = 0; i < shards; ++i) {
      put_bytes(dir / text("n-", i, ".safetensors"), file_of(std::vector{u8_tensor(text("t", i), 8, 1)}));
      map += text(i ? "," : "", "\"t", i, "\":\"n-", i, ".safetensors\"");
    }
    put_bytes(index, text("{\"weight_map\":{", map, "}}"));
    const auto c = open(env);
    EXPECT_TRUE(is_ok(c->catalogue().all()));
    size_t looks = 0;
    env.before = [&](Call what) {
      looks += what == Call::fstatat;
      return 0;
    };
    EXPECT_EQ(status_of(c->reopen_shown(Again::copy_on_write)), Status::ok);
    env.before = nullptr;
    return looks;
  };
  const size_t few = looks_of(10), many = looks_of(40);
  EXPECT_LT(many, 5 * few);
}

// Before each of its system calls.
TEST_F(LateOpen, ACallBesideACommitByAnotherShowsOneState) {
  for_each_call([&](size_t n) {
    const auto c = open(env);
    std::string seen;
    const bool more = before_call(
        n,
        [&] {
          change_by_another({"a", "c"});
        },
        [&] {
          const Catalogue state = c->catalogue();
          if (!state.range(1, 2)) seen = "changed changed";
        });
    if (seen.empty()) seen = look(c->catalogue(), {"a", "c"});
    EXPECT_TRUE(seen == "old old" || seen == "new new" || seen == "changed changed") << seen;
    return more;
  });
}

// The writer lives, and no journal of its is hot. Before each of the system calls of its commit.
TEST_F(LateOpen, NobodyShowsACommitByAnotherThatIsHalfDone) {
  bool more = true, was_busy = false;
  for (size_t n = every.first(); more; n += every.step) {
    SCOPED_TRACE(text("call ", n));
    put_model();
    const auto other = open(env), late = open(unsynced, MapMode::automatic, 0),
               fresh = open(unsynced, MapMode::none, 0), refreshed = open(unsynced, MapMode::automatic, 0);
    const Catalogue of_late = late->catalogue();
    EXPECT_EQ(look(of_late, {"a"}), "old");
    EXPECT_EQ(look(refreshed->catalogue(), {"a", "c"}), "old old");
    std::string seen[3];
    more = before_call(
        n,
        [&] {
          seen[0] = one(of_late, "c");
          seen[1] = look(fresh->catalogue(), {"c", "a"});
          const auto done = refreshed->refresh();
          EXPECT_TRUE(done || done.error().status == Status::busy) << done.error().message;
          seen[2] = look(refreshed->catalogue(), {"a", "c"});
        },
        [&] {
          change(*other, {"a", "c"});
        });
    if (!more) break;
    EXPECT_TRUE(seen[0] == "old" || seen[0] == "busy" || seen[0] == "changed") << seen[0];
    EXPECT_TRUE(seen[1] == "old old" || seen[1] == "new new" || seen[1] == "busy busy") << seen[1];
    EXPECT_TRUE(seen[2] == "old old" || seen[2] == "new new") << seen[2];
    was_busy |= seen[0] == "busy";
    for (const auto &handle : {late.get(), fresh.get(), refreshed.get()}) {
      ASSERT_TRUE(is_ok(handle->refresh()));
      EXPECT_EQ(look(handle->catalogue(), {"a", "c", "d"}), "new new old");
    }
    if (HasFailure()) return;
  }
  EXPECT_TRUE(was_busy);
}

// A commit that has unlocked the index keeps nobody out any more. Then it closes the file, and another may begin.
TEST_F(LateOpen, ACallBesideTheEndOfOnesOwnCommitShowsNoPartOfAnothers) {
  for (const bool changes_index : {false, true}) {
    bool more = true;
    size_t seen = 0;
    for (size_t n = 0; more; ++n) {
      SCOPED_TRACE(text("changes the index ", changes_index, ", close ", n));
      put_model();
      put_bytes(dir / "m-4.safetensors", file_of(std::vector{u8_tensor("e", 100, 5)}));
      put_bytes(index, R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors",)"
                       R"("d":"m-3.safetensors","e":"m-4.safetensors"}})");
      const auto c = open(env, MapMode::automatic, 0);
      FaultEnv its_env{static_cast<os::Env &>(unsynced)};
      const auto other = open(its_env, MapMode::automatic, 0);
      const Catalogue before = c->catalogue();
      const auto t = begin(*c);
      for (const char *name : {"d", "e"}) ASSERT_TRUE(is_ok(t->update(name, u8(new_d))));
      if (changes_index) {
        ASSERT_TRUE(is_ok(t->set_metadata("by", "us")));
      }
      TransactionOptions at_once;
      at_once.publish = true;
      at_once.lock_timeout_ms = 0;
      const auto its = begin(*other, at_once);
      for (const char *name : {"a", "c"}) ASSERT_TRUE(is_ok(its->update(name, u8(fresh(name)))));
      int renames = 0;
      its_env.before = [&](Call what) {
        if (what != Call::renameat || ++renames != 2) return 0;  // one shard has its new name
        ++seen;
        EXPECT_NE(look(before, {"a", "c"}), "new old");
        return 0;
      };
      more = false;
      bool is_over = false;  // its super-journal goes
      env.before = [&, left = n](Call what) mutable {
        is_over |= what == Call::unlinkat;
        if (more || !is_over || what != Call::close || left-- != 0) return 0;
        more = true;
        const auto done = its->commit();
        EXPECT_TRUE(done || done.error().status == Status::busy) << done.error().message;
        return 0;
      };
      EXPECT_TRUE(is_ok(t->commit()));
      env.before = nullptr;
      if (HasFailure()) return;
    }
    EXPECT_GT(seen, 0u);
  }
}

// Its writer stops before each of its renames in turn, and goes on when the call waits for it.
TEST_F(LateOpen, TheIndexGoesWithTheShards) {
  bool more = true;
  for (size_t n = 0; more; ++n) {
    SCOPED_TRACE(text("rename ", n));
    put_model();
    Patient patient{static_cast<os::Env &>(unsynced)};
    const auto c = open(patient);
    const Catalogue state = c->catalogue();
    FaultEnv its_env{static_cast<os::Env &>(unsynced)};
    const auto other = open(its_env);
    const auto t = begin(*other);
    ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
    ASSERT_TRUE(is_ok(t->set_metadata("by", "another")));
    more = false;
    std::promise<void> stops, goes_on;
    its_env.before = [&, left = n](Call what) mutable {
      if (what != Call::renameat || left-- != 0) return 0;
      more = true;
      stops.set_value();
      goes_on.get_future().wait();
      return 0;
    };
    bool gone = false;
    const auto let_go = [&] {
      if (!std::exchange(gone, true)) goes_on.set_value();
    };
    std::thread writer([&] {
      EXPECT_TRUE(is_ok(t->commit()));
      if (!more) stops.set_value();
    });
    stops.get_future().wait();
    patient.before_sleep = let_go;
    const std::string seen = one(state, "a");
    let_go();
    writer.join();
    EXPECT_EQ(seen, "changed");
  }
}

// A commit tells its log last, of files that could not be given to their owner, as here. It then holds no lock. So the
// log may look at the checkpoint by another handle, and change it, whatever became of the commit.
TEST_F(LateOpen, ALogMayUseAnotherHandle) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  constexpr uid_t somebody = 4242;  // need not exist
  struct Case {
    bool new_names, alone, fails;
  };
  for (const auto [new_names, alone, fails] :
       {Case{false, false, false}, Case{false, false, true}, Case{false, true, false}, Case{false, true, true},
        Case{true, false, false}, Case{true, false, true}}) {
    SCOPED_TRACE(text("new names ", new_names, " of one shard ", alone, " fails ", fails));
    for (const auto &left : std::filesystem::directory_iterator(dir.path())) std::filesystem::remove_all(left.path());
    put_model();
    ASSERT_EQ(::chown((dir / "m-1.safetensors").c_str(), somebody, static_cast<gid_t>(-1)), 0);
    const auto late = open(unsynced, MapMode::automatic, 0), writes = open(unsynced, MapMode::automatic, 0),
               asked = open(unsynced, MapMode::automatic, 0);
    std::vector<std::string> seen;
    OpenOptions options;
    options.writable = true;
    options.log = [&](LogLevel, const std::string &) {
      EXPECT_TRUE(is_ok(late->refresh()));
      seen.push_back(look(late->catalogue(), {"c", "a"}));
      EXPECT_TRUE(is_ok(writes->refresh()));
      change(*writes, {"a", "c", "d"});
      EXPECT_TRUE(is_ok(asked->refresh()));
      seen.push_back(look(asked->catalogue(), {"d"}));
    };
    auto c = Shards::open(env, index, options);
    ASSERT_TRUE(is_ok(c));
    TransactionOptions how;
    how.publish = true;
    how.new_names = new_names;
    const auto t = begin(**c, how);
    ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
    if (!alone) {
      ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
    }
    int renamed = 0;
    env.before = [&, new_names = new_names, fails = fails](Call what) {
      if (what == Call::fchown) return -EPERM;
      if (what == Call::renameat) ++renamed;
      const bool counts = renamed > (new_names ? 3 : 0);  // of a list, of shards, and of the index
      return fails && counts && what == Call::fsync ? -EIO : 0;
    };
    const auto done = t->commit();
    env.before = nullptr;
    EXPECT_EQ(status_of(done), fails ? Status::needs_recovery : Status::ok);
    EXPECT_EQ(seen, (std::vector<std::string>{alone ? "old new" : "new new", "new"}));
  }
}

// It belongs to neither the caller nor the owner of the index, so its journals are not believed. But it lives.
TEST_F(LateOpen, NobodyShowsACommitByAStrangerThatIsHalfDone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  constexpr uid_t somebody = 4242;  // need not exist
  const std::string folder = index + ".st-journal";
  for (const bool publish : {true, false}) {
    bool more = true;
    for (size_t n = every.first(); more; n += every.step) {
      SCOPED_TRACE(text("publish ", publish, " call ", n));
      put_model();
      const auto other = open(env), c = open(unsynced, MapMode::automatic, 0);
      std::string seen;
      more = before_call(
          n,
          [&] {
            ::chown(folder.c_str(), somebody, static_cast<gid_t>(-1));
            seen = look(c->catalogue(), {"c", "a"});
            ::chown(folder.c_str(), 0, static_cast<gid_t>(-1));
          },
          [&] {
            change(*other, {"a", "c"}, publish);
          });
      if (!more) break;
      EXPECT_TRUE(seen == "old old" || seen == "new new" || (publish ? seen == "busy busy" : seen == "old new"))
          << seen;
      if (HasFailure()) return;
    }
  }
}

// The kernel takes the locks of a process that dies file by file. Those of its journals may be the last.
TEST_F(LateOpen, NobodyShowsWhatADyingWriterHasHalfDone) {
  bool more = true;
  for (size_t n = every.first(); more; n += every.step) {
    SCOPED_TRACE(text("call ", n));
    for (const auto &left : std::filesystem::directory_iterator(dir.path())) std::filesystem::remove_all(left.path());
    put_model();
    const auto other = open(env), late = open(unsynced, MapMode::automatic, 0),
               refreshed = open(unsynced, MapMode::automatic, 0);
    EXPECT_EQ(look(refreshed->catalogue(), {"a", "c"}), "old old");
    const auto t = begin(*other);
    for (const char *name : {"a", "c"}) ASSERT_TRUE(is_ok(t->update(name, u8(fresh(name)))));
    more = false;
    env.before = [&, left = n](Call what) mutable {
      if (more) return testing::can_fail(what) ? -EIO : 0;  // it is dead
      if (left-- != 0) return 0;
      more = true;
      unlock_all_but_journals();
      const std::string seen = look(late->catalogue(), {"c", "a"});
      EXPECT_TRUE(seen == "old old" || seen == "new new" || seen == "busy busy") << seen;
      const auto done = refreshed->refresh();
      EXPECT_TRUE(done || done.error().status == Status::busy) << done.error().message;
      const std::string now = look(refreshed->catalogue(), {"a", "c"});
      EXPECT_TRUE(now == "old old" || now == "new new") << now;
      return testing::can_fail(what) ? -EIO : 0;
    };
    static_cast<void>(t->commit());
    env.before = nullptr;
    if (HasFailure()) return;
  }
}

TEST_F(LateOpen, ARefreshBesideACommitByAnotherShowsOneState) {
  for_each_call([&](size_t n) {
    const auto c = open(env);
    EXPECT_EQ(look(c->catalogue(), {"a", "c"}), "old old");
    const bool more = before_call(
        n,
        [&] {
          change_by_another({"a", "c"});
        },
        [&] { ASSERT_TRUE(is_ok(c->refresh())); });
    const std::string seen = look(c->catalogue(), {"a", "c"});
    EXPECT_TRUE(seen == "old old" || seen == "new new") << seen;
    return more;
  });
}

// Each shows a state of its own, and the one before goes.
TEST_F(LateOpen, ThreadsRefreshBesideEachOther) {
  constexpr int threads = 4, times = 300;
  std::vector<std::string> names;
  std::string map;
  for (int i = 0; i < 32; ++i) {
    names.push_back(text("t", i));
    put_bytes(dir / text("n-", i, ".safetensors"), file_of(std::vector{u8_tensor(names.back(), 100, 4)}));
    map += text(i > 0 ? "," : "", "\"", names.back(), "\":\"n-", i, ".safetensors\"");
  }
  put_bytes(index, text("{\"weight_map\":{", map, "}}"));
  const auto c = open(unsynced);
  for (const std::string &name : names) ASSERT_TRUE(is_ok(c->catalogue().find(name)));
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&] {
      for (int k = 0; k < times && !HasFailure(); ++k) EXPECT_TRUE(is_ok(c->refresh()));
    });
  for (std::thread &one : all) one.join();
}

// Another thread opens c meanwhile, and then others replace a and c.
TEST_F(LateOpen, AShardThatIsOpenedBesideARefreshIsRefreshedToo) {
  bool more = true;
  for (size_t n = 0; more; ++n) {
    SCOPED_TRACE(text("call ", n));
    put_model();
    const auto c = open(env);
    EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
    more = before_call(
        n,
        [&] {
          EXPECT_EQ(one(c->catalogue(), "c"), "old");
          change_by_another({"a", "c"});
        },
        [&] { ASSERT_TRUE(is_ok(c->refresh())); });
    const std::string seen = look(c->catalogue(), {"a", "c"});
    EXPECT_TRUE(seen == "old old" || seen == "new new") << seen;
    if (HasFailure()) return;
  }
}

TEST_F(LateOpen, WhatIsReplacedAllTheTimeIsBusy) {
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a", "c"}), "old old");
  const std::string shard = dir / "m-1.safetensors", fresh = dir / "fresh", content = bytes_of(shard);
  env.before = [&](Call what) {
    if (what != Call::fstatat) return 0;
    put_bytes(fresh, content);
    return ::rename(fresh.c_str(), shard.c_str());
  };
  const auto done = c->refresh();
  env.before = nullptr;
  EXPECT_EQ(status_of(done), Status::busy);
  ASSERT_TRUE(is_ok(c->refresh()));
}

TEST_F(LateOpen, AHandleOpensMoreBesideItsOwnCommits) {
  for_each_call([&](size_t n) {
    const auto c = open(env);
    const Catalogue before = c->catalogue();
    EXPECT_EQ(look(before, {"a"}), "old");
    std::string seen;
    const bool more = before_call(
        n, [&] { seen = look(c->catalogue(), {"d"}) + " " + look(before, {"d"}); },
        [&] {
          change(*c, {"a", "c"});
        });
    EXPECT_TRUE(!more || seen == "old old") << seen;
    EXPECT_EQ(look(before, {"a", "c"}), "old old");
    EXPECT_EQ(look(c->catalogue(), {"a", "c", "d"}), "new new old");
    return more;
  });
}

// Another commits a and c, and another thread then asks the same state for a.
TEST_F(LateOpen, TwoCallsThatOpenShardsBesideEachOtherShowOneState) {
  bool more = true;
  for (size_t n = 0; more; ++n) {
    SCOPED_TRACE(text("call ", n));
    put_model();
    const auto shards = open(env);
    const Catalogue state = shards->catalogue();
    EXPECT_EQ(look(state, {"d"}), "old");
    std::string a, c;
    more = before_call(
        n,
        [&] {
          change_by_another({"a", "c"});
          a = one(state, "a");
        },
        [&] { c = one(state, "c"); });
    EXPECT_TRUE(!more || a == c || a == "changed" || c == "changed") << a << ' ' << c;
    if (HasFailure()) return;
  }
}

// Whatever became of the others. It takes two looks: at the shard, and at the index.
TEST_F(LateOpen, OneThatIsUntouchedGoesWithTheOthers) {
  unsynced.age();
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  change_by_another({"a", "c"});
  EXPECT_EQ(look(c->catalogue(), {"d", "c", "a"}), "old changed old");
  ASSERT_TRUE(is_ok(c->refresh()));
  EXPECT_EQ(look(c->catalogue(), {"a", "c", "d"}), "new new old");
}

// Files that are changed later have times from before.
TEST_F(LateOpen, AClockThatWasSetBackTellsNotWhatIsUntouched) {
  unsynced.ahead = 3600;
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  unsynced.ahead = 0;
  change_by_another({"a", "c"});
  EXPECT_EQ(look(c->catalogue(), {"c", "a"}), "changed old");
}

// Another state has opened it, and has shown it since.
TEST_F(LateOpen, OneThatWasOpenBeforeItWasReplaced) {
  unsynced.age();
  const auto c = open(env);
  const Catalogue before = c->catalogue();
  EXPECT_EQ(look(before, {"a"}), "old");
  change_by_another({"a"});
  ASSERT_TRUE(is_ok(c->refresh()));
  EXPECT_EQ(look(before, {"c"}), "old");
  change_by_another({"c", "d"});
  EXPECT_EQ(look(c->catalogue(), {"a", "d", "c"}), "new new new");
  EXPECT_EQ(look(before, {"a", "c"}), "old old");
  ASSERT_TRUE(is_ok(c->refresh()));
  EXPECT_EQ(look(c->catalogue(), {"a", "d", "c"}), "new new new");
}

// It stays out of the next states, too.
TEST_F(LateOpen, OneThatDidNotGoWithTheOthersIsNotShownByACommit) {
  unsynced.age();
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  change_by_another({"a", "c"});
  EXPECT_EQ(look(c->catalogue(), {"c"}), "changed");
  change(*c, {"d"});
  EXPECT_EQ(look(c->catalogue(), {"a", "c", "d"}), "old changed new");
}

// Its own commit is shown with what it met.
TEST_F(LateOpen, ATransactionOfAnOlderState) {
  const auto c = open(env);
  const auto t = begin(*c);
  ASSERT_TRUE(is_ok(c->refresh()));
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  change_by_another({"a", "c"});
  ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(look(c->catalogue(), {"a", "c", "d"}), "new new old");
}

// It asks for nothing that is not open.
TEST_F(LateOpen, WhatIsOpenIsReadWhateverBecameOfIt) {
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  ASSERT_TRUE(is_ok(c->refresh()));
  change_by_another({"a"});
  EXPECT_TRUE(is_ok(c->catalogue().range(0, 1)));
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
}

// The state that a refresh shows, or a commit of one's own, has passed already.
TEST_F(LateOpen, AnUntouchedOneGoesWithTheNextStateToo) {
  unsynced.age();
  for (const bool by_commit : {false, true}) {
    SCOPED_TRACE(by_commit);
    const auto c = open(env);
    EXPECT_EQ(look(c->catalogue(), {by_commit ? "c" : "a"}), by_commit ? "new" : "old");
    if (by_commit)
      change(*c, {"c"});
    else
      ASSERT_TRUE(is_ok(c->refresh()));
    change_by_another({"a", "c"});
    EXPECT_EQ(look(c->catalogue(), {"d"}), "old");
  }
}

// By the handle itself, when its super-journal is decided.
TEST_F(LateOpen, EachCallOfALookAtAHalfDoneCommitMayFail) {
  const auto other = open(env);
  FaultEnv looks(static_cast<os::Env &>(unsynced));
  const auto at = os::Location::find(looks, index);
  ASSERT_TRUE(is_ok(at));
  bool was_decided = false;
  env.before = [&](Call) {
    const auto decided = write::is_decided(*at, {});
    if (was_decided || !decided || !*decided) return 0;
    was_decided = true;
    for (const auto ask : {write::is_decided, write::is_left_half_done}) {
      bool more = true;
      for (size_t n = 0; more; ++n) {
        more = false;
        looks.before = [&, left = n](Call what) mutable {
          return what != Call::close && left-- == 0 ? (more = true, -EIO) : 0;
        };
        const auto answer = ask(*at, {});
        looks.before = nullptr;
        EXPECT_TRUE(answer ? *answer : answer.error().status == Status::io) << n;
      }
    }
    return 0;
  };
  change(*other, {"a", "c"});
  env.before = nullptr;
  EXPECT_TRUE(was_decided);
  const auto none = os::Location::find(looks, dir / "none");
  ASSERT_TRUE(is_ok(none));
  EXPECT_EQ(status_of(write::is_left_half_done(*none, {})), Status::no_file);
}

// It leaves the shards their names, whatever it has come to.
TEST_F(LateOpen, APatchOfSeveralByAnotherKeepsNobodyOut) {
  for_each_call([&](size_t n) {
    const auto other = open(env);
    std::string seen;
    const bool more = before_call(
        n,
        [&] {
          const auto c = open(unsynced, MapMode::automatic, 0);
          seen = look(c->catalogue(), {"a", "c", "d"});
        },
        [&] {
          change(*other, {"a", "c"}, false);
        });
    EXPECT_EQ(seen.find("busy"), std::string::npos) << seen;
    return more;
  });
}

// As in a cache, where shards are links to files of other names.
class LateOpenOfLinks : public LateOpen {
 protected:
  LateOpenOfLinks() {
    for (const char *of : {"old", "new"}) {
      std::filesystem::create_directory(dir / of);
      put_shards(dir / of);
    }
    put_bytes(dir / "new/m-2.safetensors", file_of(std::vector{u8_tensor("c", 5000, 13)}));
    put_links("old");
  }
  void put_link(const std::string &to, const char *name) const {
    const std::string link = dir / "fresh", at = dir / name;
    ASSERT_EQ(::symlink(to.c_str(), link.c_str()), 0);
    ASSERT_EQ(::rename(link.c_str(), at.c_str()), 0);
  }
  void put_links(const std::string &to) const {
    for (const char *name : {"m-1.safetensors", "m-2.safetensors"}) put_link(to + "/" + name, name);
  }
};

TEST_F(LateOpenOfLinks, OneThatLeadsElsewhereByNow) {
  unsynced.age();
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  put_links("new");
  EXPECT_EQ(look(c->catalogue(), {"c", "d"}), "changed old");
}

// It is untouched, as the file that it leads to is: then nothing else matters.
TEST_F(LateOpenOfLinks, OneThatIsUntouched) {
  unsynced.age();
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  put_link("new/m-1.safetensors", "m-1.safetensors");
  EXPECT_EQ(look(c->catalogue(), {"c", "a"}), "old old");
}

TEST_F(LateOpenOfLinks, OneThroughAFolderThatIsALink) {
  put_link("old", "now");
  put_links("now");
  unsynced.age();
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  put_link("new", "now");
  EXPECT_EQ(look(c->catalogue(), {"c"}), "changed");
}

TEST_F(LateOpen, EachCallMayFail) {
  bool more = true;
  for (size_t n = 0; more; ++n) {
    SCOPED_TRACE(text("call ", n));
    const auto c = open(env);
    EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
    const Catalogue state = c->catalogue();
    more = false;
    env.before = [&, left = n](Call) mutable { return left-- == 0 ? (more = true, -EIO) : 0; };
    const auto done = state.range(2, 2);
    env.before = nullptr;
    EXPECT_TRUE(done || done.error().status == Status::io) << done.error().message;
    EXPECT_EQ(look(state, {"a", "c", "d"}), "old old old");
  }
}

// An older state is to get the shard before it changes.
TEST_F(LateOpen, AChangeFailsIfAnotherStateCannotHaveTheShard) {
  bool more = true, failed = false;
  for (size_t n = 0; more; ++n) {
    SCOPED_TRACE(text("call ", n));
    put_model();
    const auto c = open(env);
    const Catalogue before = c->catalogue();
    EXPECT_EQ(look(before, {"a"}), "old");
    ASSERT_TRUE(is_ok(c->refresh()));
    const auto t = begin(*c);
    more = false;
    env.before = [&, left = n](Call) mutable { return left-- == 0 ? (more = true, -EIO) : 0; };
    auto done = t->update("c", u8(new_c));
    env.before = nullptr;
    failed |= !done;
    if (done) done = t->update("a", u8(new_a));
    if (done) done = t->commit();
    EXPECT_EQ(done || failed, true);
    EXPECT_EQ(look(before, {"a", "c"}), "old old");
  }
  EXPECT_TRUE(failed);
}

TEST_F(LateOpen, ATransactionGoesOnFromWhatOthersHaveCommitted) {
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  change_by_another({"a", "c"});
  EXPECT_EQ(look(c->catalogue(), {"c"}), "changed");
  change(*c, {"d"});
  EXPECT_EQ(look(c->catalogue(), {"a", "c", "d"}), "new new new");
}

// Anybody may touch it, or put a copy in its place. The handle is refreshed, so nothing depends on which file it is.
TEST_F(LateOpen, ATransactionGoesOnWithAnotherIndexOfTheSameBytes) {
  for (const bool copied : {false, true}) {
    SCOPED_TRACE(copied);
    put_model();
    const auto c = open(env);
    const Catalogue before = c->catalogue();
    EXPECT_EQ(look(before, {"a"}), "old");
    const auto renew = [&] {
      const std::string copy = dir / "copy";
      put_bytes(copy, bytes_of(index));
      if (copied)
        std::filesystem::rename(copy, index);
      else
        std::filesystem::last_write_time(index, std::filesystem::last_write_time(index) - std::chrono::hours(1));
    };
    change_by_another({"a", "c"});
    renew();
    EXPECT_EQ(look(before, {"c"}), "changed");
    const auto t = begin(*c);
    ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
    ASSERT_TRUE(is_ok(t->commit()));
    EXPECT_EQ(look(c->catalogue(), {"a", "c", "d"}), "new new old");
  }
}

// Before each of its system calls another changes the index, too, or it fails.
TEST_F(LateOpen, ATransactionThatFollowsMayMeetMore) {
  for (const bool fails : {false, true}) {
    bool more = true;
    for (size_t n = 0; more; ++n) {
      SCOPED_TRACE(text(fails, ", call ", n));
      put_model();
      const auto c = open(env), other = open(unsynced);
      EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
      const auto t = begin(*c);
      ASSERT_TRUE(is_ok(t->update("a", u8(new_a))));
      change(*other, {"a", "c"});
      more = false;
      env.before = [&, left = n](Call what) mutable {
        if (what == Call::close || what == Call::munmap || left-- != 0) return 0;
        more = true;
        if (fails) return -EIO;
        const auto renames = begin(*other);
        EXPECT_TRUE(is_ok(renames->rename("b", "e")));
        EXPECT_TRUE(is_ok(renames->commit()));
        return 0;
      };
      const auto done = t->update("d", u8(new_d));
      env.before = nullptr;
      const Status status = status_of(done);
      EXPECT_TRUE(done || status == Status::file_changed || (fails && status == Status::io)) << done.error().message;
      if (HasFailure()) return;
    }
  }
}

TEST_F(LateOpen, WhatIsAskedBeforeAChangeIsAskedOfOneState) {
  const auto c = open(env);
  EXPECT_EQ(look(c->catalogue(), {"a"}), "old");
  const auto t = begin(*c);
  t->before_change([](auto) -> Result<void> { return {}; });
  change_by_another({"a", "c"});
  EXPECT_EQ(status_of(t->update("d", u8(new_d))), Status::file_changed);
}

// A state that is kept is no newer for that: what was not opened is what is there when it is.
TEST_F(LateOpen, AStateThatIsKept) {
  const auto c = open(env);
  const Catalogue kept = c->catalogue();
  EXPECT_EQ(look(kept, {"a"}), "old");
  change_by_another({"a", "c"});
  ASSERT_TRUE(is_ok(c->refresh()));
  EXPECT_EQ(look(c->catalogue(), {"a", "c", "d"}), "new new old");
  EXPECT_EQ(look(kept, {"a", "c"}), "old changed");
  change(*c, {"d"});
  EXPECT_EQ(look(c->catalogue(), {"a", "c", "d"}), "new new new");
  EXPECT_EQ(look(kept, {"a", "c", "d"}), "old changed changed");
}

// Then a shard of another index has been replaced, also if this handle's own commit has put the last index there.
TEST_F(LateOpen, AStateThatIsKeptFromBeforeAnotherIndex) {
  const auto c = open(env), other = open(unsynced);
  const Catalogue kept = c->catalogue();
  EXPECT_EQ(look(kept, {"a"}), "old");
  const auto renames = [&](Shards &by, const char *from, const char *to) {
    const auto t = begin(by);
    ASSERT_TRUE(is_ok(t->rename(from, to)));
    ASSERT_TRUE(is_ok(t->commit()));
  };
  renames(*other, "d", "e");
  EXPECT_EQ(look(kept, {"a", "d"}), "old changed");
  ASSERT_TRUE(is_ok(c->refresh()));
  renames(*c, "a", "f");
  EXPECT_EQ(look(kept, {"a", "d"}), "old changed");
}

// The shards are removed before anything could be locked.
TEST_F(LateOpen, AnOldShardThatHasGoneIsToldAsAChange) {
  for (const bool of_index : {false, true}) {
    put_model();
    const auto c = open(env), other = open(unsynced);
    const auto t = begin(*c);
    ASSERT_TRUE(is_ok(t->update("c", u8(new_c))));
    ASSERT_TRUE(is_ok(of_index ? t->rename("a", "e") : t->update("a", u8(new_a))));
    TransactionOptions options;
    options.publish = options.new_names = true;
    options.shard_grace_s = 0;
    for (const char *name : {"a", "d"}) {  // the second removes what the first has left
      const auto its = begin(*other, options);
      ASSERT_TRUE(is_ok(its->update(name, u8(fresh(name)))));
      ASSERT_TRUE(is_ok(its->commit()));
    }
    EXPECT_EQ(status_of(t->plan()), Status::file_changed);
    EXPECT_EQ(status_of(t->commit()), Status::file_changed);
  }
}

}  // namespace
}  // namespace st::store
