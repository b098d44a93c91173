// A new file under a name whose file was removed, while the journals of that one stayed.
#include <unistd.h>

#include <filesystem>

#include "crash_scene.h"
#include "fault_env.h"
#include "file/replace_file.h"

namespace st::write {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class Vanished : public testing::CrashScene {
 protected:
  // Gives the name to a new file of these bytes.
  Result<void> save(const std::string &bytes) { return save(env, bytes); }
  Result<void> save(os::Env &by, const std::string &bytes) {
    ST_TRY(const auto at, os::Location::find(by, path));
    ST_TRY(auto made, TemporaryFile::create(at, 0666));
    ST_TRY(made->file().write(bytes.data(), bytes.size(), 0));
    return replace_file(at, made, mode_of_new, 0, {}, [this](LogLevel, const std::string &m) { logged += m; });
  }
  // No journal changes what was saved.
  void expect_saved(const std::string &bytes) {
    auto r = recover();
    ASSERT_TRUE(is_ok(r));
    EXPECT_EQ(r->applied + r->undone + r->aside, 0u);
    EXPECT_TRUE(same_bytes(bytes_of(path), bytes));
  }

  const std::vector<Change> changes = {{a_at, pattern(4000, 11)}, {c_at, pattern(3000, 13)}};
  // As recovery would take it for its own, whatever its inode.
  const std::string half = with({changes[0]});
  std::string logged;
};

TEST_F(Vanished, ItsJournalIsMovedAside) {
  for (const uint64_t kind : {uint64_t{0}, undo_record}) {
    put_bytes(path, old);
    flags = kind;
    const std::string journal = leave(changes, true);
    fs::remove(path);
    ASSERT_TRUE(is_ok(save(half)));
    EXPECT_TRUE(fs::exists(journal + ".bad"));
    EXPECT_NE(logged.find("its file is gone; it was moved aside to"), std::string::npos) << logged;
    expect_saved(half);
  }
}

TEST_F(Vanished, WhatWasNotCommittedIsDropped) {
  ASSERT_NE(leave(changes, false), "");
  fs::remove(path);
  ASSERT_TRUE(is_ok(save(half)));
  EXPECT_FALSE(fs::exists(folder()));
  EXPECT_EQ(logged, "");
  expect_saved(half);
}

TEST_F(Vanished, AJournalThatIsKeptForLaterStays) {
  const auto kept = make_journal(changes, false);
  fs::remove(path);
  ASSERT_TRUE(is_ok(save(half)));
  EXPECT_TRUE(fs::exists(folder() + "/" + kept->name()));
  expect_saved(half);
}

TEST_F(Vanished, AFolderOfAnotherUserInWhichNothingWaitsKeepsNobodyOut) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  for (const bool waits : {false, true}) {
    put_bytes(path, old);
    const std::string journal = leave(changes, waits);
    fs::remove(path);
    ASSERT_EQ(::chown(folder().c_str(), 4242, 4242), 0);
    const auto saved = save(half);
    EXPECT_TRUE(waits ? fails_with(Status::journal, saved) : is_ok(saved));
    EXPECT_EQ(fs::exists(path), !waits);
    EXPECT_TRUE(fs::exists(journal));
    ASSERT_EQ(::chown(folder().c_str(), 0, 0), 0);
    fs::remove_all(folder());
  }
}

TEST_F(Vanished, AWriterThatIsAtItIsWaitedFor) {
  auto alive = make_journal(changes, true);
  const std::string journal = folder() + "/" + alive->name();
  fs::rename(path, dir / "moved");
  EXPECT_TRUE(fails_with(Status::busy, save(half)));
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(fs::exists(journal));
  alive.reset();
  ASSERT_TRUE(is_ok(save(half)));
  EXPECT_TRUE(fs::exists(journal + ".bad"));
  expect_saved(half);
}

// The next save goes on from there.
TEST_F(Vanished, WhateverCallFailsNoJournalMeetsANewFile) {
  for (const bool committed : {false, true}) {
    bool fails = true;
    for (size_t n = 0; fails; ++n) {
      SCOPED_TRACE(text(committed ? "committed" : "staged", ", call ", n));
      put_bytes(path, old);
      leave(changes, committed);
      fs::remove(path);
      FaultEnv faulty(env);
      size_t calls = 0;
      faulty.before = [&](Call call) { return call != Call::close && calls++ == n ? -EIO : 0; };
      const auto first = save(faulty, half);
      fails = calls > n;
      ASSERT_TRUE(first || fails);
      if (fs::exists(path)) {
        ASSERT_NO_FATAL_FAILURE(expect_saved(half));
        fs::remove(path);
      }
      ASSERT_TRUE(is_ok(save(half)));
      ASSERT_NO_FATAL_FAILURE(expect_saved(half));
      fs::remove_all(folder());
    }
  }
}

}  // namespace
}  // namespace st::write
