// A folder that is moved, exchanged or linked to while a handle is open: a change goes to where the path leads, or
// nowhere; never to a folder that it leads to no more, and never through a link that was put in its place.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "bound.h"
#include "folder_scene.h"
#include "two_devices_env.h"

namespace st::store {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using testing::Call;

struct Kind {
  const char *name, *file;
  bool publish;
};
void PrintTo(const Kind &kind, std::ostream *out) {
  *out << kind.name;
}

class MovedFolder : public testing::FolderScene, public ::testing::WithParamInterface<Kind> {
 protected:
  std::string path() const { return ckpt + "/" + GetParam().file; }
};

TEST_P(MovedFolder, ACommitIntoItIsRefused) {
  for (const bool another_is_there : {false, true}) {
    SCOPED_TRACE(another_is_there ? "another folder is there" : "nothing is there");
    auto c = open(os::Env::posix(), path());
    ASSERT_TRUE(is_ok(c));
    auto t = staged(**c, GetParam().publish);
    ASSERT_TRUE(is_ok(t));
    const std::string moved = dir / "ckpt.old";
    fs::rename(ckpt, moved);
    if (another_is_there) {
      fs::create_directory(ckpt);
      fill(ckpt);
    }
    EXPECT_TRUE(fails_with(Status::file_changed, (*t)->commit()));
    EXPECT_TRUE(fails_with(Status::file_changed, (*c)->refresh()));
    t->reset();
    c->reset();
    if (!another_is_there) fs::create_directory(ckpt), fill(ckpt);
    EXPECT_EQ(differences(ckpt, moved), "");
    fs::remove_all(moved);
  }
}

TEST_P(MovedFolder, ALinkOnTheWayThatLeadsElsewhereByNowIsNoticed) {
  fs::create_directory(dir / "other");
  fill(dir / "other");
  fs::create_directory_symlink("ckpt", dir / "current");
  auto c = open(os::Env::posix(), dir / "current/" + GetParam().file);
  ASSERT_TRUE(is_ok(c));
  auto t = staged(**c, GetParam().publish);
  ASSERT_TRUE(is_ok(t));
  fs::remove(dir / "current");
  fs::create_directory_symlink("other", dir / "current");
  EXPECT_TRUE(fails_with(Status::file_changed, (*t)->commit()));
  t->reset();
  c->reset();
  EXPECT_EQ(differences(ckpt, dir / "other"), "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, MovedFolder,
                         ::testing::Values(Kind{"Patch", "model.safetensors", false},
                                           Kind{"Publish", "model.safetensors", true},
                                           Kind{"PatchShards", "model.safetensors.index.json", false},
                                           Kind{"PublishShards", "model.safetensors.index.json", true}),
                         [](const auto &p) { return p.param.name; });

class Moved : public testing::FolderScene {
 protected:
  const std::string model = ckpt + "/model.safetensors";
};

TEST_F(Moved, AChangeOfOneShardIsRefused) {
  auto c = open(os::Env::posix(), ckpt);
  ASSERT_TRUE(is_ok(c));
  auto t = (*c)->begin({});
  ASSERT_TRUE(is_ok(t));
  const uint64_t n = new_a.size();
  ASSERT_TRUE(is_ok((*t)->update("a", u8(new_a, n))));
  fs::rename(ckpt, dir / "ckpt.old");
  EXPECT_TRUE(fails_with(Status::file_changed, (*t)->commit()));
}

TEST_F(Moved, ASaveIntoItIsRefused) {
  for (const std::string name : {"model.safetensors", "new.safetensors"}) {
    const std::string bytes(10, 'x');
    auto writer =
        write::Writer::open(os::Env::posix(), ckpt + "/" + name, {{"x", Dtype::U8, {10}, 10, nullptr}}, {}, {});
    ASSERT_TRUE(is_ok(writer));
    ASSERT_TRUE(is_ok((*writer)->add("x", bytes.data(), bytes.size())));
    const auto before = bytes_of(model);
    fs::rename(ckpt, dir / "ckpt.old");
    EXPECT_TRUE(fails_with(Status::file_changed, (*writer)->finish())) << name;
    writer->reset();
    fs::rename(dir / "ckpt.old", ckpt);
    EXPECT_TRUE(same_bytes(bytes_of(model), before));
    EXPECT_FALSE(fs::exists(ckpt + "/new.safetensors"));
  }
}

// While new files are built, which may take minutes.
TEST_F(Moved, APublishLooksOnceMoreBeforeItTakesTheName) {
  for (const std::string file : {"model.safetensors", "model.safetensors.index.json"}) {
    FaultEnv env(os::Env::posix());
    auto c = open(env, ckpt + "/" + file);
    ASSERT_TRUE(is_ok(c));
    auto t = staged(**c, true);
    ASSERT_TRUE(is_ok(t));
    env.before = [&](Call call) {
      if (call == Call::fchmod && fs::exists(ckpt)) fs::rename(ckpt, dir / "ckpt.old");
      return 0;
    };
    EXPECT_TRUE(fails_with(Status::file_changed, (*t)->commit())) << file;
    env.before = nullptr;
    t->reset();
    c->reset();
    fs::create_directory(ckpt);
    fill(ckpt);
    EXPECT_EQ(differences(ckpt, dir / "ckpt.old"), "");
    fs::remove_all(dir / "ckpt.old");
  }
}

TEST_F(Moved, APublishTakesNothingsNameButThatOfTheFileThatItLocked) {
  for (const std::string file : {"model.safetensors", "model.safetensors.index.json"}) {
    FaultEnv env(os::Env::posix());
    auto c = open(env, ckpt + "/" + file);
    ASSERT_TRUE(is_ok(c));
    auto t = staged(**c, true);
    ASSERT_TRUE(is_ok(t));
    put_bytes(ckpt + "/fresh", bytes_of(ckpt + "/" + file) + " ");
    env.before = [&](Call call) {
      if (call == Call::fchmod && fs::exists(ckpt + "/fresh")) fs::rename(ckpt + "/fresh", ckpt + "/" + file);
      return 0;
    };
    EXPECT_TRUE(fails_with(Status::file_changed, (*t)->commit())) << file;
    EXPECT_TRUE(bytes_of(ckpt + "/" + file).ends_with(" "));
  }
}

TEST_F(Moved, AFileThatIsMerelyReplacedIsFollowed) {
  auto c = open(os::Env::posix(), model);
  ASSERT_TRUE(is_ok(c));
  auto t = staged(**c, false);
  ASSERT_TRUE(is_ok(t));
  put_bytes(ckpt + "/fresh", bytes_of(model));
  fs::rename(ckpt + "/fresh", model);
  ASSERT_TRUE(is_ok((*t)->commit()));
  EXPECT_TRUE(same_bytes(tensor(model, "a"), new_a));
}

TEST_F(Moved, AFileWhosePlaceALinkTookIsNotFollowed) {
  auto c = open(os::Env::posix(), model);
  ASSERT_TRUE(is_ok(c));
  auto t = staged(**c, false);
  ASSERT_TRUE(is_ok(t));
  fs::rename(model, dir / "elsewhere");
  fs::create_symlink(dir / "elsewhere", model);
  const auto before = bytes_of(dir / "elsewhere");
  EXPECT_TRUE(fails_with(Status::file_changed, (*t)->commit()));
  EXPECT_TRUE(same_bytes(bytes_of(dir / "elsewhere"), before));
}

TEST_F(Moved, ARelativePathMeansTheSameAfterTheWorkingFolderChanged) {
  const fs::path here = fs::current_path();
  fs::current_path(ckpt);
  auto c = open(os::Env::posix(), "model.safetensors");
  fs::current_path(here);
  ASSERT_TRUE(is_ok(c));
  auto t = staged(**c, true);
  ASSERT_TRUE(is_ok(t));
  ASSERT_TRUE(is_ok((*t)->commit()));
  EXPECT_TRUE(same_bytes(tensor(model, "a"), new_a));
}

TEST_F(Moved, AFolderThatMayOnlyBeSearchedIsReadFrom) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  fs::permissions(dir.path(), static_cast<fs::perms>(0755));
  fs::permissions(ckpt, static_cast<fs::perms>(0711));
  ASSERT_EQ(::seteuid(65534), 0);
  const std::string seen = tensor(model, "a");
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_TRUE(same_bytes(seen, testing::pattern(4000, 1)));
}

// ---- a link takes the folder's place before any system call, and goes again after one

class Exchanged : public testing::FolderScene {
 protected:
  using Operation = std::function<void(os::Env &)>;

