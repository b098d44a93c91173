// A writer that dies before its new file has a name leaves a temporary beside no file. The recovery of that name
// removes it.
#include "engine/recover_all.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "delta_scene.h"
#include "engine/deltas.h"
#include "engine/reshape.h"
#include "fault_env.h"
#include "newfile/temporary_file.h"

namespace st::store {
namespace {

using namespace testing;

class RecoverNewName : public ::testing::Test {
 protected:
  static constexpr const char *source = "/models/m.safetensors", *base = "/models/base.safetensors",
                              *made = "/models/new.safetensors";

  static SimEnv fresh_disk() {
    SimEnv disk;
    disk.make_folder("/models");
    disk.add_file(source, Holdings{{u8_tensor("a", 1000, 1)}, {}}.file());
    disk.add_file(base, Holdings{{u8_tensor("a", 1000, 2)}, {}}.file());
    disk.add_file("/models/.m.safetensors.st-tmp-0000000000000001", "of another file");
    return disk;
  }
  // Dead before each call of the writer: recovery leaves the new file, or nothing of it.
  static void check_each_death(const std::function<Result<void>(os::Env &)> &write) {
    SimEnv disk = fresh_disk();
    const auto before = disk.names("/models");
    std::vector<SimDisk> left;
    FaultEnv env(disk);
    env.before = [&](Call) {
      left.push_back(disk.disk());
      return 0;
    };
    ASSERT_TRUE(is_ok(write(env)));
    size_t unnamed = 0;
    for (size_t n = 0; n < left.size(); ++n) {
      SimEnv dead(left[n]);
      if (dead.exists(made)) break;
      const bool is_any = dead.names("/models").size() > before.size();
      std::vector<std::string> told;
      const auto done = recover_all(dead, made, {}, [&](const write::Finding &f) {
        EXPECT_EQ(f.status, Status::ok);
        told.push_back(f.message);
        return true;
      });
      EXPECT_TRUE(is_any ? is_ok(done) : fails_with(Status::no_file, done)) << n;
      EXPECT_EQ(told.size(), is_any ? 1u : 0u) << n;
      EXPECT_EQ(dead.names("/models"), before) << n;
      EXPECT_TRUE(fails_with(Status::no_file, recover_all(dead, made, {}, {}))) << n;
      unnamed += is_any;
    }
    EXPECT_GT(unnamed, 3u);
  }
};

TEST_F(RecoverNewName, OfACopyThatDied) {
  check_each_death([](os::Env &env) { return join(env, source, made, {}); });
}

TEST_F(RecoverNewName, OfADeltaThatDied) {
  check_each_death([](os::Env &env) { return diff(env, base, source, made, {}); });
}

TEST(RecoverNewNames, ALivingWritersStays) {
  TempDir dir;
  os::Env &env = os::Env::posix();
  const std::string path = dir / "new.safetensors";
  auto living = write::TemporaryFile::create(*os::Location::find_new(env, path), 0666);
  ASSERT_TRUE(is_ok(living));
  EXPECT_TRUE(fails_with(Status::no_file, recover_all(env, path, {}, {})));
  EXPECT_EQ(names_in(dir.path()).size(), 1u);
}

// A save replaces the link itself, so its temporary lies beside the link.
TEST(RecoverNewNames, BesideALinkThatLeadsToNothing) {
  for (const char *to : {"elsewhere.safetensors", "no/such/folder.safetensors"}) {
    TempDir dir;
    const std::string path = dir / "new.safetensors";
    std::filesystem::create_symlink(to, path);
    put_bytes(dir / ".new.safetensors.st-tmp-0000000000000001", "half");
    EXPECT_TRUE(is_ok(recover_all(os::Env::posix(), path, {}, {}))) << to;
    EXPECT_EQ(names_in(dir.path()).size(), 1u) << to;
  }
}

TEST(RecoverNewNames, AreToldUntilTheCallerWantsNoMore) {
  TempDir dir;
  const std::string path = dir / "new.safetensors";
  for (const char *digits : {"0000000000000001", "0000000000000002"})
    put_bytes(dir / (std::string(".new.safetensors.st-tmp-") + digits), "half");
  size_t told = 0;
  EXPECT_TRUE(fails_with(Status::cancelled, recover_all(os::Env::posix(), path, {}, [&](const write::Finding &) {
                           ++told;
                           return false;
                         })));
  EXPECT_EQ(told, 1u);
}

}  // namespace
}  // namespace st::store
