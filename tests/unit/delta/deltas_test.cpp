// Deltas of real files: made, applied, undone, folded, refused.
#include <sys/stat.h>

#include <filesystem>

#include "base/little_endian.h"
#include "counting_env.h"
#include "delta_scene.h"
#include "engine/verify.h"
#include "fault_env.h"
#include "few_descriptors.h"
#include "os/range_lock.h"
#include "os/turnstile.h"
#include "sharing_env.h"
#include "store_scene.h"

namespace st::testing {
namespace {

using store::DeltaPatched;
using store::DeltaPatchOptions;

class Deltas : public ::testing::Test {
 protected:
  Deltas() {
    put_bytes(base, a.file());
    put_bytes(other, b.file());
  }

  Result<void> diff() { return store::diff(env, base, other, delta, {}); }
  Result<DeltaPatched> patch(const std::string &with, std::string reverse_path = {}) {
    DeltaPatchOptions options;
    options.reverse = std::move(reverse_path);
    return store::patch(env, base, with, std::move(options));
  }
  Result<void> merge(const std::vector<std::string> &deltas, write::SaveOptions options = {}) {
    return store::merge(env, base, deltas, merged, options);
  }
  // A transaction of another handle, which does not wait.
  Result<void> change(const std::string &path, const std::vector<TestTensor> &to) {
    store::OpenOptions writing;
    writing.writable = true;
    writing.lock_timeout_ms = 0;
    ST_TRY(auto model, store::open_path(env, path, writing));
    store::TransactionOptions how;
    how.lock_timeout_ms = 0;
    ST_TRY(auto txn, model->begin(how));
    for (const TestTensor &t : to)
      ST_TRY(txn->update(t.name, {static_cast<uint32_t>(t.dtype), t.shape, t.bytes.data(), t.bytes.size()}));
    return txn->commit();
  }
  // A progress that acts when it is asked for the at-th time.
  static Progress acts(int at, int *asked, std::function<void()> act) {
    return [=, act = std::move(act)](uint64_t, uint64_t) {
      if (++*asked == at) act();
      return true;
    };
  }
  static Holdings held(const std::string &path) { return holdings_of(bytes_of(path)); }

  os::Env &env = os::Env::posix();
  TempDir dir;
  const std::string base = dir / "base.safetensors", other = dir / "other.safetensors", delta = dir / "d.safetensors",
                    reverse = dir / "r.safetensors", merged = dir / "m.safetensors";
  Holdings a{{u8_tensor("a", 4000, 1), u8_tensor("b", 10007, 2), u8_tensor("c", 3000, 3)}, {{"k", "v"}}};
  Holdings b{{u8_tensor("a", 4000, 1), u8_tensor("b", 10007, 22), u8_tensor("c", 3000, 3)}, {{"k", "v"}}};
};

TEST_F(Deltas, HoldOnlyWhatDiffers) {
  ASSERT_TRUE(is_ok(diff()));
  const Holdings d = held(delta);
  ASSERT_EQ(d.tensors.size(), 1u);
  EXPECT_EQ(d.tensors[0], b.tensors[1]);
  EXPECT_EQ(d.metadata.at("st.delta.version"), "1");
  EXPECT_EQ(d.metadata.count("st.delta.order"), 0u);
  EXPECT_EQ(d.metadata.count("st.delta.deleted"), 0u);
}

TEST_F(Deltas, OfEqualFilesHoldNothingAndApplyAnyNumberOfTimes) {
  put_bytes(other, a.file(300));
  ASSERT_TRUE(is_ok(diff()));
  EXPECT_EQ(held(delta).tensors.size(), 0u);
  const std::string before = bytes_of(base);
  for (int i = 0; i < 2; ++i) {
    auto done = patch(delta, reverse);
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->plan.kind, store::CommitPlan::nothing);
    EXPECT_EQ(held(reverse).tensors.size(), 0u);
    EXPECT_TRUE(same_bytes(bytes_of(base), before));
  }
}

TEST_F(Deltas, ThatChangeBytesOnlyAreAppliedInPlaceAtTheCostOfTheirBytes) {
  ASSERT_TRUE(is_ok(diff()));
  struct stat before, after;
  ::stat(base.c_str(), &before);
  auto done = patch(delta, reverse);
  ASSERT_TRUE(is_ok(done));
  ::stat(base.c_str(), &after);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(done->plan.kind, store::CommitPlan::patch);
  EXPECT_EQ(done->plan.cost.written, 24751u);  // staged before that: the journal has them yet to be written
  EXPECT_EQ(done->written, 10007u);
  EXPECT_LT(done->journal_bytes, 10007u + 16384u);
  EXPECT_TRUE(same_bytes(bytes_of(base), b.file()));
  ASSERT_TRUE(is_ok(patch(reverse)));
  EXPECT_TRUE(same_bytes(bytes_of(base), a.file()));
}

TEST_F(Deltas, ThatChangeTheCatalogueArePublishedAndLeadBack) {
  b = {{u8_tensor("new", 77, 9), u8_tensor("c", 3000, 33), {"a", Dtype::F16, {2000}, a.tensors[0].bytes}},
       {{"k", "w"}, {"l", ""}}};
  put_bytes(other, b.file());
  ASSERT_TRUE(is_ok(diff()));
  auto done = patch(delta, reverse);
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->plan.kind, store::CommitPlan::publish);
  EXPECT_EQ(held(base), b);
  EXPECT_TRUE(fails_with(Status::delta_base, patch(delta)));
  ASSERT_TRUE(is_ok(patch(reverse, delta)));  // another way forth, in the place of the first
  EXPECT_EQ(held(base), a);
  ASSERT_TRUE(is_ok(patch(delta)));
  EXPECT_EQ(held(base), b);
}

TEST_F(Deltas, AreRefusedTwice) {
  ASSERT_TRUE(is_ok(diff()));
  ASSERT_TRUE(is_ok(patch(delta)));
  const std::string after = bytes_of(base);
  EXPECT_TRUE(fails_with(Status::delta_base, patch(delta, reverse)));
  EXPECT_TRUE(same_bytes(bytes_of(base), after));
  EXPECT_EQ(names_in(dir.path()), (std::vector<std::string>{"base.safetensors", "d.safetensors", "other.safetensors"}));
}

// The head of the tensor is as it should be: only its hash can tell.
TEST_F(Deltas, AreRefusedByABaseWithOtherBytesToReplace) {
  ASSERT_TRUE(is_ok(diff()));
  Holdings wrong = a;
  wrong.tensors[1].bytes[9000] ^= 1;
  put_bytes(base, wrong.file());
  EXPECT_TRUE(fails_with(Status::delta_base, patch(delta, reverse)));
  EXPECT_TRUE(fails_with(Status::delta_base, merge({delta})));
  EXPECT_TRUE(same_bytes(bytes_of(base), wrong.file()));
  EXPECT_FALSE(std::filesystem::exists(reverse));
  EXPECT_FALSE(std::filesystem::exists(merged));
}

TEST_F(Deltas, AreRefusedByABaseWithOtherBytesToDelete) {
  b.tensors.pop_back();
  put_bytes(other, b.file());
  ASSERT_TRUE(is_ok(diff()));
  Holdings wrong = a;
  wrong.tensors[2].bytes[0] ^= 1;
  put_bytes(base, wrong.file());
  EXPECT_TRUE(fails_with(Status::delta_base, patch(delta)));
  EXPECT_TRUE(same_bytes(bytes_of(base), wrong.file()));
}

TEST_F(Deltas, AreRefusedByABaseOfAnotherCatalogue) {
  ASSERT_TRUE(is_ok(diff()));
  std::vector<Holdings> wrong(4, a);
  wrong[0].tensors[0].name = "z";
  wrong[1].tensors[0] = {"a", Dtype::I8, {4000}, a.tensors[0].bytes};
  wrong[2].tensors[0].shape = {2, 2000};
  wrong[3].metadata["k"] = "w";
  for (const Holdings &w : wrong) {
    put_bytes(base, w.file());
    EXPECT_TRUE(fails_with(Status::delta_base, patch(delta)));
    EXPECT_TRUE(fails_with(Status::delta_base, merge({delta})));
    EXPECT_TRUE(same_bytes(bytes_of(base), w.file()));
  }
}

