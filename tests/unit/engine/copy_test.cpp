// Copies of a checkpoint that others change meanwhile: join, reshard, merge and diff see one state of it.
#include <gtest/gtest.h>

#include <filesystem>
#ifdef __linux__
#include <sys/inotify.h>
#include <unistd.h>
#endif

#include "bound.h"
#include "delta_scene.h"
#include "engine/reshape.h"
#include "fault_env.h"
#include "sharing_env.h"

namespace st::store {
namespace {

using namespace testing;

const std::string to = "/d/joined.safetensors", to_folder = "/d/out";

struct Case {
  std::string name, source, copy;
};
const Case cases[] = {
    {"file, join", "/d/m.safetensors", to},           {"file, reshard", "/d/m.safetensors", to_folder},
    {"file, merge", "/d/m.safetensors", to},          {"shards, join", index_in("/d/s"), to},
    {"shards, reshard", index_in("/d/s"), to_folder}, {"shards, merge", index_in("/d/s"), to},
    {"file, diff", "/d/m.safetensors", to},           {"shards, diff", index_in("/d/s"), to}};

class CopyTest : public ::testing::Test {
 protected:
  static constexpr size_t n = 5000;
  const std::string delta = "/d/delta.safetensors";

  // Tensors a to c, and d, of which the delta has other bytes.
  SimEnv fresh_disk() {
    SimEnv disk;
    disk.make_folder("/d");
    disk.make_folder("/d/s");
    const auto tensor = [](const char *name, char value) {
      return TestTensor{name, Dtype::U8, {n}, std::string(n, value)};
    };
    const TestTensor a = tensor("a", '0'), b = tensor("b", '0'), c = tensor("c", '0'), d = tensor("d", 'd');
    disk.add_file("/d/m.safetensors", file_of({a, b, c, d}));
    disk.add_file("/d/s/1.safetensors", file_of({a, b}));
    disk.add_file("/d/s/2.safetensors", file_of({c, d}));
    ShardIndex index = ShardIndex::of({"1.safetensors", "2.safetensors"}, 0);
    for (const char *name : {"a", "b", "c", "d"}) index.assign(name, name[0] < 'c' ? "1.safetensors" : "2.safetensors");
    disk.add_file(index_in("/d/s"), index.spell());
    disk.add_file("/d/d.safetensors", file_of({d}));  // the difference holds a to c
    disk.add_file("/d/other", file_of({a, b, c, tensor("d", 'e')}));
    EXPECT_TRUE(is_ok(diff(disk, std::string("/d/m.safetensors"), std::string("/d/other"), delta, {})));
    return disk;
  }

  Result<void> copy(os::Env &env, const Case &c) const {
    if (c.name.ends_with("join")) return join(env, c.source, c.copy, {});
    if (c.name.ends_with("reshard")) return reshard(env, c.source, c.copy, n, {});
    if (c.name.ends_with("diff")) return diff(env, "/d/d.safetensors", c.source, c.copy, {});
    return merge(env, c.source, {delta}, c.copy, {});
  }

  // One transaction, which waits for nobody.
  static Result<void> change(os::Env &env, const std::string &source, char value, TransactionOptions how) {
    OpenOptions writing;
    writing.writable = true;
    writing.lock_timeout_ms = how.lock_timeout_ms = 0;
    ST_TRY(auto model, open_path(env, source, writing));
    ST_TRY(auto txn, model->begin(how));
    const std::string bytes(n, value);
    const uint64_t shape[] = {n};
    for (const char *name : {"a", "b", "c"})
      ST_TRY(txn->update(name, {static_cast<uint32_t>(Dtype::U8), shape, bytes.data(), n}));
    return txn->commit();
  }

  // One whose writer dies after so many writes.
  static Result<void> die(SimEnv &disk, const std::string &source, size_t after) {
    FaultEnv dying(disk);
    dying.before = nth_call_fails(after, -EIO, true, [](Call call) { return call == Call::pwrite; });
    return change(dying, source, '1', {});
  }

  // A copy succeeds, with `act` before its call number `at`. What that answered; nothing: there is no such call.
  std::optional<Result<void>> copy_amid(FaultEnv &env, const Case &c, size_t at,
                                        const std::function<Result<void>()> &act) const {
    size_t calls = 0;
    std::optional<Result<void>> answer;
    env.before = [&](Call) {
      if (calls++ == at) answer = act();
      return 0;
    };
    [&] { ASSERT_TRUE(is_ok(copy(env, c))) << c.name << ", call " << at; }();
    env.before = nullptr;
    return answer;
  }

