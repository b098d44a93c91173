// A process on NFS dies as a file of a commit on several shards takes the name of another: no file has that name.
#include <algorithm>
#include <filesystem>

#include "clock_env.h"
#include "engine/open.h"
#include "engine/recover_all.h"
#include "journal/super_recover.h"
#include "model/model.h"
#include "nfs_env.h"
#include "os/rename_over.h"
#include "shards_scene.h"
#include "without_syncs.h"

namespace st::store {
namespace {

using namespace testing;
namespace fs = std::filesystem;

using NfsHost = testing::WithoutSyncs<testing::NfsEnv>;  // no power is cut here

class NfsShards : public testing::ShardsScene {
 protected:
  static std::unique_ptr<Model> open(os::Env &host, const std::string &path, bool writes = true) {
    OpenOptions options;
    options.writable = writes;
    auto opened = open_path(host, path, options);
    EXPECT_TRUE(is_ok(opened));
    return opened ? std::move(*opened) : nullptr;
  }
  void put_anew() const { put_checkpoint_anew(ckpt, index); }
  // Both shards and the index get new files.
  Result<void> change(Model &model) const {
    ST_TRY(auto begun, model.begin({}));
    ST_TRY(begun->update("a", u8(new_a)));
    ST_TRY(begun->update("c", u8(new_c)));
    ST_TRY(begun->rename("b", "x"));
    return begun->commit();
  }
  // At the n-th file of the commit. False: there was none.
  bool die_at(int n) const {
    NfsHost host(os::Env::posix());
    const auto model = open(host, index);
    EXPECT_EQ(bytes(*model, "a") == new_a || bytes(*model, "c") == new_c, false);
    host.before = [&, left = n](Call call) mutable {
      if (call == Call::renameat && left-- == 0) host.dies_amid_rename = true;
      return 0;
    };
    const auto done = change(*model);
    EXPECT_EQ(done.has_value(), !host.is_dead());
    host.end();
    return host.is_dead();
  }
  size_t files() const {
    const fs::directory_iterator all(ckpt);
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

  TempDir dir;
  const std::string ckpt = dir / "ckpt", index = ckpt + "/model.safetensors.index.json";
  const std::string new_a = pattern(4000, 71), new_c = pattern(5000, 73);
};

TEST_F(NfsShards, ACommitThatDiesAmidARenameIsFinished) {
  for (const char *how : {"open to read", "open to write", "recover"}) {
    int n = 0;
    for (;; ++n) {
      put_anew();
      if (!die_at(n)) break;
      NfsHost host(os::Env::posix());
      const auto recovered = *how == 'r' ? recover_all(host, index, {default_lock_timeout_ms}, {}) : write::Recovered{};
      ASSERT_TRUE(is_ok(recovered)) << n;
      const auto model = open(host, index, how != std::string_view("open to read"));
      ASSERT_NE(model, nullptr) << how << " " << n;
      EXPECT_EQ(bytes(*model, "a"), new_a) << how << " " << n;
      EXPECT_EQ(bytes(*model, "c"), new_c) << how << " " << n;
      EXPECT_EQ(files(), 3u) << how << " " << n;
    }
    EXPECT_GE(n, 3) << how;
  }
}

// Somebody gives the index a new file, and lives.
TEST_F(NfsShards, ALookAtAnIndexAmidARenameWaitsAsLongAsItsCaller) {
  for (int n = 0; put_anew(), die_at(n) && fs::exists(index);) ++n;
  ASSERT_FALSE(fs::exists(index));
  std::string second;
  for (const auto &entry : fs::directory_iterator(ckpt))
    if (const std::string name = entry.path().filename(); os::had_name(name) == fs::path(index).filename())
      second = entry.path();
  const auto lives = os::File::open(os::Env::posix(), AT_FDCWD, second, O_RDWR, 0, second);
  ASSERT_TRUE(is_ok(lives));
  const auto lock = os::RangeLock::acquire(*lives, {os::whole_file(true)}, {});
  ASSERT_TRUE(is_ok(lock));
  ClockEnv clock(os::Env::posix());
  NfsHost host(clock);
  const auto folder = os::Directory::find(host, ckpt);
  ASSERT_TRUE(is_ok(folder));
  const os::Location at(*folder, fs::path(index).filename());
  EXPECT_TRUE(fails_with(Status::busy, write::is_decided(at, {})));
  EXPECT_TRUE(fails_with(Status::busy, write::is_left_half_done(at, {})));
  EXPECT_EQ(clock.sleeps, 0u);
}

TEST_F(NfsShards, AShardThatWasAmidARenameIsThere) {
  dir.may_hold_temporaries();  // the next publish removes it
  put_anew();
  {
    NfsHost host(os::Env::posix());
    const auto shard = open(host, ckpt + "/m-1.safetensors");
    host.dies_amid_rename = true;
    auto begun = shard->begin({.publish = true});
    ASSERT_TRUE(is_ok(begun) && is_ok((*begun)->update("a", u8(new_a))));
    EXPECT_FALSE((*begun)->commit());
    host.end();
  }
  ASSERT_FALSE(fs::exists(ckpt + "/m-1.safetensors"));
  NfsHost host(os::Env::posix());
  const auto model = open(host, index, false);
  ASSERT_NE(model, nullptr);
  EXPECT_NE(bytes(*model, "a"), new_a);
  EXPECT_TRUE(fs::exists(ckpt + "/m-1.safetensors"));
}

}  // namespace
}  // namespace st::store