TEST_F(Deltas, FitABaseThatWasPatchedElsewhereOrLaidOutAnew) {
  ASSERT_TRUE(is_ok(diff()));
  a.tensors[0].bytes[5] ^= 1;
  std::swap(a.tensors[0], a.tensors[2]);
  put_bytes(base, a.file(5000));
  ASSERT_TRUE(is_ok(patch(delta, reverse)));
  Holdings wanted = a;
  wanted.tensors[1] = b.tensors[1];
  EXPECT_EQ(held(base), wanted);
  ASSERT_TRUE(is_ok(patch(reverse)));
  EXPECT_EQ(held(base), a);
}

TEST_F(Deltas, ThatWereDamagedAreRefused) {
  ASSERT_TRUE(is_ok(diff()));
  std::string bytes = bytes_of(delta);
  bytes[bytes.size() - 100] ^= 1;
  put_bytes(delta, bytes);
  EXPECT_TRUE(fails_with(Status::delta, patch(delta)));
  EXPECT_TRUE(fails_with(Status::delta, merge({delta})));
  EXPECT_TRUE(fails_with(Status::delta, patch(other)));  // no delta at all
  EXPECT_TRUE(same_bytes(bytes_of(base), a.file()));
}

TEST_F(Deltas, NeverReplaceWhatTheyAreMadeOf) {
  EXPECT_TRUE(fails_with(Status::invalid_argument, store::diff(env, base, other, base, {})));
  EXPECT_TRUE(fails_with(Status::invalid_argument, store::diff(env, base, other, other, {})));
  ASSERT_TRUE(is_ok(diff()));
  EXPECT_TRUE(fails_with(Status::invalid_argument, patch(delta, base)));
  EXPECT_TRUE(fails_with(Status::invalid_argument, patch(delta, delta)));
  EXPECT_TRUE(fails_with(Status::invalid_argument, store::merge(env, base, {delta}, base, {})));
  EXPECT_TRUE(fails_with(Status::invalid_argument, store::merge(env, base, {delta}, delta, {})));
  EXPECT_TRUE(same_bytes(bytes_of(base), a.file()));
}

// Such a name is looked for shards: nothing would read the delta.
TEST_F(Deltas, AreNotNamedAsAnIndex) {
  const std::string index = dir / "d.safetensors.index.json";
  EXPECT_TRUE(fails_with(Status::invalid_argument, store::diff(env, base, other, index, {})));
  ASSERT_TRUE(is_ok(diff()));
  EXPECT_TRUE(fails_with(Status::invalid_argument, patch(delta, index)));
  store::OpenOptions writing;
  writing.writable = true;
  auto opened = store::open_path(env, base, writing);
  ASSERT_TRUE(is_ok(opened));
  DeltaPatchOptions options;
  options.reverse = index;
  EXPECT_TRUE(fails_with(Status::invalid_argument, store::patch(env, **opened, delta, options)));
  EXPECT_FALSE(std::filesystem::exists(index));
  EXPECT_TRUE(same_bytes(bytes_of(base), a.file()));
}

// Their bytes are checked once, and then read again as new bytes.
TEST_F(Deltas, AreNotChangedWhileTheyAreApplied) {
  ASSERT_TRUE(is_ok(diff()));
  const std::string made = bytes_of(delta);
  for (const bool through_handle : {false, true}) {
    int at = 1;
    for (;; ++at) {
      put_bytes(base, a.file());
      int asked = 0;
      bool refused = false;
      DeltaPatchOptions options;
      options.reverse = reverse;
      options.progress = acts(at, &asked, [&] {
        refused = static_cast<bool>(fails_with(Status::busy, change(delta, {u8_tensor("b", 10007, 99)})));
      });
      if (through_handle) {
        store::OpenOptions writing;
        writing.writable = true;
        auto opened = store::open_path(env, base, writing);
        ASSERT_TRUE(is_ok(opened));
        ASSERT_TRUE(is_ok(store::patch(env, **opened, delta, std::move(options)))) << at;
      } else {
        ASSERT_TRUE(is_ok(store::patch(env, base, delta, std::move(options)))) << at;
      }
      if (asked < at) break;
      ASSERT_TRUE(refused) << at;
      ASSERT_TRUE(same_bytes(bytes_of(delta), made)) << at;
      ASSERT_TRUE(same_bytes(bytes_of(base), b.file())) << at;
      ASSERT_TRUE(is_ok(patch(reverse))) << at;
      ASSERT_TRUE(same_bytes(bytes_of(base), a.file())) << at;
    }
    EXPECT_GT(at, 3);
  }
  EXPECT_TRUE(is_ok(change(delta, {u8_tensor("b", 10007, 99)})));
}

TEST_F(Deltas, ThatAreTruncatedWhileTheyAreAppliedAreNamed) {
  ASSERT_TRUE(is_ok(diff()));
  const std::string made = bytes_of(delta);
  int told = 0;
  for (const bool publish : {false, true})
    for (int at = 1;; ++at) {
      put_bytes(base, a.file());
      put_bytes(delta, made);
      int asked = 0;
      DeltaPatchOptions options;
      options.publish = publish;
      options.progress = acts(at, &asked, [&] { std::filesystem::resize_file(delta, 4096); });
      const auto done = store::patch(env, base, delta, std::move(options));
      if (asked < at) break;
      ASSERT_TRUE(same_bytes(bytes_of(base), done ? b.file() : a.file())) << at;
      if (done) continue;
      ASSERT_TRUE(fails_with(Status::file_changed, done)) << at;
      const std::string &why = done.error().message;
      EXPECT_NE(why.find(delta), std::string::npos) << why;
      EXPECT_NE(why.find("truncated while open"), std::string::npos) << why;
      ++told;
    }
  EXPECT_GT(told, 1);
}

// Somebody writes without a lock, also between the look at the delta's bytes and their staging.
TEST_F(Deltas, AreAppliedOrNotWhenTheirBytesChangeMeanwhile) {
  a.tensors.push_back(u8_tensor("large", 1100000, 4));
  b.tensors.push_back(u8_tensor("large", 1100000, 44));
  put_bytes(base, a.file());
  put_bytes(other, b.file());
  ASSERT_TRUE(is_ok(diff()));
  const std::string made = bytes_of(delta);
  std::string damaged = made;
  for (const Holdings h = held(delta); const TestTensor &t : h.tensors)
    damaged[made.find(t.bytes) + t.bytes.size() / 2] ^= 1;
  SharingEnv sharing(env);
  int applied = 0;
  for (os::Env *with : {&env, static_cast<os::Env *>(&sharing)})
    for (const bool publish : {false, true}) {
      int refused = 0;
      for (int at = 1;; ++at) {
        SCOPED_TRACE(text(with == &sharing ? "undo, " : "redo, ", publish ? "publish, " : "patch, ", at));
        put_bytes(base, a.file());
        put_bytes(delta, made);
        auto file = os::File::open(env, AT_FDCWD, delta, O_RDWR, 0, delta);
        ASSERT_TRUE(is_ok(file));
        int asked = 0;
        DeltaPatchOptions options;
        options.publish = publish;
        options.progress =
            acts(at, &asked, [&] { EXPECT_TRUE(is_ok(file->write(damaged.data(), damaged.size(), 0))); });
        const auto done = store::patch(*with, base, delta, std::move(options));
        if (asked < at) break;
        ASSERT_EQ(held(base), done ? b : a);
        (done ? applied : refused) += 1;
        if (done || done.error().status == Status::delta) continue;
        ASSERT_TRUE(fails_with(Status::file_changed, done)) << done.error().message;
        ASSERT_NE(done.error().message.find(delta), std::string::npos) << done.error().message;
      }
      EXPECT_GT(refused, 1);
    }
  EXPECT_GT(applied, 0);
}

