// The folder beside a file where its journals lie: which users it trusts, what it
// keeps for the next transaction, and that it goes when the handle does.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#ifdef __linux__
#include <sys/xattr.h>
#endif

#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <utility>

#include "crash_scene.h"
#include "fault_env.h"
#include "keeps_open_files_env.h"
#include "located.h"
#include "read_only_env.h"

namespace st::write {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class FolderTest : public testing::CrashScene {
 protected:
  struct stat data() const {
    struct stat s = {};
    ::stat(path.c_str(), &s);
    return s;
  }
  Result<std::optional<Folder>> open() {
    logged.clear();
    return Folder::open(testing::located(env, path), data(),
                        [this](LogLevel, const std::string &m) { logged.push_back(m); });
  }
  static mode_t mode_of(const std::string &p) {
    struct stat s = {};
    ::lstat(p.c_str(), &s);
    return s.st_mode & 0777;
  }
  std::vector<std::string> logged;
};

TEST(Trust, IsNotInWhatStrangersMayHaveMade) {
  auto made = [](uid_t owner, mode_t mode) {
    struct stat s = {};
    s.st_uid = owner;
    s.st_mode = mode;
    return s;
  };
  const struct stat data = made(1000, 0644);
  EXPECT_TRUE(trust(made(1000, 0700), data, 2000).is_good());  // the file's owner
  EXPECT_TRUE(trust(made(2000, 0700), data, 2000).is_good());  // this user
  EXPECT_TRUE(trust(made(0, 0755), data, 2000).is_good());     // root
  EXPECT_FALSE(trust(made(3000, 0700), data, 2000).is_good());
  EXPECT_FALSE(trust(made(1000, 0707), data, 2000).is_good());
  EXPECT_FALSE(trust(made(2000, 0702), data, 2000).is_good());
  EXPECT_FALSE(trust(made(3000, 0700), data, 0).is_good());  // root trusts no stranger either
}

TEST_F(FolderTest, IsNotThereUntilItIsMade) {
  auto none = open();
  ASSERT_TRUE(is_ok(none));
  EXPECT_FALSE(none->has_value());
  ASSERT_TRUE(is_ok(Folder::create(testing::located(env, path), data())));
  auto some = open();
  ASSERT_TRUE(is_ok(some));
  ASSERT_TRUE(some->has_value());
  EXPECT_TRUE((*some)->journals().value().empty());
  ASSERT_TRUE(is_ok(Folder::create(testing::located(env, path), data())));  // it may be there already
}

TEST_F(FolderTest, IsAsOpenToReadersAsTheFile) {
  const mode_t before = ::umask(022);
  for (const auto &[file_mode, folder_mode] : {std::pair<mode_t, mode_t>{0644, 0755}, {0600, 0700}}) {
    ::chmod(path.c_str(), file_mode);
    ASSERT_TRUE(is_ok(Folder::create(testing::located(env, path), data())));
    EXPECT_EQ(mode_of(folder()), folder_mode);
    fs::remove(folder());
  }
  ::umask(before);
}

// Between its making and the right to read it.
TEST_F(FolderTest, OneThatIsBeingMadeIsWaitedForByTheReadersOfTheFile) {
  fs::permissions(path, fs::perms(0644));
  fs::create_directory(folder());
  fs::permissions(folder(), fs::perms::owner_all);
  testing::OtherUser reader(env);
  const auto opened = [&] { return Folder::open(testing::located(reader, path), data(), {}); };
  EXPECT_TRUE(fails_with(Status::permission, opened()));  // its maker was stopped there
  EXPECT_GT(reader.monotonic_ms(), 0u);
  reader.on_sleep = [&] { fs::permissions(folder(), fs::perms(0755)); };
  EXPECT_TRUE(is_ok(opened()));
  reader.on_sleep = [] { ADD_FAILURE() << "it waits"; };
  fs::permissions(folder(), fs::perms(0750));  // as it is to be
  EXPECT_TRUE(fails_with(Status::permission, opened()));
  fs::permissions(folder(), fs::perms::owner_all);
  fs::permissions(path, fs::perms(0600));
  EXPECT_TRUE(fails_with(Status::permission, opened()));
}

TEST_F(FolderTest, NamesJournalsButNotThoseMovedAside) {
  fs::create_directory(folder());
  testing::put_bytes(folder() + "/aa", "");
  testing::put_bytes(folder() + "/bb.bad", "");
  auto opened = open();
  EXPECT_EQ((*opened)->journals().value(), std::vector<std::string>{"aa"});
}

TEST_F(FolderTest, ALinkOrAFileInItsPlaceIsRefused) {
  fs::create_directory(dir / "elsewhere");
  fs::create_symlink(dir / "elsewhere", folder());
  EXPECT_TRUE(fails_with(Status::journal, open()));
  EXPECT_FALSE(Folder::create(testing::located(env, path), data()));
  EXPECT_TRUE(fs::is_empty(dir / "elsewhere"));
  fs::remove(folder());
  testing::put_bytes(folder(), "a file");
  EXPECT_TRUE(fails_with(Status::journal, open()));
  EXPECT_FALSE(Folder::create(testing::located(env, path), data()));
  EXPECT_TRUE(same_bytes(bytes_of(folder()), "a file"));
}

TEST_F(FolderTest, OneThatAnybodyMayWriteToIsRefused) {
  fs::create_directory(folder());
  ::chmod(folder().c_str(), 0777);
  EXPECT_TRUE(fails_with(Status::journal, open()));
  EXPECT_TRUE(fails_with(Status::journal, Folder::create(testing::located(env, path), data())));
}

// On a disk of Windows anybody may write to all that there is.
TEST_F(FolderTest, OneThatAnybodyMayWriteToIsUsedIfThatIsSoOfTheFile) {
  ::chmod(path.c_str(), 0666);
  fs::create_directory(folder());
  ::chmod(folder().c_str(), 0777);
  const auto opened = open();
  ASSERT_TRUE(is_ok(opened));
  EXPECT_TRUE(opened->has_value());
  EXPECT_TRUE(is_ok(Folder::create(testing::located(env, path), data())));
}

TEST_F(FolderTest, OneOfAStrangerIsRefused) {
  fs::create_directory(folder());
  if (::chown(folder().c_str(), testing::somebody, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "only root can give a folder away";
  for (const Error &e : {open().error(), Folder::create(testing::located(env, path), data()).error()}) {
    EXPECT_EQ(e.status, Status::journal);
    EXPECT_THAT(e.message, ::testing::HasSubstr("user 4242 finishes it"));
    EXPECT_THAT(e.message, ::testing::Not(::testing::HasSubstr("remove")));  // it may hold what was promised
  }
}

// Its user has closed the file, or opened it again. That would help nobody now.
TEST_F(FolderTest, OfOneWithNothingButWhatWasMovedAsideThatIsNamed) {
  fs::create_directory(folder());
  if (::chown(folder().c_str(), testing::somebody, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "only root can give a folder away";
  testing::put_bytes(folder() + "/aa.bad", "evidence");
  testing::FaultEnv faulty(env);
  const auto refused = [&] {
    const auto opened = Folder::open(testing::located(faulty, path), data(), {});
    const auto made = Folder::create(testing::located(faulty, path), data());
    EXPECT_TRUE(fails_with(Status::journal, opened));
    EXPECT_TRUE(fails_with(Status::journal, made));
    EXPECT_EQ(opened.error().message, made.error().message);
    return opened.error().message;
  };
  EXPECT_THAT(refused(), ::testing::HasSubstr("/aa.bad'"));
  EXPECT_THAT(refused(), ::testing::HasSubstr("as user 4242 or as root"));
  EXPECT_THAT(refused(), ::testing::Not(::testing::HasSubstr("finishes it")));
  testing::put_bytes(folder() + "/bb", "");
  EXPECT_THAT(refused(), ::testing::Not(::testing::HasSubstr("remove")));
  fs::remove(folder() + "/bb");
  faulty.before = [](testing::Call call) { return call == testing::Call::list ? -EIO : 0; };
  EXPECT_THAT(refused(), ::testing::HasSubstr("user 4242 finishes it"));
}

// In /tmp anybody can put such a folder beside anybody's file: that must not
// keep the owner from reading it.
TEST_F(FolderTest, APlantedOneInAPublicPlaceIsPassedOverWithAWarning) {
  ::chmod(dir.path().c_str(), 01777);
  fs::create_directory(folder());
  ::chmod(folder().c_str(), 0777);
  auto opened = open();
  ASSERT_TRUE(is_ok(opened));
  EXPECT_FALSE(opened->has_value());
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_NE(logged[0].find(folder()), std::string::npos);
  EXPECT_TRUE(fails_with(Status::journal,
                         Folder::create(testing::located(env, path), data())));  // but nothing is written into it
}

TEST_F(FolderTest, APlantedOneInAPublicPlaceThatLetsNobodyInIsPassedOver) {
  constexpr uid_t reader = testing::somebody + 1;
  fs::create_directory(folder());
  if (::chown(folder().c_str(), testing::somebody, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "only root can give a folder away";
  ::chmod(folder().c_str(), 0700);
  for (const mode_t parent : {01777, 0755}) {
    ::chmod(dir.path().c_str(), parent);
    const testing::AsUser user(reader);
    const auto opened = open();
    if (parent == 0755) {
      EXPECT_FALSE(opened);
      continue;
    }
    ASSERT_TRUE(is_ok(opened));
    EXPECT_FALSE(opened->has_value());
    ASSERT_EQ(logged.size(), 1u);
    EXPECT_THAT(logged[0], ::testing::HasSubstr("it was passed over"));
  }
  // One that the file's owner may have made may hold what was promised.
  ::chmod(dir.path().c_str(), 01777);
  ASSERT_EQ(::chown(path.c_str(), testing::somebody, static_cast<gid_t>(-1)), 0);
  const testing::AsUser user(reader);
  EXPECT_FALSE(open());
}

// Puts another folder of the user's in the place of one that was just made, as the owner of the parent may.
class MovesThere : public testing::FaultEnv {
 public:
  MovesThere(std::string from, std::string to)
      : FaultEnv(os::Env::posix()), from_(std::move(from)), to_(std::move(to)) {}
  int mkdirat(int at, const char *name, mode_t mode) override {
    const int r = FaultEnv::mkdirat(at, name, mode);
    fs::rename(to_, to_ + ".made");
    fs::rename(from_, to_);
    return r;
  }

 private:
  const std::string from_, to_;
};

// A folder that lets nobody else in, with one file in it.
std::string private_folder(const std::string &at, const char *name) {
  fs::create_directory(at);
  testing::put_bytes(at + "/" + name, "");
  ::chmod(at.c_str(), 0700);
  return at;
}

TEST_F(FolderTest, AnotherFolderOfOursThatIsMovedThereIsOpenedToNobody) {
  ::chmod(path.c_str(), 0644);
  MovesThere moves(private_folder(dir / "private", "key"), folder());
  const auto made = Folder::create(testing::located(moves, path), data());
  EXPECT_TRUE(fails_with(Status::journal, made));
  EXPECT_EQ(mode_of(folder()), 0700u);
  EXPECT_TRUE(fs::exists(folder() + "/key"));
}

// Another process of ours was faster.
TEST_F(FolderTest, AJournalThatIsThereAlreadyKeepsNobodyOut) {
  ::chmod(path.c_str(), 0644);
  MovesThere moves(private_folder(dir / "used", "0123456789abcdef"), folder());
  ASSERT_TRUE(is_ok(Folder::create(testing::located(moves, path), data())));
  EXPECT_EQ(mode_of(folder()), 0755u);
}

TEST_F(FolderTest, WhatAServerPutsIntoAFolderIsNoExchange) {
  ::chmod(path.c_str(), 0644);
  for (const char *name : {".nfs0000000001a2b3c400000001", ".fuse_hidden0000002600000012", "@eaDir"}) {
    SCOPED_TRACE(name);
    MovesThere moves(private_folder(dir / "used", name), folder());
    EXPECT_TRUE(is_ok(Folder::create(testing::located(moves, path), data())));
    EXPECT_EQ(mode_of(folder()), 0755u);
    fs::remove_all(folder());
    fs::remove_all(folder() + ".made");
  }
  for (const char *name : {".nfs", ".nfs1x", ".nf1", ".fuse_hidden"}) {
    SCOPED_TRACE(name);
    MovesThere moves(private_folder(dir / "used", name), folder());
    EXPECT_TRUE(fails_with(Status::journal, Folder::create(testing::located(moves, path), data())));
    fs::remove_all(folder());
    fs::remove_all(folder() + ".made");
  }
}

TEST_F(FolderTest, WhatAServerKeepsInAFolderIsNoJournal) {
  auto made = Folder::create(testing::located(env, path), data());
  ASSERT_TRUE(is_ok(made));
  fs::create_directory(folder() + "/@eaDir");
  const auto journals = made->journals();
  ASSERT_TRUE(is_ok(journals));
  EXPECT_TRUE(journals->empty());
}

// The name leads to another file when its rights are asked for: one of a user that wants to read the journal, or one of
// a publish.
TEST_F(FolderTest, AFileThatTakesTheNameGivesTheJournalNoReaders) {
  const struct {
    mode_t ours, other, journals;
  } rows[] = {{0640, 0644, 0700}, {0644, 0666, 0700}, {0640, 0640, 0700}, {0644, 0644, 0755}};
  for (const auto &row : rows) {
    SCOPED_TRACE(row.journals);
    ::chmod(path.c_str(), row.ours);
    const struct stat opened = data();
    testing::put_bytes(path + ".other", old);
    ::chmod((path + ".other").c_str(), row.other);
    fs::rename(path + ".other", path);
    ASSERT_TRUE(is_ok(Folder::create(testing::located(env, path), opened)));
    EXPECT_EQ(mode_of(folder()), row.journals);
    fs::remove(folder());
  }
}

#ifdef __linux__  // Darwin has ACLs of another kind

std::string acl_of(std::initializer_list<std::array<uint32_t, 3>> entries) {
  std::string out("\2\0\0\0", 4);
  const auto put = [&](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> 8 * i & 0xff);
  };
  for (const auto &[tag, may, id] : entries) put(tag, 2), put(may, 2), put(id, 4);
  return out;
}

class WithAnAcl : public FolderTest {
 protected:
  static constexpr uint32_t none = UINT32_MAX, alice = 4242;
  static constexpr const char *access = "system.posix_acl_access", *given = "system.posix_acl_default";
  void put(const std::string &on, const char *name, const std::string &acl) {
    if (::setxattr(on.c_str(), name, acl.data(), acl.size(), 0) != 0)
      GTEST_SKIP() << "no ACLs here: " << std::strerror(errno);
  }
  static std::string acl_on(const std::string &of) {
    char bytes[400];
    const ssize_t n = ::getxattr(of.c_str(), access, bytes, sizeof bytes);
    return n < 0 ? std::string() : std::string(bytes, static_cast<size_t>(n));
  }
  std::unique_ptr<Journal> journal() {
    auto made = Folder::create(testing::located(env, path), data());
    EXPECT_TRUE(is_ok(made));
    auto created = Journal::create(made->dir(), made->rights());
    EXPECT_TRUE(is_ok(created));
    return std::move(*created);
  }
};

TEST_F(WithAnAcl, AJournalHasItsReadersAndNoOthers) {
  ::chmod(path.c_str(), 0600);
  put(path, access, acl_of({{1, 6, none}, {2, 6, alice}, {4, 0, none}, {16, 6, none}, {32, 0, none}}));
  if (IsSkipped()) return;
  const auto made = journal();
  EXPECT_EQ(acl_on(folder()), acl_of({{1, 7, none}, {2, 5, alice}, {4, 0, none}, {16, 5, none}, {32, 0, none}}));
  EXPECT_EQ(acl_on(folder() + "/" + made->name()),
            acl_of({{1, 6, none}, {2, 4, alice}, {4, 0, none}, {16, 4, none}, {32, 0, none}}));
}

TEST_F(WithAnAcl, OnTheFolderAloneAJournalDoesNotInheritIt) {
  ::chmod(path.c_str(), 0640);
  put(dir.path(), given, acl_of({{1, 7, none}, {2, 7, alice}, {4, 0, none}, {16, 7, none}, {32, 0, none}}));
  if (IsSkipped()) return;
  const auto made = journal();
  EXPECT_EQ(acl_on(folder()), "");
  EXPECT_EQ(acl_on(folder() + "/" + made->name()), "");
  EXPECT_LT(::getxattr(folder().c_str(), given, nullptr, 0), 0);
  EXPECT_EQ(mode_of(folder()), 0750u);
  EXPECT_EQ(mode_of(folder() + "/" + made->name()), 0640u);
}

TEST_F(WithAnAcl, ThatCannotBeReadAJournalIsItsMakersAlone) {
  ::chmod(path.c_str(), 0644);
  testing::FaultEnv faulty(env);
  faulty.before = [](testing::Call call) { return call == testing::Call::fgetxattr ? -EIO : 0; };
  ASSERT_TRUE(is_ok(Folder::create(testing::located(faulty, path), data())));
  EXPECT_EQ(mode_of(folder()), 0700u);
}

// Its writer is not of the file's group, and so cannot give the journal to it.
TEST_F(WithAnAcl, OfItsOwnAJournalIsReadByAGroupThatItCannotBeGivenTo) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  put(path, access, acl_of({{1, 6, none}, {4, 6, none}, {32, 0, none}}));  // are there any here?
  if (IsSkipped()) return;
  ::chmod(path.c_str(), 0640);
  ASSERT_EQ(::chown(path.c_str(), 0, 5151), 0);
  testing::FaultEnv faulty(env);
  faulty.before = [](testing::Call call) { return call == testing::Call::fchown ? -EPERM : 0; };
  ASSERT_TRUE(is_ok(Folder::create(testing::located(faulty, path), data())));
  EXPECT_EQ(acl_on(folder()), acl_of({{1, 7, none}, {4, 0, none}, {8, 5, 5151}, {16, 5, none}, {32, 0, none}}));
}

#endif

class JournalFolderTest : public FolderTest {
 protected:
  JournalFolder::Taken take(JournalFolder &journals) {
    auto taken = journals.take();
    EXPECT_TRUE(is_ok(taken));
    return std::move(*taken);
  }
};

TEST_F(JournalFolderTest, KeepsARetiredJournalForTheNextTransaction) {
  {
    JournalFolder journals(testing::located(env, path), data());
    EXPECT_FALSE(fs::exists(folder()));  // nothing until it is needed
    auto first = take(journals), second = take(journals);
    const std::string name = first.journal->name();
    EXPECT_NE(second.journal->name(), name);
    EXPECT_EQ(names_in(folder()).size(), 2u);
    journals.give_back(std::move(first));
    auto again = take(journals);
    EXPECT_EQ(again.journal->name(), name);
    journals.give_back(std::move(again));
    journals.give_back(std::move(second));
  }
  EXPECT_FALSE(fs::exists(folder()));
}

// It may have been for want of space that nothing came of it.
// The handle began its change before it saw that another had published.
TEST_F(JournalFolderTest, ReadersAreLetInOnceTheHandleShowsTheFileThatTookTheName) {
  ::chmod(path.c_str(), 0640);
  JournalFolder journals(testing::located(env, path), data());
  testing::put_bytes(path + ".other", old);
  ::chmod((path + ".other").c_str(), 0640);
  fs::rename(path + ".other", path);
  auto first = take(journals), amid = take(journals);
  EXPECT_EQ(mode_of(folder()), 0700u);
  journals.follow(data().st_ino);
  journals.give_back(std::move(first));
  first = take(journals);
  EXPECT_EQ(first.folder, amid.folder) << "another transaction has its journal there";
  journals.give_back(std::move(first));
  journals.give_back(std::move(amid));
  const auto next = take(journals);
  EXPECT_EQ(mode_of(folder()), 0750u);
  EXPECT_EQ(names_in(folder()), std::vector{next.journal->name()});
  EXPECT_EQ(mode_of(folder() + "/" + next.journal->name()), 0640u);
}

TEST_F(JournalFolderTest, KeepsNoLargeJournalOfAChangeThatWasNotMade) {
  const std::string bytes = testing::pattern(100'000, 1);
  JournalFolder journals(testing::located(env, path), data());
  for (const bool is_made : {false, true}) {
    auto taken = take(journals);
    ASSERT_TRUE(is_ok(taken.journal->append(bytes.data(), bytes.size(), {})));
    if (is_made) {
      ASSERT_TRUE(is_ok(taken.journal->seal({}, {})));
      ASSERT_TRUE(is_ok(taken.journal->commit()));
      ASSERT_TRUE(is_ok(taken.journal->retire()));
    }
    journals.give_back(std::move(taken));
    EXPECT_EQ(fs::exists(folder()) ? names_in(folder()).size() : 0u, is_made ? 1u : 0u);
  }
}

// The kernel frees the blocks of a large journal when it is closed.
TEST_F(JournalFolderTest, ACloseThatTakesLongKeepsNoOtherThread) {
  testing::FaultEnv slow(env);
  const std::string bytes = testing::pattern(100'000, 1);
  std::future<void> other;
  bool began = false, came = false;
  JournalFolder journals(testing::located(slow, path), data());
  auto taken = take(journals);
  ASSERT_TRUE(is_ok(taken.journal->append(bytes.data(), bytes.size(), {})));
  slow.before = [&](testing::Call call) {
    if (call != testing::Call::close || std::exchange(began, true)) return 0;
    other = std::async(std::launch::async, [&] { static_cast<void>(journals.plan_next()); });
    came = other.wait_for(std::chrono::seconds(10)) == std::future_status::ready;  // else it hangs
    return 0;
  };
  journals.give_back(std::move(taken));
  EXPECT_TRUE(came);
  EXPECT_FALSE(fs::exists(folder()));
}

// The owner of a shared file has it open, or was killed.
TEST_F(JournalFolderTest, InAnothersFolderAJournalIsRefusedAndTheOwnerNamed) {
  JournalFolder owners(testing::located(env, path), data());
  owners.give_back(take(owners));
  fs::permissions(dir.path(), fs::perms(0755));
  {
    AsUser user(testing::somebody);
    if (!user) GTEST_SKIP() << "only root can act as somebody else";
    JournalFolder others(testing::located(env, path), data());
    const auto refused = others.take();
    ASSERT_TRUE(fails_with(Status::journal, refused));
    EXPECT_EQ(refused.error().os_errno, EACCES);
    EXPECT_THAT(refused.error().message, ::testing::HasSubstr("belongs to user 0, and you may not write to it"));
    EXPECT_THAT(refused.error().message, ::testing::HasSubstr("user 0 finishes it by"));
  }
  owners.give_back(take(owners));
}

TEST_F(JournalFolderTest, KeepsOnlyAFew) {
  JournalFolder journals(testing::located(env, path), data());
  std::vector<JournalFolder::Taken> many;
  for (int i = 0; i < 10; ++i) many.push_back(take(journals));
  EXPECT_EQ(names_in(folder()).size(), 10u);
  for (auto &taken : many) journals.give_back(std::move(taken));
  EXPECT_EQ(names_in(folder()).size(), 4u);
}

TEST_F(JournalFolderTest, MakesAnotherFolderIfSomebodyRemovesIt) {
  JournalFolder journals(testing::located(env, path), data());
  journals.give_back(take(journals));
  fs::remove_all(folder());
  auto taken = take(journals);
  EXPECT_EQ(names_in(folder()), std::vector<std::string>{taken.journal->name()});
  journals.give_back(std::move(taken));
}

TEST_F(JournalFolderTest, MakesAnotherJournalIfSomebodyRemovesOrReplacesIt) {
  JournalFolder journals(testing::located(env, path), data());
  auto taken = take(journals);
  const std::string name = taken.journal->name();
  journals.give_back(std::move(taken));
  fs::remove(folder() + "/" + name);
  testing::put_bytes(folder() + "/" + name, "another file of that name");
  auto other = take(journals);
  EXPECT_NE(other.journal->name(), name);
  EXPECT_TRUE(fs::exists(folder() + "/" + other.journal->name()));
}

TEST_F(JournalFolderTest, IsNotFooledByAFolderMovedAway) {
  JournalFolder journals(testing::located(env, path), data());
  journals.give_back(take(journals));
  fs::rename(folder(), dir / "away");
  auto taken = take(journals);
  EXPECT_EQ(names_in(folder()), std::vector<std::string>{taken.journal->name()});
}

TEST_F(JournalFolderTest, AJournalGivenBackAfterTheFolderWentIsDropped) {
  JournalFolder journals(testing::located(env, path), data());
  auto taken = take(journals);
  const std::string name = taken.journal->name();
  fs::rename(folder(), dir / "away");
  auto second = take(journals);
  journals.give_back(std::move(taken));
  EXPECT_FALSE(fs::exists((dir / "away/") + name));
  auto third = take(journals);
  EXPECT_EQ(names_in(folder()).size(), 2u);
}

TEST_F(JournalFolderTest, GoesAlsoWhereAnUnlinkedFileStaysUntilItIsClosed) {
  testing::KeepsOpenFilesEnv nfs(env);
  JournalFolder journals(testing::located(nfs, path), data());
  auto taken = journals.take();
  ASSERT_TRUE(is_ok(taken));
  const std::string large(2 * journal_step, 'x');  // not parked
  ASSERT_TRUE(is_ok(taken->journal->append(large.data(), large.size(), {})));
  journals.give_back(std::move(*taken));
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(JournalFolderTest, LeavesWhatBelongsToOthers) {
  {
    JournalFolder journals(testing::located(env, path), data());
    journals.give_back(take(journals));
    testing::put_bytes(folder() + "/somebodys.bad", "evidence");
  }
  EXPECT_EQ(names_in(folder()), std::vector<std::string>{"somebodys.bad"});
}

TEST_F(JournalFolderTest, TwoHandlesShareTheFolder) {
  auto first = std::make_unique<JournalFolder>(testing::located(env, path), data());
  JournalFolder second(testing::located(env, path), data());
  first->give_back(take(*first));
  auto taken = take(second);
  first.reset();
  EXPECT_EQ(names_in(folder()), std::vector<std::string>{taken.journal->name()});
  second.give_back(std::move(taken));
}

TEST_F(JournalFolderTest, AForkedChildLeavesItsParentsJournals) {
  auto journals = std::make_unique<JournalFolder>(testing::located(env, path), data());
  auto taken = take(*journals);
  const std::string name = taken.journal->name();
  journals->give_back(std::move(taken));
  const pid_t child = ::fork();
  if (child == 0) {
    journals.reset();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(names_in(folder()), std::vector<std::string>{name});
  EXPECT_EQ(take(*journals).journal->name(), name);
}

// Lock and descriptor of a parked journal are one with the parent's: a child
// that used it would write where the parent writes.
TEST_F(JournalFolderTest, AForkedChildIsNotGivenItsParentsJournal) {
  JournalFolder journals(testing::located(env, path), data());
  auto taken = take(journals);
  const std::string name = taken.journal->name();
  journals.give_back(std::move(taken));
  const pid_t child = ::fork();
  if (child == 0) {
    auto mine = journals.take();
    ::_exit(mine && mine->journal->name() == name ? 1 : 0);  // refused, or one of its own
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "the child was given the journal that the parent will use";
}

TEST_F(JournalFolderTest, AFolderThatCannotBeMadeIsAnError) {
  testing::FaultEnv faulty(env);
  faulty.before = [](testing::Call call) { return call == testing::Call::mkdirat ? -EROFS : 0; };
  JournalFolder journals(testing::located(faulty, path), data());
  EXPECT_TRUE(fails_with(Status::permission, journals.take()));
}

// The umask took the owner's rights.
TEST_F(JournalFolderTest, AFolderThatItsMakerCannotOpenIsNotLeft) {
  testing::FaultEnv faulty(env);
  bool made = false;
  faulty.before = [&](testing::Call call) {
    made |= call == testing::Call::mkdirat;
    return made && call == testing::Call::openat ? -EACCES : 0;
  };
  JournalFolder journals(testing::located(faulty, path), data());
  auto taken = journals.take();
  ASSERT_TRUE(fails_with(Status::permission, taken));
  EXPECT_THAT(taken.error().message, ::testing::HasSubstr("umask"));
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(JournalFolderTest, AFolderThatVanishesForEverIsAnErrorAndNoHang) {
  class Vanishing : public testing::FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int mkdirat(int, const char *, mode_t) override { return 0; }  // it says so
  } vanishing(env);
  JournalFolder journals(testing::located(vanishing, path), data());
  EXPECT_FALSE(journals.take());
}

TEST_F(JournalFolderTest, MakesItsNameDurable) {
  testing::FaultEnv watched(env);
  JournalFolder journals(testing::located(watched, path), data());
  take(journals);
  EXPECT_EQ(std::count(watched.calls.begin(), watched.calls.end(), testing::Call::fsync), 1);
  watched.before = [](testing::Call call) { return call == testing::Call::fsync ? -EIO : 0; };
  JournalFolder others(testing::located(watched, path), data());
  EXPECT_TRUE(fails_with(Status::io, others.take()));
}

TEST_F(JournalFolderTest, MakesTheNameOfAFileDurableOnce) {
  testing::FaultEnv watched(env);
  JournalFolder journals(testing::located(watched, path), data());
  const auto syncs = [&](uint64_t inode) {
    watched.calls.clear();
    EXPECT_TRUE(is_ok(journals.make_name_durable(inode)));
    return std::count(watched.calls.begin(), watched.calls.end(), testing::Call::fsync);
  };
  const uint64_t first = data().st_ino, second = first + 1;
  take(journals);
  EXPECT_EQ(syncs(first), 0);  // when the folder was made
  EXPECT_EQ(syncs(second), 1);
  EXPECT_EQ(syncs(second), 0);
  journals.follow(second);
  EXPECT_EQ(syncs(second), 0);
  journals.follow(first);  // so the number of the second may be a third's by now
  EXPECT_EQ(syncs(second), 1);
  watched.before = [](testing::Call call) { return call == testing::Call::fsync ? -EIO : 0; };
  EXPECT_TRUE(fails_with(Status::io, journals.make_name_durable(first)));
  watched.before = nullptr;
  EXPECT_EQ(syncs(first), 1);
}

}  // namespace
}  // namespace st::write
