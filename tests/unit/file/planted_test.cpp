// A folder of journals that may be planted, where anybody may make files. Readers go on, with a warning. But no
// publish and no durable copy takes bytes from under a change that waits there.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "engine/recover_all.h"
#include "engine/reshape.h"
#include "engine/verify.h"
#include "lock_of_file.h"
#include "store_scene.h"

namespace st::store {
namespace {

using namespace testing;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

class PlantedTest : public testing::StoreScene {
 protected:
  PlantedTest() { ::chmod(dir.path().c_str(), 01777); }
  // Then nobody trusts it, not even its owner.
  void distrust() const { ASSERT_EQ(::chmod(folder().c_str(), 0702), 0); }
  // One that is committed, amid its writes.
  void leave_torn() {
    journal_ = leave({{a_at, new_a}}, true);
    poke(path, a_at, new_a.substr(0, 2048 - a_at % 512));
    distrust();
  }
  Result<void> publish() { return publish(env); }
  Result<void> publish(os::Env &with) {
    told.clear();
    OpenOptions options = writable();
    options.log = log();
    auto c = open(with, std::move(options));
    auto t = begin(*c);
    ST_TRY(t->set_metadata("k", "v"));
    return t->commit();
  }
  // It may use the file by another handle.
  Log log() {
    return [this](LogLevel, const std::string &m) {
      told += m;
      const LockOfFile free(path);
    };
  }
  Result<void> copy() const { return join(env, path, dir / "copy.safetensors", {}); }
  void expect_all_go_on() {
    EXPECT_TRUE(is_ok(copy()));
    EXPECT_TRUE(is_ok(publish()));
    EXPECT_THAT(told, HasSubstr("passed over"));
  }