// A patch of either that a comparison saw half of would be in the delta as a state that never was.
TEST_F(Deltas, AreOfOneStateOfBoth) {
  a.tensors.push_back(u8_tensor("large", 1100000, 5));
  b.tensors.push_back(u8_tensor("large", 1100000, 5));
  for (const size_t at : {size_t{5}, size_t{1099999}}) b.tensors.back().bytes[at] ^= 1;
  std::vector<TestTensor> fresh = b.tensors;
  for (TestTensor &t : fresh) {
    t.bytes.front() ^= 2;
    t.bytes.back() ^= 2;
  }
  for (const std::string &changed : {base, other}) {
    int at = 1;
    for (;; ++at) {
      put_bytes(base, a.file());
      put_bytes(other, b.file());
      int asked = 0;
      store::DiffOptions options;
      options.progress = acts(at, &asked, [&] { EXPECT_TRUE(fails_with(Status::busy, change(changed, fresh))) << at; });
      ASSERT_TRUE(is_ok(store::diff(env, base, other, delta, options))) << at;
      if (asked < at) break;
      put_bytes(base, a.file());
      ASSERT_TRUE(is_ok(patch(delta))) << at << ", " << changed;
      ASSERT_TRUE(same_bytes(bytes_of(base), b.file())) << at << ", " << changed;
    }
    EXPECT_GT(at, 4);
    EXPECT_TRUE(is_ok(change(changed, fresh)));
  }
}

// A second lock would wait for the writer that waits for the first.
TEST_F(Deltas, OfTwoNamesOfOneFileLockItOnce) {
  const std::string link = dir / "link.safetensors";
  std::filesystem::create_hard_link(base, link);
  for (const std::string &second : {base, link}) {
    const auto writer = os::File::open(env, AT_FDCWD, base, O_RDWR, 0, base);
    ASSERT_TRUE(is_ok(writer));
    std::optional<os::RangeLock> waits;
    FaultEnv watched(env);
    watched.before = [&](Call) {
      if (waits || !os::is_locked(*writer, os::whole_file(true)).value()) return 0;
      auto gate = os::RangeLock::acquire(*writer, {os::gate_byte}, {});
      if (gate) waits.emplace(std::move(*gate));
      return 0;
    };
    store::DiffOptions options;
    options.lock_timeout_ms = 0;
    EXPECT_TRUE(is_ok(store::diff(watched, base, second, delta, options)));
    EXPECT_TRUE(waits.has_value());
  }
}

// An apply holds the delta while it waits for the base. A merge that waited the other way round might wait for it.
TEST_F(Deltas, AreLockedBeforeTheirBase) {
  ASSERT_TRUE(is_ok(diff()));
  const auto below = os::File::open(env, AT_FDCWD, base, O_RDWR, 0, base);
  const auto above = os::File::open(env, AT_FDCWD, delta, O_RDWR, 0, delta);
  ASSERT_TRUE(is_ok(below));
  ASSERT_TRUE(is_ok(above));
  FaultEnv watched(env);
  const auto until_the_base_is_locked = [&](const std::function<void()> &work) {
    std::optional<bool> holds_the_delta;
    watched.before = [&](Call) {
      if (!holds_the_delta && os::is_locked(*below, os::whole_file(true)).value())
        holds_the_delta = os::is_locked(*above, os::whole_file(true)).value();
      return 0;
    };
    work();
    return holds_the_delta.value_or(false);
  };
  EXPECT_TRUE(until_the_base_is_locked([&] { ASSERT_TRUE(is_ok(store::merge(watched, base, {delta}, merged, {}))); }));
  EXPECT_TRUE(until_the_base_is_locked([&] { ASSERT_TRUE(is_ok(store::patch(watched, base, delta, {}))); }));
}

// Storage may know no locks.
TEST_F(Deltas, AreMadeWhereNothingCanBeLocked) {
  FaultEnv without(env);
  without.before = [](Call call) { return call == Call::lock ? -EOPNOTSUPP : 0; };
  ASSERT_TRUE(is_ok(store::diff(without, base, other, delta, {})));
  ASSERT_TRUE(is_ok(patch(delta)));
  EXPECT_TRUE(same_bytes(bytes_of(base), b.file()));
}

TEST_F(Deltas, AreAppliedWhereTheyCannotBeLocked) {
  ASSERT_TRUE(is_ok(diff()));
  FaultEnv without(env);
  bool of_the_delta = true;  // which is opened first, and locked before anything else
  without.before = [&](Call call) {
    return call == Call::lock && std::exchange(of_the_delta, false) ? -EOPNOTSUPP : 0;
  };
  ASSERT_TRUE(is_ok(store::patch(without, base, delta, {})));
  EXPECT_FALSE(of_the_delta);
  EXPECT_TRUE(same_bytes(bytes_of(base), b.file()));
}

TEST_F(Deltas, AreNotAppliedIfTheWayBackCannotBeWritten) {
  ASSERT_TRUE(is_ok(diff()));
  EXPECT_TRUE(fails_with(Status::no_file, patch(delta, dir / "nowhere/r.safetensors")));
  EXPECT_TRUE(same_bytes(bytes_of(base), a.file()));
}

// A program that asks again after a crash learns that it is done. The first bytes are the same or not; the tensor is
// whole, or steps.
TEST_F(Deltas, SayThatTheyHaveBeenAppliedAlready) {
  const auto says = [](const auto &failed, std::string_view what) {
    EXPECT_TRUE(fails_with(Status::delta_base, failed));
    return failed.error().message.find(what) != std::string::npos;
  };
  for (const size_t first : {size_t{0}, size_t{5000}})
    for (const size_t n : {size_t{3}, size_t{5000}}) {
      Holdings to = a, foreign = a;
      for (size_t i = 0; i < n; ++i)
        to.tensors[1].bytes[first + i] = static_cast<char>(~to.tensors[1].bytes[first + i]);
      foreign.tensors[1].bytes[first] ^= 64;
      put_bytes(base, a.file());
      put_bytes(other, to.file());
      std::remove(delta.c_str());
      ASSERT_TRUE(is_ok(diff()));
      ASSERT_TRUE(is_ok(patch(delta)));
      EXPECT_TRUE(says(patch(delta), "has been applied already")) << first << " " << n;
      put_bytes(base, foreign.file());
      EXPECT_TRUE(says(patch(delta), "another base")) << first << " " << n;
      EXPECT_FALSE(says(patch(delta), "applied already")) << first << " " << n;
    }
}

// A disk that fills as files grow.
class SmallDisk : public FaultEnv {
 public:
  SmallDisk(os::Env &env, std::string folder) : FaultEnv(env), folder_(std::move(folder)) {}
  int fstatfs(int fd, struct statfs *out) override {
    const int r = FaultEnv::fstatfs(fd, out);
    const uint64_t taken = used() - before_;
    out->f_bavail = out->f_bfree = (free_bytes - std::min(taken, free_bytes)) / static_cast<uint64_t>(out->f_bsize);
    return r;
  }
  uint64_t free_bytes = 0;

 private:
  uint64_t used() const {
    uint64_t sum = 0;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(folder_)) {
      constexpr uint64_t sector = 512;
      struct stat s;
      if (::lstat(entry.path().string().c_str(), &s) == 0) sum += static_cast<uint64_t>(s.st_blocks) * sector;
    }
    return sum;
  }
  const std::string folder_;
  const uint64_t before_ = used();
};

// What an apply that fails must leave: the new way back would fit nothing.
enum class Way { redo, undo, publish };

class EarlierWayBack : public Deltas, public ::testing::WithParamInterface<Way> {
 protected:
  EarlierWayBack() {
    if (GetParam() == Way::publish) b.metadata["k"] = "w";
    begin();
  }
  void begin() {
    put_bytes(base, a.file());
    put_bytes(other, b.file());
    std::filesystem::remove(delta);
    EXPECT_TRUE(is_ok(diff()));
    put_bytes(reverse, earlier);
  }
  os::Env &disk() {
    if (GetParam() == Way::undo) return sharing;
    return redoing;
  }
  Result<DeltaPatched> apply(os::Env &by, Progress progress = {}) {
    DeltaPatchOptions options;
    options.reverse = reverse;
    options.progress = std::move(progress);
    return store::patch(by, base, delta, std::move(options));
  }
  struct Redoing : FaultEnv {
    using FaultEnv::FaultEnv;
    const char *getenv(const char *name) override {
      return std::string_view(name) == "ST_JOURNAL" ? "redo" : FaultEnv::getenv(name);
    }
  };
  const std::string earlier = "an earlier way back";
  SharingEnv sharing{env};
  Redoing redoing{env};
};