  // The value that all of a to c has; '?' if they are not of one state.
  static char state_of(SimEnv &disk, const std::string &path) {
    std::string all;
    const auto add = [&](const std::string &file) {
      for (const TestTensor &t : holdings_of(disk.contents(file)).tensors)
        if (t.name != "d") all += t.bytes;
    };
    if (path != to_folder) add(path);
    for (const std::string &name : path == to_folder ? disk.names(path) : std::vector<std::string>())
      if (name.ends_with(".safetensors")) add(path + "/" + name);
    return all.size() == 3 * n && all.find_first_not_of(all[0]) == all.npos ? all[0] : '?';
  }
};

TEST_F(CopyTest, AChangeBeforeAnyCallIsInTheCopyAsAWholeOrNotAtAll) {
  EveryNth call(5, 1);
  for (const bool publish : {false, true})
    for (const Case &c : cases) {
      size_t old = 0, fresh = 0, refused = 0;
      for (size_t at = call.first();; at += call.step) {
        SimEnv disk = fresh_disk();
        FaultEnv env(disk);
        const auto changed = copy_amid(env, c, at, [&] { return change(disk, c.source, '1', {.publish = publish}); });
        ASSERT_FALSE(HasFatalFailure());
        if (!changed) break;
        const char state = state_of(disk, c.copy);
        ASSERT_NE(state, '?') << c.name << (publish ? ", published" : ", patched") << " before call " << at << ", "
                              << call_name(env.calls.at(at));
        (state == '0' ? old : fresh) += 1;
        if (*changed) continue;
        ASSERT_TRUE(fails_with(Status::busy, *changed)) << c.name << ", call " << at;
        ASSERT_EQ(state, '0');
        ++refused;
      }
      EXPECT_GT(old, 0u) << c.name;
      EXPECT_GT(fresh, 0u) << c.name;
      EXPECT_GT(refused, 0u) << c.name;
    }
}

// Such a change is finished first, wherever between the open and the lock it was left.
TEST_F(CopyTest, AChangeWhoseWriterDiesBeforeAnyCallIsInTheCopyAsAWholeOrNotAtAll) {
  EveryNth call(5, 1);
  for (const Case &c : cases) {
    std::vector<size_t> amid;  // of the writes after which the outcome is open
    for (size_t n = 0;; ++n) {
      SimEnv disk = fresh_disk();
      const auto done = die(disk, c.source, n);
      if (done) break;
      if (done.error().status == Status::needs_recovery) amid.push_back(n);
    }
    ASSERT_FALSE(amid.empty()) << c.name;
    size_t finished = 0;
    for (size_t at = call.first();; at += call.step) {
      SimEnv disk = fresh_disk();
      FaultEnv env(disk);
      const auto changed = copy_amid(env, c, at, [&] { return die(disk, c.source, amid[at % amid.size()]); });
      ASSERT_FALSE(HasFatalFailure());
      if (!changed) break;
      const char state = state_of(disk, c.copy);
      ASSERT_NE(state, '?') << c.name << ", call " << at << ", " << call_name(env.calls.at(at));
      finished += state == '1';
    }
    EXPECT_GT(finished, 0u) << c.name;
  }
}

// The kernel frees the locks of a killed process file by file: the journal's may go last.
TEST_F(CopyTest, AWriterThatIsDyingIsNotTakenForOneThatLives) {
  SimEnv disk = fresh_disk();
  for (size_t n = 0;; ++n) {  // up to the last write of tensors
    SimEnv now = fresh_disk();
    const auto done = die(now, cases[0].source, n);
    if (done) break;
    if (done.error().status == Status::needs_recovery && state_of(now, cases[0].source) != '1') disk = now;
  }
  const std::string journals = cases[0].source + ".st-journal", journal = journals + "/" + disk.names(journals).at(0);
  auto held = os::File::open(disk, AT_FDCWD, journal, O_RDWR, 0, journal);
  ASSERT_TRUE(held);
  const auto lock = os::RangeLock::acquire(*held, {os::whole_file(true)}, {});
  ASSERT_TRUE(lock);
  ASSERT_TRUE(is_ok(copy(disk, cases[0])));
  EXPECT_EQ(state_of(disk, to), '1');
}

// The refusal says that it is being copied. What is written out needs the source no more.
TEST_F(CopyTest, AWriterIsToldOfTheCopyAndGoesOnWhenAllIsRead) {
  for (const Case &c : cases) {
    SimEnv disk = fresh_disk();
    FaultEnv env(disk);
    std::vector<std::pair<Call, Result<void>>> answers;
    bool reads = false;
    env.before = [&](Call call) {
      reads |= call == (c.name.ends_with("diff") ? Call::pwrite : Call::copy_range);
      if (reads) answers.emplace_back(call, change(disk, c.source, '1', {}));
      return 0;
    };
    ASSERT_TRUE(is_ok(copy(env, c))) << c.name;
    EXPECT_EQ(state_of(disk, c.copy), '0') << c.name;
    ASSERT_FALSE(answers.empty());
    ASSERT_TRUE(fails_with(Status::busy, answers.front().second)) << c.name;
    EXPECT_NE(answers.front().second.error().message.find("is reading tensor"), std::string::npos)
        << answers.front().second.error().message;
    EXPECT_TRUE(is_ok(answers.back().second)) << c.name;
  }
}

// A change under way is waited for, within the time that the caller has.
TEST_F(CopyTest, ACopyWaitsForAChangeThatIsUnderWay) {
  for (const Case &c : cases) {
    SimEnv disk = fresh_disk();
    const std::string file = c.source == "/d/m.safetensors" ? c.source : "/d/s/2.safetensors";
    auto held = os::File::open(disk, AT_FDCWD, file, O_RDWR, 0, file);
    ASSERT_TRUE(held);
    auto lock = os::RangeLock::acquire(*held, {{500, 1, true}}, {});
    ASSERT_TRUE(lock);
    EXPECT_TRUE(fails_with(Status::busy, copy(disk, c))) << c.name;
    EXPECT_FALSE(disk.exists(c.copy)) << c.name;
    lock->release();
    EXPECT_TRUE(is_ok(copy(disk, c))) << c.name;
  }
}

// Shards may be links to files in another order, as in the Hub's cache. Commits lock those by their own paths.
TEST(CopyOfLinks, LocksFilesInTheOrderOfCommits) {
  const TempDir dir;
  const auto tensor = [](const char *name) { return TestTensor{name, Dtype::U8, {4}, "0000"}; };
  ShardIndex index = ShardIndex::of({"1.safetensors", "2.safetensors"}, 0);
  put_bytes(dir / "z", file_of({tensor("a")}));
  put_bytes(dir / "y", file_of({tensor("b")}));
  std::error_code no_links;
  std::filesystem::create_symlink("z", dir / "1.safetensors", no_links);
  std::filesystem::create_symlink("y", dir / "2.safetensors", no_links);
  if (no_links) GTEST_SKIP() << "there are no links here";
  index.assign("a", "1.safetensors");
  index.assign("b", "2.safetensors");
  put_bytes(index_in(dir.path()), index.spell());
  const auto open = [&](const char *name) {
    return std::move(*os::File::open(os::Env::posix(), AT_FDCWD, dir / name, O_RDWR, 0, name));
  };
  const os::File first = open("y"), second = open("z");
  const auto changes = os::RangeLock::acquire(first, {os::whole_file(true)}, {});
  ASSERT_TRUE(changes);
  FaultEnv env(os::Env::posix());
  bool has_second = false;
  env.before = [&](Call call) {
    if (call == Call::lock) has_second |= os::is_locked(second, os::whole_file(true)).value();
    return 0;
  };
  write::SaveOptions at_once;
  at_once.lock_timeout_ms = 0;
  EXPECT_TRUE(fails_with(Status::busy, join(env, dir.path(), dir / "out.safetensors", at_once)));
  EXPECT_FALSE(has_second);
}

// Whose blocks a copy shares. There is room for a few blocks.
class FullAndSharing : public SharingEnv {
 public:
  explicit FullAndSharing(os::Env &base) : SharingEnv(base) {
    told_of_disk = [](struct statfs &s) {
      s.f_blocks = 1000;
      s.f_bavail = free_blocks;
    };
  }
  int fallocate(int fd, int mode, uint64_t offset, uint64_t n) override {
    return n > free_blocks * 4096 ? -ENOSPC : SharingEnv::fallocate(fd, mode, offset, n);
  }
  static constexpr uint64_t free_blocks = 100;
};

TEST(CopyOfSharedBlocks, NeedsNoRoomForThem) {
  const TempDir dir;
  const std::string from = dir / "m.safetensors", joined = dir / "joined.safetensors";
  put_bytes(from, file_of({u8_tensor("a", 1 << 20, 1), u8_tensor("b", 1 << 20, 2)}));
  FullAndSharing env(os::Env::posix());
  for (const bool shares : {false, true}) {
    env.refusal = shares ? 0 : EOPNOTSUPP;
    const auto expect = [&](const Result<void> &done) {
      EXPECT_TRUE(shares ? is_ok(done) : fails_with(Status::no_space, done));
    };
    expect(join(env, from, joined, {}));
    expect(reshard(env, from, dir / (shares ? "out" : "none"), 2 << 20, {}));
  }
  EXPECT_TRUE(same_bytes(bytes_of(joined), bytes_of(from)));
}

// However many tensors there are.
TEST(CopyOfManyTensors, ThoseThatFollowEachOtherAreCopiedByOneCall) {
  std::vector<TestTensor> tensors;
  for (int i = 0; i < 1000; ++i) tensors.push_back(u8_tensor(text("t", i), 100, static_cast<unsigned>(i)));
  SimEnv disk;
  disk.make_folder("/d");
  disk.add_file("/d/m.safetensors", file_of(tensors));
  FaultEnv env(disk);
  const auto copies = [&] { return std::count(env.calls.begin(), env.calls.end(), Call::copy_range); };
  ASSERT_TRUE(is_ok(join(env, "/d/m.safetensors", to, {})));
  EXPECT_EQ(copies(), 1);
  ASSERT_TRUE(is_ok(reshard(env, to, to_folder, 50'000, {})));
  EXPECT_EQ(copies(), 3);
  ASSERT_TRUE(is_ok(join(env, index_in(to_folder), "/d/again.safetensors", {})));
  EXPECT_EQ(copies(), 5);
  EXPECT_EQ(disk.contents("/d/again.safetensors"), disk.contents(to));
  write::SaveOptions by_name;  // so that others follow each other
  by_name.layout = write::Layout::canonical;
  ASSERT_TRUE(is_ok(join(env, to, "/d/other.safetensors", by_name)));
  EXPECT_EQ(holdings_of(disk.contents("/d/other.safetensors")).tensors.size(), tensors.size());
}

#ifdef __linux__
// A program that reads a checkpoint whenever that was written would do so again and again.
TEST(Watcher, IsNotToldOfAWriteToWhatIsOnlyRead) {
  const TempDir dir;
  os::Env &env = os::Env::posix();
  const std::string base = dir / "base", other = dir / "other", by = dir / "by", made = dir / "made";
  put_bytes(base, file_of({u8_tensor("t", 5000, 1)}));
  put_bytes(other, file_of({u8_tensor("t", 5000, 2)}));
  OpenOptions writable;
  writable.writable = true;
  const auto writer = open_path(env, base, writable).value();  // whose journal stays
  const auto txn = writer->begin({}).value();
  const TestTensor t = u8_tensor("t", 5000, 3);
  ASSERT_TRUE(is_ok(txn->update("t", {static_cast<uint32_t>(t.dtype), t.shape, t.bytes.data(), t.bytes.size()})));
  ASSERT_TRUE(is_ok(txn->commit()));
  ASSERT_TRUE(std::filesystem::exists(base + ".st-journal"));
  const int watch = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(watch, 0);
  ASSERT_GE(::inotify_add_watch(watch, base.c_str(), IN_CLOSE_WRITE), 0);
  ASSERT_TRUE(is_ok(diff(env, base, other, by, {})));
  ASSERT_GE(::inotify_add_watch(watch, by.c_str(), IN_CLOSE_WRITE), 0);
  ASSERT_TRUE(is_ok(merge(env, base, {by}, made, {})));
  ASSERT_TRUE(is_ok(join(env, base, made, {})));
  ASSERT_TRUE(is_ok(patch(env, made, by, {})));
  char event[1024];
  EXPECT_EQ(::read(watch, event, sizeof event), -1);
  ::close(watch);
}
#endif

// Where it never stays as it is, a copy is not tried for ever.
TEST_F(CopyTest, AFileThatIsReplacedAllTheTimeIsNotCopied) {
  for (const Case &c : {cases[0], cases[5]}) {
    SimEnv disk = fresh_disk();
    FaultEnv env(disk);
    char value = '1';
    env.before = [&](Call call) {
      if (call == Call::pread) static_cast<void>(change(disk, c.source, value ^= 1, {.publish = true}));
      return 0;
    };
    const auto done = copy(env, c);
    EXPECT_TRUE(fails_with(Status::file_changed, done)) << c.name;
    EXPECT_FALSE(disk.exists(c.copy)) << c.name;
  }
}

}  // namespace
}  // namespace st::store