  Exchanged() {
    for (const char *name : {"elsewhere", "plain"}) {
      fs::create_directory(dir / name);
      put_bytes(dir / (std::string(name) + "/model.safetensors"), "not to be touched");
      put_bytes(dir / (std::string(name) + "/" + first), "not to be touched");
    }
    fs::create_directory_symlink("elsewhere", dir / "link");
  }
  void exchange() const {
    ASSERT_EQ(::renameat2(AT_FDCWD, ckpt.c_str(), AT_FDCWD, (dir / "link").c_str(), RENAME_EXCHANGE), 0);
  }
  // `operation` once for each of its calls, with the link there from that call on, and with it there for that call
  // alone. Exchanging begins when the folder was opened for the first time: what a path led to until then is nobody's
  // fault.
  void try_all(const Operation &prepare, const Operation &operation) {
    for (const bool stays : {false, true}) {
      size_t n = 0;
      for (bool reached = true; reached; n += every()) {
        ASSERT_LT(n, 5000u);
        prepare(os::Env::posix());
        reached = once(operation, n, stays);
        ASSERT_EQ(differences(dir / "elsewhere", dir / "plain"), "") << "call " << n << (stays ? ", for good" : "");
        for (const std::string &name : testing::names_in(ckpt)) fs::remove_all(ckpt + "/" + name);
        fill(ckpt);
      }
      EXPECT_GT(n, 20u);
    }
  }
  // By a patch, and by a publish.
  void try_changes(const std::string &path) {
    for (const bool publish : {false, true})
      try_all([](os::Env &) {},
              [&](os::Env &env) {
                auto c = open(env, path);
                if (!c) return;
                auto t = staged(**c, publish);
                if (t) static_cast<void>((*t)->commit());
              });
  }