TEST_P(EarlierWayBack, StaysWhereThereIsNoRoomForTheChange) {
  SmallDisk small(disk(), dir.path());
  for (;; small.free_bytes += 4096) {
    auto done = apply(small);
    if (done) break;
    ASSERT_TRUE(fails_with(Status::no_space, done));
    ASSERT_TRUE(same_bytes(bytes_of(reverse), earlier)) << small.free_bytes;
    ASSERT_TRUE(same_bytes(bytes_of(base), a.file()));
  }
  EXPECT_GT(small.free_bytes, 20'000u);  // two times what changes
}

TEST_P(EarlierWayBack, StaysWhereAWriteOfTheChangeFails) {
  FaultEnv failing(disk());
  int failed = 0;
  for (bool hit = true; hit; ++failed) {
    failing.before = no_room_for(failed, &hit);
    auto done = apply(failing);
    if (done || done.error().status == Status::needs_recovery) {  // it may do without room that is set aside
      std::filesystem::remove_all(base + ".st-journal");
      put_bytes(base, a.file());
      put_bytes(reverse, earlier);
      continue;
    }
    ASSERT_TRUE(same_bytes(bytes_of(reverse), earlier)) << failed << ": " << done.error().message;
    ASSERT_TRUE(same_bytes(bytes_of(base), a.file()));
  }
  EXPECT_GT(failed, 5);
}

// Long enough for the change to be written out piece by piece.
TEST_P(EarlierWayBack, StaysWhereTheChangeIsCancelled) {
  constexpr size_t n = size_t{5} << 20;
  a.tensors[1] = u8_tensor("b", n, 2);
  b.tensors[1] = u8_tensor("b", n, 22);
  begin();
  int last = 0;
  for (bool hit = true; hit; ++last) {
    int asked = 0;
    hit = false;
    auto done = apply(disk(), [&](uint64_t, uint64_t) {
      hit |= asked == last;
      return asked++ != last;
    });
    if (done) break;
    ASSERT_TRUE(fails_with(Status::cancelled, done)) << last;
    ASSERT_TRUE(same_bytes(bytes_of(reverse), earlier)) << last;
    ASSERT_TRUE(same_bytes(bytes_of(base), a.file())) << last;
  }
  EXPECT_GT(last, 5);
  EXPECT_TRUE(same_bytes(bytes_of(base), b.file()));
}

INSTANTIATE_TEST_SUITE_P(RedoneUndoneOrPublished, EarlierWayBack,
                         ::testing::Values(Way::redo, Way::undo, Way::publish));

// Recovery puts the old bytes back.
TEST_F(Deltas, LeaveAnEarlierWayBackWhereTheNewBytesMayNotBeOnTheDisk) {
  ASSERT_TRUE(is_ok(diff()));
  put_bytes(reverse, "an earlier way back");
  SharingEnv disk(env);
  disk.fails = [](const std::string &step) { return step == "d:sync" ? -EIO : 0; };
  DeltaPatchOptions options;
  options.reverse = reverse;
  EXPECT_TRUE(fails_with(Status::needs_recovery, store::patch(disk, base, delta, std::move(options))));
  EXPECT_TRUE(same_bytes(bytes_of(reverse), "an earlier way back"));
  EXPECT_NE(std::find(disk.steps.begin(), disk.steps.end(), "j:commit"), disk.steps.end());
  disk.fails = nullptr;
  EXPECT_EQ(seen_through(disk, base, {}), a);
}

TEST_F(Deltas, StopWhenToldTo) {
  ASSERT_TRUE(is_ok(diff()));
  for (int after = 0; after < 20; ++after) {
    DeltaPatchOptions options;
    options.reverse = reverse;
    uint64_t last = 0;
    int asked = 0;
    options.progress = [&](uint64_t done, uint64_t total) {
      EXPECT_LE(done, total);
      EXPECT_GE(done, last);
      last = done;
      return asked++ < after;
    };
    auto done = store::patch(env, base, delta, std::move(options));
    if (done) {
      EXPECT_GT(after, 2);
      EXPECT_TRUE(same_bytes(bytes_of(base), b.file()));
      return;
    }
    EXPECT_TRUE(fails_with(Status::cancelled, done));
    EXPECT_TRUE(same_bytes(bytes_of(base), a.file()));
  }
  ADD_FAILURE() << "it never came to an end";
}

TEST_F(Deltas, LargerThanTheBlocksTheyAreReadIn) {
  a.tensors.push_back(u8_tensor("large", 9 << 20, 5));
  b = a;
  b.tensors[3].bytes[(8 << 20) + 5] ^= 1;
  b.tensors[0].bytes[3999] ^= 1;
  put_bytes(base, a.file());
  put_bytes(other, b.file(1000));
  ASSERT_TRUE(is_ok(diff()));
  EXPECT_EQ(held(delta).tensors.size(), 2u);
  ASSERT_TRUE(is_ok(patch(delta, reverse)));
  EXPECT_EQ(held(base), b);
  ASSERT_TRUE(is_ok(patch(reverse)));
  EXPECT_TRUE(same_bytes(bytes_of(base), a.file()));
}

// Some elements of a tensor of two blocks and more, the first and the last among them.
class DeltasOfElements : public Deltas {
 protected:
  DeltasOfElements() {
    a.tensors.push_back({"w", Dtype::BF16, {3, 400000}, pattern(2400000, 5)});
    b = a;
    std::string &w = b.tensors.back().bytes;
    for (size_t i = 0; i < w.size(); i += 40 * (1 + i % 7)) w[i] ^= 1;
    w.back() ^= 2;
    put_bytes(base, a.file());
    put_bytes(other, b.file(1000));
  }
  // The delta, with other steps in the place of its own, and the hash of these.
  void forge(const std::string &steps) {
    Holdings d = held(delta);
    TestTensor &w = d.tensors.back();
    std::string &hashes = d.metadata["st.delta.hashes"];
    Hasher128 before, after;
    before.add(w.bytes.data(), w.bytes.size());
    after.add(steps.data(), steps.size());
    const size_t at = hashes.find(spell_hash(before.digest()));
    ASSERT_NE(at, std::string::npos);
    hashes.replace(at, 32, spell_hash(after.digest()));
    w.bytes = steps;
    w.shape = {steps.size()};
    put_bytes(delta, d.file());
  }
  void is_refused_everywhere(Status status) {
    EXPECT_TRUE(fails_with(status, patch(delta, reverse)));
    EXPECT_TRUE(fails_with(status, merge({delta})));
    store::OpenOptions options;
    options.deltas = {delta};
    EXPECT_TRUE(fails_with(status, store::open_path(env, base, options)));
    EXPECT_TRUE(fails_with(status, store::verify_layers(env, base, {delta}, {}, {})));
    EXPECT_FALSE(std::filesystem::exists(reverse));
    EXPECT_FALSE(std::filesystem::exists(merged));
  }
};

TEST_F(DeltasOfElements, HoldStepsAndLeadForthAndBack) {
  ASSERT_TRUE(is_ok(diff()));
  const Holdings d = held(delta);
  ASSERT_EQ(d.tensors.size(), 1u);
  EXPECT_EQ(d.tensors[0].name, "w");
  EXPECT_EQ(d.tensors[0].dtype, Dtype::U8);
  EXPECT_LT(d.tensors[0].bytes.size(), 2400000u / 20);
  EXPECT_EQ(d.metadata.at("st.delta.version"), "2");
  EXPECT_EQ(names_in(dir.path()), (std::vector<std::string>{"base.safetensors", "d.safetensors", "other.safetensors"}));
  EXPECT_TRUE(is_ok(store::verify_layers(env, base, {delta}, {}, {})));
  EXPECT_EQ(seen_through(env, base, {delta}), b);
  ASSERT_TRUE(is_ok(merge({delta})));
  EXPECT_EQ(held(merged), b);
  auto done = patch(delta, reverse);
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->plan.kind, store::CommitPlan::patch);
  EXPECT_TRUE(same_bytes(bytes_of(base), b.file()));
  EXPECT_EQ(held(reverse).tensors, d.tensors);
  EXPECT_TRUE(fails_with(Status::delta_base, patch(delta)));
  ASSERT_TRUE(is_ok(patch(reverse)));
  EXPECT_TRUE(same_bytes(bytes_of(base), a.file()));
}