  std::string journal_, told;
};

// Once it has another inode, nothing that waits could be applied to it.
TEST_F(PlantedTest, APublishIsKeptOutByAChangeThatWaits) {
  leave_torn();
  const std::string torn = bytes_of(path);
  auto c = open();
  const auto patched = update(*c, "b", new_b);
  ASSERT_TRUE(fails_with(Status::journal, patched));
  const auto published = publish();
  ASSERT_TRUE(fails_with(Status::journal, published));
  EXPECT_EQ(published.error().message, patched.error().message);
  EXPECT_TRUE(same_bytes(bytes_of(path), torn));
  c.reset();
  ASSERT_EQ(::chmod(folder().c_str(), 0755), 0);
  EXPECT_EQ(recover().value().applied, 1u);
  EXPECT_TRUE(is_ok(publish()));
  EXPECT_TRUE(same_bytes(seen(*open(), "a"), new_a));
}

TEST_F(PlantedTest, SoIsADurableCopy) {
  leave_torn();
  EXPECT_TRUE(fails_with(Status::journal, copy()));
  EXPECT_FALSE(fs::exists(dir / "copy.safetensors"));
}

// It depends on no byte of the old file.
TEST_F(PlantedTest, ASaveOfAWholeFileGoesOn) {
  leave_torn();
  const std::string source = dir / "source.safetensors";
  put_bytes(source, file_of({u8_tensor("z", 10, 1)}));
  EXPECT_TRUE(is_ok(join(env, source, path, {.log = log()})));
  EXPECT_TRUE(open()->snapshot().header.index.find("z"));
  EXPECT_THAT(told, HasSubstr("passed over"));
}

// Nothing is locked then, either.
TEST_F(PlantedTest, WhatWasFoundIsToldWhereMemoryRunsOut) {
  fs::create_directory(folder());
  distrust();
  const std::string source = dir / "source.safetensors";
  put_bytes(source, file_of({u8_tensor("z", 10, 1)}));
  FaultEnv starved(env);
  bool is_starved = false;
  starved.before = [&](Call call) {
    if (call != Call::renameat) return 0;
    is_starved = true;
    told.clear();
    throw std::bad_alloc();
  };
  for (const auto &change :
       {std::function<void()>([&] { static_cast<void>(publish(starved)); }),
        std::function<void()>([&] { static_cast<void>(join(starved, source, path, {.log = log()})); })}) {
    is_starved = false;
    EXPECT_THROW(change(), std::bad_alloc);
    EXPECT_TRUE(is_starved);
    EXPECT_THAT(told, HasSubstr("passed over"));
  }
}

TEST_F(PlantedTest, WhereNothingWaitsAllGoOn) {
  fs::create_directory(folder());
  distrust();
  expect_all_go_on();
  put_bytes(folder() + "/aa.bad", "evidence");
  put_bytes(folder() + "/bb", std::string(512, '\0'));
  expect_all_go_on();
  fs::remove_all(folder());
  fs::create_symlink(path, folder());
  expect_all_go_on();
  fs::remove(folder());
  put_bytes(folder(), "no folder");
  expect_all_go_on();
}

// Its user closes the file between two looks at it.
TEST_F(PlantedTest, OneThatGoesMeanwhileKeepsNobodyOut) {
  testing::FaultEnv with(os::Env::posix());
  int left = 0, opened = 1;
  with.before_open = [&](std::string_view name, int) {
    if (name.ends_with(write::folder_suffix) && left-- == 0) fs::remove_all(folder());
    return 0;
  };
  for (int at = 0; at < opened; ++at) {
    fs::create_directory(folder());
    distrust();
    left = at;
    EXPECT_TRUE(is_ok(join(with, path, dir / "copy.safetensors", {}))) << at;
    EXPECT_TRUE(is_ok(publish(with))) << at;
    EXPECT_TRUE(is_ok(recover_all(with, path, {}, [](const write::Finding &f) {
      EXPECT_NE(f.level, LogLevel::error) << f.message;
      return true;
    }))) << at;
    if (left >= 0) break;
    ++opened;
  }
  EXPECT_GT(opened, 3);
}

// A publish has locked all bytes: the holder of a record is dying, or syncs later. A reader takes it for a living one.
TEST_F(PlantedTest, ARecordThatIsHeldKeepsOutAPublishAlone) {
  auto living = make_journal({{a_at, new_a}}, true);
  distrust();
  EXPECT_TRUE(is_ok(copy()));
  EXPECT_TRUE(fails_with(Status::journal, publish()));
  living.reset();
  EXPECT_TRUE(fails_with(Status::journal, copy()));
}

TEST_F(PlantedTest, OneThatLetsNobodyInMayHoldAnything) {
  fs::create_directory(folder());
  if (::chown(folder().c_str(), testing::somebody, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "only root can give a folder away";
  ::chmod(folder().c_str(), 0700);
  ::chmod(path.c_str(), 0666);
  const testing::AsUser user(testing::somebody + 1);
  EXPECT_FALSE(copy());
  const auto refused = publish();
  EXPECT_TRUE(fails_with(Status::permission, refused));
  EXPECT_THAT(refused.error().message, HasSubstr("user 4242 finishes it"));
}

TEST_F(PlantedTest, AVerificationWarnsOnlyOfWhatMayWait) {
  const auto warnings = [&] {
    std::string all;
    EXPECT_TRUE(is_ok(verify(env, path, {}, [&](const Finding &f) {
      if (f.severity == Severity::warning) all += f.message;
      return true;
    })));
    return all;
  };
  const std::string journal = leave({{a_at, new_a}}, true);
  distrust();
  EXPECT_THAT(warnings(), HasSubstr("passed over"));
  if (::chmod(folder().c_str(), 0755) != 0 || ::chown(folder().c_str(), testing::somebody, 0) != 0)
    GTEST_SKIP() << "only root can give a folder away";
  EXPECT_THAT(warnings(), HasSubstr("passed over"));
  poke(journal, 0, std::string(512, '\0'));
  EXPECT_EQ(warnings(), "");
}

}  // namespace
}  // namespace st::store