 private:
  // A prime share of the calls; ST_EXCHANGE_EVERY=1 takes each.
  static size_t every() {
    if (const char *n = std::getenv("ST_EXCHANGE_EVERY")) return std::strtoul(n, nullptr, 10);
    return testing::small_bound() ? 37 : 13;
  }

  class Env : public FaultEnv {
   public:
    explicit Env(std::string folder) : FaultEnv(os::Env::posix()), folder_(std::move(folder)) {}
    int openat(int at, const char *name, int flags, mode_t mode) override {
      return noted(name, FaultEnv::openat(at, name, flags, mode));
    }
    int openat_without_links(int at, const char *name, int flags) override {
      return noted(name, FaultEnv::openat_without_links(at, name, flags));
    }
    bool began = false;

   private:
    int noted(const std::string &name, int fd) {
      began |= fd >= 0 && (name == folder_ || name == fs::path(folder_).filename());
      return fd;
    }
    const std::string folder_;
  };

  bool once(const Operation &operation, size_t n, bool stays) {
    Env env(ckpt);
    size_t calls = 0;
    bool linked = false, reached = false;
    env.before = [&](Call) {
      if (!env.began) return 0;
      const size_t now = calls++;
      if (now == n) reached = true;
      if (now == n || (linked && !stays)) {
        exchange();
        linked = !linked;
      }
      return 0;
    };
    operation(env);
    env.before = nullptr;
    if (linked) exchange();
    return reached;
  }
};

TEST_F(Exchanged, WhileAFileIsPatchedOrPublished) {
  try_changes(ckpt + "/model.safetensors");
}

TEST_F(Exchanged, WhileShardsAreChanged) {
  try_changes(ckpt + "/model.safetensors.index.json");
}

TEST_F(Exchanged, WhileAFileIsSaved) {
  const std::string bytes(10, 'x');
  for (const char *name : {"/model.safetensors", "/new.safetensors"})
    try_all([](os::Env &) {},
            [&](os::Env &env) {
              static_cast<void>(write::save(env, ckpt + name, {{"x", Dtype::U8, {10}, 10, bytes.data()}}, {}, {}));
            });
}

TEST_F(Exchanged, WhileItIsRecovered) {
  for (const char *name : {"/model.safetensors", "/model.safetensors.index.json"})
    try_all(
        [&](os::Env &) {
          testing::TwoDevicesEnv dying(os::Env::posix());
          auto c = open(dying, ckpt + name);
          ASSERT_TRUE(is_ok(c));
          auto t = staged(**c, false);
          ASSERT_TRUE(is_ok(t));
          size_t syncs = 0;  // the last steps fail: decided, and not done
          dying.before = [&](Call call) { return call == Call::fdatasync && ++syncs > 3 ? -EIO : 0; };
          EXPECT_FALSE((*t)->commit());
        },
        [&](os::Env &env) {
          static_cast<void>(recover_all(env, ckpt + name, {0, nullptr, nullptr}, {}));
        });
}

TEST_F(Exchanged, WhileItIsReshardedInto) {
  const std::string source = dir / "source.safetensors";
  fs::copy_file(ckpt + "/model.safetensors", source);
  try_all([](os::Env &) {}, [&](os::Env &env) { static_cast<void>(reshard(env, source, ckpt + "/parts", 4500, {})); });
}

TEST_F(Exchanged, WhileADeltaIsApplied) {
  const std::string delta = dir / "delta.safetensors", target = dir / "target.safetensors";
  put_bytes(target, testing::file_of(std::vector{testing::u8_tensor("a", 4000, 11), testing::u8_tensor("b", 5000, 2),
                                                 testing::u8_tensor("c", 10, 3)}));
  ASSERT_TRUE(is_ok(diff(os::Env::posix(), ckpt + "/model.safetensors", target, delta, {})));
  for (const char *name : {"/model.safetensors", "/model.safetensors.index.json"})
    try_all([](os::Env &) {}, [&](os::Env &env) { static_cast<void>(patch(env, ckpt + name, delta, {})); });
}

}  // namespace
}  // namespace st::store