// A page in ten blocks changes: no other is journalled or written.
TEST_F(DeltasOfElements, WriteThePagesThatChangeAlone) {
  b = a;
  for (const size_t at : {size_t{5}, size_t{1200000}, size_t{2399999}}) b.tensors.back().bytes[at] ^= 1;
  put_bytes(other, b.file());
  ASSERT_TRUE(is_ok(diff()));
  auto done = patch(delta);
  ASSERT_TRUE(is_ok(done));
  EXPECT_LE(done->written, 3 * 4096u);
  EXPECT_LT(done->journal_bytes, 3 * 4096u + 16384);
  EXPECT_TRUE(same_bytes(bytes_of(base), b.file()));
}

// Elements of eight bytes that lie on two pages; and gaps of any length.
TEST_F(DeltasOfElements, OfEveryWidthAreAppliedInPlace) {
  for (const Dtype dtype : {Dtype::U8, Dtype::F16, Dtype::F32, Dtype::F64, Dtype::C64})
    for (const size_t every : {13, 5000, 300000}) {
      const size_t width = dtype_bits(dtype) / 8;
      a.tensors.back() = TestTensor{"w", dtype, {2400000 / width}, pattern(2400000, 5)};
      b = a;
      for (size_t i = every; i < 2400000; i += every) b.tensors.back().bytes[i] ^= 3;
      put_bytes(base, a.file());
      put_bytes(other, b.file());
      ASSERT_TRUE(is_ok(diff()));
      EXPECT_EQ(held(delta).metadata.at("st.delta.version"), "2");
      ASSERT_TRUE(is_ok(patch(delta, reverse)));
      ASSERT_TRUE(same_bytes(bytes_of(base), b.file())) << width << " " << every;
      ASSERT_TRUE(is_ok(patch(reverse)));
      ASSERT_TRUE(same_bytes(bytes_of(base), a.file())) << width << " " << every;
    }
}

// What was hashed must still be there when it is changed.
TEST_F(DeltasOfElements, LockAllOfTheTensorThatTheyChange) {
  ASSERT_TRUE(is_ok(diff()));
  auto file = os::File::open(env, AT_FDCWD, base, O_RDWR, 0, base);
  ASSERT_TRUE(is_ok(file));
  const uint64_t in_w = 8 + load_u64le(a.file().data()) + 1200000;
  auto lock = os::RangeLock::acquire(*file, {{in_w, 1, true}}, {});
  ASSERT_TRUE(is_ok(lock));
  DeltaPatchOptions options;
  options.lock_timeout_ms = 0;
  EXPECT_TRUE(fails_with(Status::busy, store::patch(env, base, delta, options)));
  lock->release();
  EXPECT_TRUE(is_ok(store::patch(env, base, delta, options)));
}

// Somebody writes without a lock. The steps are taken, and then copied: those that lead back are those that were taken.
TEST_F(DeltasOfElements, AreAppliedOrNotWhenTheirStepsChangeMeanwhile) {
  ASSERT_TRUE(is_ok(diff()));
  const std::string made = bytes_of(delta);
  std::string damaged = made;
  damaged[damaged.size() - 20] ^= 1;
  int refused = 0, applied = 0;
  for (int at = 1;; ++at) {
    put_bytes(base, a.file());
    put_bytes(delta, made);
    std::filesystem::remove(reverse);
    auto file = os::File::open(env, AT_FDCWD, delta, O_RDWR, 0, delta);
    ASSERT_TRUE(is_ok(file));
    int asked = 0;
    DeltaPatchOptions options;
    options.reverse = reverse;
    options.progress = acts(at, &asked, [&] { EXPECT_TRUE(is_ok(file->write(damaged.data(), damaged.size(), 0))); });
    const auto done = store::patch(env, base, delta, std::move(options));
    if (asked < at) break;
    ASSERT_TRUE(same_bytes(bytes_of(base), done ? b.file() : a.file())) << at;
    (done ? applied : refused) += 1;
    if (!done) continue;
    ASSERT_TRUE(is_ok(patch(reverse))) << at;
    ASSERT_TRUE(same_bytes(bytes_of(base), a.file())) << at;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(applied, 0);
}

// A transaction takes long, and somebody cleans up meanwhile.
TEST_F(DeltasOfElements, AreAppliedOrNotWhenTheirJournalGoesMeanwhile) {
  b.tensors[1].bytes = pattern(10007, 22);  // and one whole
  put_bytes(other, b.file());
  ASSERT_TRUE(is_ok(diff()));
  int applied = 0;
  for (int at = 1;; ++at) {
    put_bytes(base, a.file());
    int asked = 0;
    DeltaPatchOptions options;
    options.reverse = reverse;
    options.progress = [&](uint64_t, uint64_t) {
      if (++asked == at) std::filesystem::remove_all(base + ".st-journal");
      return true;
    };
    auto done = store::patch(env, base, delta, std::move(options));
    if (asked < at) break;
    if (!done) {
      EXPECT_NE(done.error().status, Status::needs_recovery);
    }
    EXPECT_TRUE(same_bytes(bytes_of(base), done ? b.file() : a.file())) << at;
    applied += done.has_value();
  }
  EXPECT_GT(applied, 3);
}

// The same bytes, in another order. A file that comes after the commit has begun replaces what it changes, too.
TEST_F(DeltasOfElements, FollowTheirBaseIntoAFileThatReplacesIt) {
  ASSERT_TRUE(is_ok(diff()));
  auto a_anew = a, b_anew = b;
  for (auto *anew : {&a_anew, &b_anew})
    std::rotate(anew->tensors.begin(), anew->tensors.end() - 1, anew->tensors.end());
  int followed = 0;
  for (int at = 1;; ++at) {
    put_bytes(base, a.file());
    int asked = 0;
    DeltaPatchOptions options;
    options.progress = [&](uint64_t, uint64_t) {
      if (++asked == at) {
        put_bytes(base + ".anew", a_anew.file());
        std::filesystem::rename(base + ".anew", base);
      }
      return true;
    };
    const auto done = store::patch(env, base, delta, std::move(options));
    if (asked < at) break;
    const std::string now = bytes_of(base);
    EXPECT_TRUE(same_bytes(now, a_anew.file()) || (done && same_bytes(now, b_anew.file()))) << at;
    followed += done && now != a_anew.file();
  }
  EXPECT_GT(followed, 0);
}

TEST_F(DeltasOfElements, ArePublishedBesideOtherChanges) {
  b.tensors.erase(b.tensors.begin());
  b.metadata["k"] = "w";
  put_bytes(other, b.file());
  ASSERT_TRUE(is_ok(diff()));
  auto done = patch(delta, reverse);
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->plan.kind, store::CommitPlan::publish);
  EXPECT_EQ(held(base), b);
  ASSERT_TRUE(is_ok(patch(reverse)));
  EXPECT_EQ(held(base), a);
}

class CountedDisk : public SmallDisk {
 public:
  using SmallDisk::SmallDisk;
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
    written += n;
    return SmallDisk::pwrite(fd, buffer, n, offset);
  }
  // It gets room, step by step, until the delta fits. Until then nothing much is written.
  void grow_until_it_fits(const std::string &base, const std::string &delta, bool publish, uint64_t step,
                          uint64_t most) {
    for (;; free_bytes += step) {
      written = 0;
      DeltaPatchOptions options;
      options.publish = publish;
      auto done = store::patch(*this, base, delta, options);
      if (done) return;
      ASSERT_TRUE(fails_with(Status::no_space, done));
      ASSERT_LT(written, most) << free_bytes;
    }
  }
  uint64_t written = 0;
};

// Else the journal would be filled before the commit looks for room.
TEST_F(DeltasOfElements, StageNothingWhereThereIsNoRoomForIt) {
  std::string &w = b.tensors.back().bytes;
  const uint64_t size = w.size();
  const std::string dense = w;
  for (int way = 0; way < 8; ++way) {
    const bool in_every_page = way % 2 == 0, by_option = way / 2 % 2 == 1, shares = way / 4 == 1;
    SharingEnv sharing(env);
    b.metadata["k"] = by_option ? "v" : "w";
    w = dense;
    if (!in_every_page) {
      w = a.tensors.back().bytes;
      w[500000] ^= 1;
    }
    put_bytes(base, a.file());
    put_bytes(other, b.file());
    std::remove(delta.c_str());
    ASSERT_TRUE(is_ok(diff()));
    CountedDisk disk(shares ? sharing : env, dir.path());
    disk.grow_until_it_fits(base, delta, by_option, size / 8, size / 8);
    EXPECT_EQ(held(base), b);
    EXPECT_TRUE(in_every_page || disk.free_bytes < 2 * size);  // what stays needs no room in the journal
  }
}

// By steps alone, which a plan does not know of, each shard is made anew. In one of them there may be other work.
TEST_F(DeltasOfElements, StageNothingWhereThereIsNoRoomForItInShards) {
  constexpr uint64_t size = 1200000;
  const std::string folder = dir / "shards";
  for (const bool other_work : {false, true})
    for (const bool shares : {false, true}) {
      SCOPED_TRACE(text(other_work, shares));
      SharingEnv sharing(env);
      const Holdings first{{u8_tensor("a", 4000, 1), u8_tensor("w1", other_work ? 4000 : size, 2)}, {}};
      const Holdings second{{u8_tensor("w2", size, 3)}, {}};
      std::filesystem::create_directory(folder);
      put_bytes(folder + "/s1.safetensors", first.file());
      put_bytes(folder + "/s2.safetensors", second.file());
      ShardIndex index = ShardIndex::of({"s1.safetensors", "s2.safetensors"}, 0);
      for (const TestTensor &t : first.tensors) index.assign(t.name, "s1.safetensors");
      index.assign("w2", "s2.safetensors");
      put_bytes(index_in(folder), index.spell());
      Holdings to{{first.tensors[0], first.tensors[1], second.tensors[0]}, {}};
      if (other_work) to.tensors[0] = u8_tensor("a", 4000, 11);
      for (size_t i = other_work ? 2 : 1; i < to.tensors.size(); ++i)
        for (size_t at = 0; at < size; at += 1000) to.tensors[i].bytes[at] ^= 1;
      put_bytes(other, to.file());
      std::remove(delta.c_str());
      ASSERT_TRUE(is_ok(store::diff(env, folder, other, delta, {})));
      CountedDisk disk(shares ? sharing : env, dir.path());
      disk.grow_until_it_fits(folder, delta, true, size / 4, size / 8);
      EXPECT_LT(disk.free_bytes, (other_work ? 3 : 5) * size);
      EXPECT_EQ(by_name(holdings_of(bytes_of(folder + "/s2.safetensors"))), (Holdings{{to.tensors[2]}, {}}));
    }
}

// Links to shards lie beside it, and there is room where these are.
TEST_F(DeltasOfElements, AskForNoRoomOnTheStorageOfTheIndexAlone) {
  struct FullBesideTheIndex : SharingEnv {
    FullBesideTheIndex(os::Env &base, ino_t full) : SharingEnv(base), index(full) {}
    int fstatfs(int fd, struct statfs *out) override {
      struct stat s;
      const int r = SharingEnv::fstatfs(fd, out);
      if (::fstat(fd, &s) == 0 && s.st_ino == index) out->f_bavail = out->f_bfree = 0;
      return r;
    }
    const ino_t index;
  };
  const std::string folder = dir / "shards";
  std::filesystem::create_directory(folder);
  put_bytes(folder + "/s.safetensors", a.file());
  ShardIndex index = ShardIndex::of({"s.safetensors"}, 0);
  for (const TestTensor &t : a.tensors) index.assign(t.name, "s.safetensors");
  put_bytes(index_in(folder), index.spell());
  b = a;
  for (size_t i = 0; i < b.tensors.back().bytes.size(); i += 1000) b.tensors.back().bytes[i] ^= 1;
  put_bytes(other, b.file());
  ASSERT_TRUE(is_ok(store::diff(env, folder, other, delta, {})));
  struct stat s;
  ASSERT_EQ(::stat(index_in(folder).c_str(), &s), 0);
  FullBesideTheIndex full(env, s.st_ino);
  DeltaPatchOptions options;
  options.publish = true;
  EXPECT_TRUE(is_ok(store::patch(full, folder, delta, options)));
  EXPECT_EQ(by_name(holdings_of(bytes_of(folder + "/s.safetensors"))), by_name(b));
}

// Blocks of 64 KiB, of which each has pages that change: no more of them than the file has become new.
TEST_F(DeltasOfElements, NeedNoMoreRoomThanTheNewFileTakes) {
  constexpr size_t third_page = 3 * 4096;
  std::string &w = b.tensors.back().bytes;
  w = a.tensors.back().bytes;
  for (size_t i = 0; i < w.size(); i += third_page) w[i] ^= 1;
  put_bytes(other, b.file());
  ASSERT_TRUE(is_ok(diff()));
  SharingEnv sharing(env);
  sharing.told_of_disk = [](auto &s) {
    s.f_bsize = 65536;
    if constexpr (requires { s.f_frsize; }) s.f_frsize = 65536;
  };
  SmallDisk disk(sharing, dir.path());
  disk.free_bytes = 3 * w.size();
  DeltaPatchOptions options;
  options.publish = true;
  EXPECT_TRUE(is_ok(store::patch(disk, base, delta, options)));
  EXPECT_EQ(held(base), b);
}

TEST_F(DeltasOfElements, CanBeStoppedAtEachBlockWhileTheirPagesAreCounted) {
  const auto asked_with = [&](uint64_t blocks) {
    a.tensors.back() = {"w", Dtype::BF16, {blocks, 1 << 19}, pattern(blocks << 20, 5)};
    b = a;
    b.tensors.back().bytes[0] ^= 1;
    put_bytes(base, a.file());
    put_bytes(other, b.file());
    std::remove(delta.c_str());
    EXPECT_TRUE(is_ok(diff()));
    SmallDisk full(env, dir.path());
    size_t asked = 0;
    DeltaPatchOptions options;
    options.publish = true;
    options.progress = [&](uint64_t, uint64_t) { return ++asked > 0; };
    EXPECT_TRUE(fails_with(Status::no_space, store::patch(full, base, delta, std::move(options))));
    return asked;
  };
  const size_t few = asked_with(2);
  EXPECT_GE(asked_with(6), few + 4);
}

TEST_F(DeltasOfElements, LieOnEachOther) {
  const std::string second = dir / "d2.safetensors", third = dir / "c.safetensors";
  Holdings c = b;
  for (size_t i = 1; i < 1100000; i += 5000) c.tensors.back().bytes[i] ^= 4;
  put_bytes(third, c.file());
  ASSERT_TRUE(is_ok(diff()));
  ASSERT_TRUE(is_ok(store::diff(env, other, third, second, {})));
  EXPECT_EQ(held(second).metadata.at("st.delta.version"), "2");
  EXPECT_EQ(seen_through(env, base, {delta, second}), c);
  EXPECT_TRUE(is_ok(store::verify_layers(env, base, {delta, second}, {}, {})));
  ASSERT_TRUE(is_ok(merge({delta, second})));
  EXPECT_EQ(held(merged), c);
  EXPECT_TRUE(fails_with(Status::delta_base, merge({second})));
  EXPECT_TRUE(fails_with(Status::delta_base, merge({second, delta})));
}

TEST_F(DeltasOfElements, AreRefusedByABaseOfWhichAnotherElementDiffers) {
  ASSERT_TRUE(is_ok(diff()));
  a.tensors.back().bytes[1500001] ^= 1;
  put_bytes(base, a.file());
  EXPECT_TRUE(fails_with(Status::delta_base, patch(delta, reverse)));
  EXPECT_TRUE(fails_with(Status::delta_base, merge({delta})));
  EXPECT_TRUE(same_bytes(bytes_of(base), a.file()));
  EXPECT_FALSE(std::filesystem::exists(reverse));
}

// Each file of a merge is locked, which takes a descriptor. No others are open but so many as of a model's shards.
TEST_F(Deltas, OfALongChainNeedFewDescriptors) {
  constexpr size_t n = 200;
  SimEnv disk;
  disk.make_folder("/m", 0755);
  Holdings last{{u8_tensor("steps", 9000, 1)}, {}};
  for (size_t i = 0; i < n; ++i) last.tensors.push_back(u8_tensor(text("t", i), 10, 2));
  const std::string first = last.file();
  std::vector<std::string> deltas;
  for (size_t i = 0; i < n; ++i) {
    disk.add_file("/m/a", last.file());
    last.tensors[0].bytes[40 * i] ^= 1;
    last.tensors[1 + i].bytes[0] ^= 1;
    disk.add_file("/m/b", last.file());
    deltas.push_back(text("/m/d", i));
    ASSERT_TRUE(is_ok(store::diff(disk, "/m/a", "/m/b", deltas.back(), {})));
  }
  disk.add_file("/m/a", first);
  FewDescriptors few(disk);
  few.most = 250;
  ASSERT_TRUE(is_ok(store::merge(few, "/m/a", deltas, "/m/merged", {})));
  EXPECT_EQ(holdings_of(disk.contents("/m/merged")), last);
  few.most = 50;
  EXPECT_EQ(seen_through(few, "/m/a", deltas), last);
  EXPECT_TRUE(is_ok(store::verify_layers(few, "/m/a", deltas, {}, {})));
}

// One of its files is open at a time, and each is opened again for its part of the new file.
TEST_F(Deltas, AreMergedOrNotIfOneCannotBeOpenedAgain) {
  SimEnv disk;
  disk.make_folder("/m", 0755);
  Holdings last = a;
  std::vector<std::string> deltas;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    disk.add_file("/m/a", last.file());
    last.tensors[i] = u8_tensor(last.tensors[i].name, last.tensors[i].bytes.size(), static_cast<unsigned>(50 + i));
    disk.add_file("/m/b", last.file());
    deltas.push_back(text("/m/d", i));
    ASSERT_TRUE(is_ok(store::diff(disk, "/m/a", "/m/b", deltas.back(), {})));
  }
  disk.add_file("/m/a", a.file());
  FewDescriptors few(disk);
  few.most = 15;
  bool all_opened = false;
  size_t failures = 0;
  for (size_t n = 0; !all_opened; ++n) {
    size_t opened = 0;
    few.before = [&](Call call) { return call == Call::openat && opened++ == n ? -EIO : 0; };
    const auto done = store::merge(few, "/m/a", deltas, "/m/merged", {});
    all_opened = opened <= n;
    EXPECT_EQ(done.has_value(), disk.exists("/m/merged")) << n;
    failures += !done;
    if (!done) continue;
    EXPECT_EQ(holdings_of(disk.contents("/m/merged")), last);
    disk.remove("/m/merged");
  }
  EXPECT_GT(failures, 3 * deltas.size());
}

// A disk that has changed so often as something was written to it, and whose clock has gone on since, or has not.
class DatedDisk : public CountingEnv {
 public:
  using CountingEnv::CountingEnv;
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
    ++changed;
    return CountingEnv::pwrite(fd, buffer, n, offset);
  }
  int fstatat(int dir, const char *path, struct stat *out, int flags) override {
    const int r = CountingEnv::fstatat(dir, path, out, flags);
    out->st_mtim = {put_back != 0 ? put_back : changed, 0};
    out->st_ctim = {changed, 0};
    return r;
  }
  int fstatfs(int fd, struct statfs *out) override {
    const int r = CountingEnv::fstatfs(fd, out);
    if (magic != 0) out->f_type = static_cast<decltype(out->f_type)>(magic);
    return r;
  }
  uint64_t unix_time() override { return static_cast<uint64_t>(changed) + (has_gone_on ? 100 : 0); }
  time_t changed = 1, put_back = 0;  // the time of the bytes, as utime sets it
  bool has_gone_on = true;
  uint32_t magic = 0;  // of another filesystem
};

class RefreshedOverlay : public DeltasOfElements {
 protected:
  RefreshedOverlay() {
    sim.make_folder("/m", 0755);
    sim.add_file("/m/a", a.file());
    sim.add_file("/m/b", b.file());
    EXPECT_TRUE(is_ok(store::diff(sim, "/m/a", "/m/b", "/m/d", {})));
  }
  void open() {
    store::OpenOptions options;
    options.deltas = {"/m/d"};
    auto opened = store::open_path(disk, "/m/a", options);
    ASSERT_TRUE(is_ok(opened));
    overlay = std::move(*opened);
    w = view("w");
  }
  const char *view(std::string_view name) const {
    const store::Place p = overlay->catalogue().find(name).value();
    return reinterpret_cast<const char *>(p.member->view(*p.snapshot, p.index).value());
  }
  void update(const std::string &path, const TestTensor &t) {
    store::OpenOptions writing;
    writing.writable = true;
    auto model = store::open_path(disk, path, writing);
    ASSERT_TRUE(is_ok(model));
    auto txn = (*model)->begin({}).value();
    ASSERT_TRUE(is_ok(txn->update(t.name, {static_cast<uint32_t>(t.dtype), t.shape, t.bytes.data(), t.bytes.size()})));
    ASSERT_TRUE(is_ok(txn->commit()));
  }
  // Bytes that the refresh reads.
  uint64_t refreshed() {
    disk.forget();
    EXPECT_TRUE(is_ok(overlay->refresh()));
    EXPECT_EQ(view("w"), w);
    EXPECT_TRUE(same_bytes({w, b.tensors.back().bytes.size()}, b.tensors.back().bytes));
    return disk.read;
  }
  static constexpr uint64_t headers = uint64_t{64} << 10;

  SimEnv sim;
  DatedDisk disk{sim};
  std::unique_ptr<store::Model> overlay;
  const char *w = nullptr;
};

TEST_F(RefreshedOverlay, ReadsHeadersAloneWhereNothingHasChanged) {
  open();
  for (int i = 0; i < 2; ++i) EXPECT_LT(refreshed(), headers);
  const TestTensor other = u8_tensor("a", 4000, 55);
  update("/m/a", other);  // which the delta leaves alone
  EXPECT_GT(refreshed(), a.tensors.back().bytes.size());
  EXPECT_TRUE(same_bytes({view("a"), 4000}, other.bytes));
  for (int i = 0; i < 2; ++i) EXPECT_LT(refreshed(), headers);
}

TEST_F(RefreshedOverlay, ReadsWhatMayHaveBeenChangedAtTheSameTime) {
  disk.has_gone_on = false;
  open();
  EXPECT_GT(refreshed(), a.tensors.back().bytes.size());
  disk.has_gone_on = true;
  EXPECT_GT(refreshed(), a.tensors.back().bytes.size());
  EXPECT_LT(refreshed(), headers);
}

TEST_F(RefreshedOverlay, IsRefusedIfAnElementBelowItWasPatched) {
  for (const bool has_gone_on : {true, false}) {
    disk.has_gone_on = has_gone_on;
    open();
    TestTensor wrong = a.tensors.back();
    wrong.bytes[1500001] ^= 1;
    update("/m/a", wrong);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(fails_with(Status::delta_base, overlay->refresh()));
    EXPECT_EQ(view("w"), w);
    update("/m/a", a.tensors.back());
    refreshed();
  }
}

// So cp -p and unzip -o leave a file.
TEST_F(RefreshedOverlay, IsRefusedAlsoWhereTheTimeOfThePatchWasPutBack) {
  open();
  EXPECT_LT(refreshed(), headers);
  const time_t before = disk.changed;
  TestTensor wrong = a.tensors.back();
  wrong.bytes[1500001] ^= 1;
  update("/m/a", wrong);
  disk.put_back = before;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(fails_with(Status::delta_base, overlay->refresh()));
  update("/m/a", a.tensors.back());
  refreshed();
  EXPECT_LT(refreshed(), headers);
}

TEST_F(RefreshedOverlay, ReadsEachTimeWhereTheFilesAreThoseOfAnotherFilesystem) {
  disk.magic = 0x794C7630;  // overlay
  open();
  EXPECT_GT(refreshed(), a.tensors.back().bytes.size());
}

TEST_F(RefreshedOverlay, TakesTheStepsOfADeltaThatTookAnothersPlace) {
  open();
  Holdings c = b;
  c.tensors.back().bytes[1500001] ^= 1;
  sim.add_file("/m/c", c.file());
  ASSERT_TRUE(is_ok(store::diff(disk, "/m/a", "/m/c", "/m/d", {})));
  ASSERT_TRUE(is_ok(overlay->refresh()));
  EXPECT_TRUE(same_bytes({view("w"), c.tensors.back().bytes.size()}, c.tensors.back().bytes));
}

// What the steps lead to proves the old bytes, too. What comes above them needs no proof of its own; what is replaced
// as a whole, or goes, has no other.
TEST_F(DeltasOfElements, ReadTheirBaseOnceToProveIt) {
  b.tensors[1] = u8_tensor("b", 10007, 22);
  b.tensors.erase(b.tensors.begin());
  SimEnv disk;
  disk.make_folder("/m", 0755);
  disk.add_file("/m/a", a.file());
  disk.add_file("/m/b", b.file());
  ASSERT_TRUE(is_ok(store::diff(disk, "/m/a", "/m/b", "/m/d", {})));
  CountingEnv counting(disk);
  const auto merged_into = [&](const char *to) { return store::merge(counting, "/m/a", {"/m/d"}, to, {}); };
  const auto verified = [&] { return store::verify_layers(counting, "/m/a", {"/m/d"}, {}, {}); };
  const uint64_t w = a.tensors.back().bytes.size();
  ASSERT_TRUE(is_ok(merged_into("/m/c")));
  EXPECT_EQ(holdings_of(disk.contents("/m/c")), b);
  EXPECT_GT(counting.read, w);
  EXPECT_LT(counting.read, w + w / 2);
  counting.forget();
  ASSERT_TRUE(is_ok(verified()));
  EXPECT_LT(counting.read, 2 * w + w / 2);  // all of the base was looked at before

  for (const size_t tensor : {size_t{0}, size_t{1}, size_t{3}}) {  // deleted; replaced; with steps
    Holdings wrong = a;
    wrong.tensors[tensor].bytes[wrong.tensors[tensor].bytes.size() > 4096 ? 5000 : 3000] ^= 1;
    disk.add_file("/m/a", wrong.file());
    EXPECT_TRUE(fails_with(Status::delta_base, merged_into("/m/e"))) << tensor;
    EXPECT_TRUE(fails_with(Status::delta_base, verified())) << tensor;
    EXPECT_FALSE(disk.exists("/m/e"));
  }
}

// What a verification finds sound is applied.
TEST_F(DeltasOfElements, WithOtherHashesOfTheOldBytesAreFound) {
  b.tensors[1] = u8_tensor("b", 10007, 22);
  put_bytes(other, b.file());
  ASSERT_TRUE(is_ok(diff()));
  const Holdings sound = held(delta);
  for (const std::string tensor : {"b", "w"})  // whole; steps
    for (const std::string hash : {"old", "head"}) {
      Holdings damaged = sound;
      std::string &hashes = damaged.metadata["st.delta.hashes"];
      char &digit = hashes[hashes.find("\"" + hash + "\":\"", hashes.find("\"" + tensor + "\":")) + hash.size() + 4];
      digit = digit == '0' ? '1' : '0';
      put_bytes(delta, damaged.file());
      EXPECT_TRUE(fails_with(Status::delta_base, store::verify_layers(env, base, {delta}, {}, {}))) << tensor << hash;
      EXPECT_TRUE(fails_with(Status::delta_base, patch(delta))) << tensor << hash;
    }
  EXPECT_TRUE(same_bytes(bytes_of(base), a.file()));
}

TEST_F(DeltasOfElements, WithOtherStepsAreRefused) {
  ASSERT_TRUE(is_ok(diff()));
  Holdings elsewhere = b;
  elsewhere.tensors.back().bytes[77] ^= 1;
  put_bytes(merged, elsewhere.file());
  const std::string foreign = dir / "f.safetensors";
  ASSERT_TRUE(is_ok(store::diff(env, base, merged, foreign, {})));
  std::filesystem::remove(merged);
  forge(held(foreign).tensors.back().bytes);  // sound, and to another place
  is_refused_everywhere(Status::delta);
  forge("no steps at all");
  is_refused_everywhere(Status::delta);
  forge("");
  is_refused_everywhere(Status::delta);
  EXPECT_TRUE(same_bytes(bytes_of(base), a.file()));
}

TEST_F(DeltasOfElements, ThatWereDamagedAreRefused) {
  ASSERT_TRUE(is_ok(diff()));
  std::string bytes = bytes_of(delta);
  bytes[bytes.size() - 100] ^= 1;
  put_bytes(delta, bytes);
  EXPECT_TRUE(fails_with(Status::delta, patch(delta, reverse)));
  EXPECT_TRUE(fails_with(Status::delta, merge({delta})));
  EXPECT_TRUE(same_bytes(bytes_of(base), a.file()));
}

TEST_F(Deltas, MergeInTheirOrderOnly) {
  const std::string second = dir / "d2.safetensors", third = dir / "c.safetensors";
  Holdings c = b;
  c.tensors[1].bytes[7] ^= 1;
  put_bytes(third, c.file());
  ASSERT_TRUE(is_ok(diff()));
  ASSERT_TRUE(is_ok(store::diff(env, other, third, second, {})));
  EXPECT_TRUE(fails_with(Status::delta_base, merge({second, delta})));
  EXPECT_TRUE(fails_with(Status::delta_base, merge({second})));
  EXPECT_TRUE(fails_with(Status::delta_base, merge({delta, delta})));
  ASSERT_TRUE(is_ok(merge({delta, second})));
  EXPECT_EQ(held(merged), c);
  ASSERT_TRUE(is_ok(merge({})));  // a copy, in the place of the last
  EXPECT_EQ(held(merged), a);
}

TEST_F(Deltas, OverAnotherBaseOfTheSameFormsAreToldFromTheirsByHowItBegins) {
  ASSERT_TRUE(is_ok(diff()));
  store::OpenOptions options;
  options.deltas = {delta};
  EXPECT_TRUE(is_ok(store::open_path(env, base, options)));
  a.tensors[1].bytes[0] ^= 1;
  put_bytes(base, a.file());
  EXPECT_TRUE(fails_with(Status::delta_base, store::open_path(env, base, options)));
}

// On a disk in memory, which needs no time to sync.
TEST_F(Deltas, OfRandomFilesLeadForthAndBackMergeAndLieOver) {
  std::mt19937 random(20261121);
  size_t in_place = 0, published = 0;
  for (int trial = 0; trial < 100 && !HasFailure(); ++trial) {
    SCOPED_TRACE(trial);
    SimEnv disk;
    disk.make_folder("/m", 0755);
    const Holdings from = holdings_of(random_holdings(random).file()), to = random_change(from, random),
                   last = random_change(to, random);
    disk.add_file("/m/a", from.file(random() % 2 * 777));
    disk.add_file("/m/b", to.file(random() % 2 * 777));
    disk.add_file("/m/c", last.file());
    const auto on_disk = [&](const char *path) { return holdings_of(disk.contents(path)); };
    const auto apply = [&](const char *with, const char *reverse_path) {
      DeltaPatchOptions options;
      options.reverse = reverse_path;
      return store::patch(disk, "/m/a", with, std::move(options));
    };
    ASSERT_TRUE(is_ok(store::diff(disk, "/m/a", "/m/b", "/m/ab", {})));
    ASSERT_TRUE(is_ok(store::diff(disk, "/m/b", "/m/c", "/m/bc", {})));
    ASSERT_TRUE(is_ok(store::merge(disk, "/m/a", {"/m/ab", "/m/bc"}, "/m/merged", {})));
    EXPECT_EQ(on_disk("/m/merged"), last);
    EXPECT_EQ(seen_through(disk, "/m/a", {"/m/ab", "/m/bc"}), last);

    auto done = apply("/m/ab", "/m/ba");
    ASSERT_TRUE(is_ok(done));
    (done->plan.kind == store::CommitPlan::publish ? published : in_place) += 1;
    ASSERT_EQ(on_disk("/m/a"), to);
    ASSERT_TRUE(is_ok(apply("/m/bc", "/m/cb")));
    ASSERT_EQ(on_disk("/m/a"), last);
    ASSERT_TRUE(is_ok(apply("/m/cb", "")));
    ASSERT_EQ(on_disk("/m/a"), to);
    ASSERT_TRUE(is_ok(apply("/m/ba", "/m/ab again")));
    ASSERT_EQ(on_disk("/m/a"), from);
    EXPECT_EQ(on_disk("/m/ab again").tensors, on_disk("/m/ab").tensors);
    ASSERT_TRUE(is_ok(apply("/m/ab again", "")));
    ASSERT_EQ(on_disk("/m/a"), to);
  }
  EXPECT_GT(in_place, 20u);
  EXPECT_GT(published, 40u);
}

}  // namespace
}  // namespace st::testing
