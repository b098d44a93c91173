// What a client of NFS does otherwise than a disk: it is told of names by their folder, and replaces in two steps.
#include <algorithm>
#include <filesystem>

#include "engine/locate.h"
#include "newfile/names.h"
#include "newfile/temporary_file.h"
#include "nfs_env.h"
#include "os/rename_over.h"
#include "read_only_env.h"
#include "store_scene.h"

namespace st::store {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class Nfs : public testing::StoreScene {
 protected:
  static TransactionOptions by_publish() {
    TransactionOptions options;
    options.publish = true;
    return options;
  }
  std::vector<std::string> beside() const {
    std::vector<std::string> names;
    for (const auto &entry : fs::directory_iterator(fs::path(path).parent_path()))
      names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
  // A publish that dies when the old file has given its name away.
  void die_amid_publish() {
    NfsEnv dying(env);
    auto writer = open(dying);
    ASSERT_NE(writer, nullptr);
    dying.dies_amid_rename = true;
    EXPECT_FALSE(update(*writer, "b", new_b, by_publish()));
    EXPECT_TRUE(dying.is_dead());
    EXPECT_FALSE(fs::exists(path));
    dying.end();
  }
  NfsEnv here{env}, there{env};
};

TEST_F(Nfs, AChangeGoesToTheFileThatAnotherHostHasPublished) {
  auto writer = open(here), other = open(there), reader = open(here, {});
  ASSERT_TRUE(is_ok(update(*other, "a", new_a)));  // its journal is parked: the next change makes nothing in the folder
  const std::string its_b = pattern(10007, 74);
  ASSERT_TRUE(is_ok(update(*writer, "b", its_b)));
  ASSERT_TRUE(is_ok(update(*writer, "b", new_b, by_publish())));
  ASSERT_TRUE(is_ok(update(*other, "c", new_c)));
  NfsEnv third(env);
  EXPECT_TRUE(same_bytes(seen(*open(third), "b"), new_b));
  EXPECT_TRUE(same_bytes(seen(*open(third), "c"), new_c));
}

TEST_F(Nfs, AFileIsFoundThatAnotherHostHasMade) {
  const std::string bytes = bytes_of(path);
  fs::remove(path);
  EXPECT_FALSE(DataFile::open(there, path, {}));
  put_bytes(path, bytes);
  EXPECT_TRUE(is_ok(DataFile::open(there, path, {})));
}

TEST_F(Nfs, APublishThatDiesAmidItsRenameLosesNoFile) {
  const std::string old_b = seen(*open(), "b");
  for (const bool writes : {false, true}) {
    die_amid_publish();
    EXPECT_TRUE(same_bytes(seen(*open(here, writes ? writable() : OpenOptions()), "b"), old_b));
    ASSERT_TRUE(is_ok(update(*open(here), "b", old_b, by_publish())));
    EXPECT_EQ(beside(), std::vector<std::string>{fs::path(path).filename()});
  }
}

TEST_F(Nfs, ASecondNameThatIsLeftGoesWithTheNextPublish) {
  const std::string name = fs::path(path).filename();
  const std::string left = (fs::path(path).parent_path() / ("." + name + ".st-was-0123456789abcdef")).string();
  EXPECT_EQ(os::had_name("." + name + ".st-was-0123456789abcdef"), name);
  EXPECT_EQ(os::had_name("." + name + ".st-tmp-0123456789abcdef"), "");
  put_bytes(left, "what was there before");
  ASSERT_TRUE(is_ok(update(*open(here), "b", new_b, by_publish())));
  EXPECT_FALSE(fs::exists(left));
  // Somebody has removed the file since, and its writer had died right after the rename.
  put_bytes(left, "what was there before");
  fs::remove(path);
  NfsEnv other(env);
  EXPECT_EQ(DataFile::open(other, path, {}).error().status, Status::no_file);
}

TEST_F(Nfs, ClientsOfSmbAreNotLetReplaceWhatIsOpen) {
  NfsEnv host(env);
  host.is_smb = true;
  {
    auto reader = open(host, {});
    ASSERT_TRUE(is_ok(update(*open(host), "b", new_b, by_publish())));
  }
  EXPECT_TRUE(same_bytes(seen(*open(host), "b"), new_b));
  EXPECT_EQ(beside(), std::vector<std::string>{fs::path(path).filename()});
}

TEST_F(Nfs, LocksOfSmbKeepAJournalFromItsOwnWriter) {
  NfsEnv host(env);
  host.is_smb = true;
  const std::string old_b = seen(*open(), "b");
  const auto changed = update(*open(host), "b", new_b);
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().status, Status::unsupported);
  for (const char *part : {path.c_str(), "st-journal/", "SMB", "nothing was changed", "publish"})
    EXPECT_NE(changed.error().message.find(part), std::string::npos) << changed.error().message;
  EXPECT_TRUE(same_bytes(seen(*open(), "b"), old_b));
  EXPECT_EQ(beside(), std::vector<std::string>{fs::path(path).filename()});
  EXPECT_TRUE(is_ok(update(*open(host), "b", new_b, by_publish())));
}

// Its writer died before the rename: the file has two names then.
TEST_F(Nfs, ASecondNameOfTheFileItselfIsNoHardLink) {
  const fs::path folder = fs::path(path).parent_path();
  const std::string name = fs::path(path).filename();
  fs::create_hard_link(path, folder / ("." + name + ".st-was-0123456789abcdef"));
  ASSERT_TRUE(is_ok(update(*open(here), "b", new_b, by_publish())));
  EXPECT_EQ(beside(), std::vector<std::string>{name});
  fs::create_hard_link(path, folder / "another");
  EXPECT_EQ(update(*open(here), "c", new_c, by_publish()).error().status, Status::hard_links);
}

TEST_F(Nfs, AReplacementThatLivesIsAwaited) {
  const std::string name = fs::path(path).filename(), digits = "0123456789abcdef";
  const fs::path folder = fs::path(path).parent_path();
  put_bytes((folder / ("." + name + ".st-tmp-" + digits)).string(), "new");
  fs::rename(path, folder / ("." + name + ".st-was-" + digits));
  const std::string second = (folder / ("." + name + ".st-was-" + digits)).string();
  auto file = os::File::open(env, AT_FDCWD, second, O_RDWR, 0, second);
  ASSERT_TRUE(is_ok(file));
  auto lock = os::RangeLock::acquire(*file, {os::whole_file(true)}, {});
  ASSERT_TRUE(is_ok(lock));
  auto at = os::Location::find(here, path);
  ASSERT_TRUE(is_ok(at));
  EXPECT_EQ(os::await_rename_over(*at, {0}).error().status, Status::busy);
  lock->release();
  EXPECT_TRUE(*os::await_rename_over(*at, {0}));
  EXPECT_TRUE(fs::exists(path));
  EXPECT_FALSE(fs::exists(second));
  fs::remove(folder / ("." + name + ".st-tmp-" + digits));
}

// It believes that the file is there: what lies beside is its only name.
TEST_F(Nfs, AHostThatRemembersTheNameRemovesNoOnlyName) {
  const std::string old_b = seen(*open(), "b");
  auto at = os::Location::find(there, path);
  struct stat s;
  ASSERT_TRUE(is_ok(at) && *os::is_replaced_in_two_steps(*at) && at->stat(&s) == 0);
  die_amid_publish();
  write::TemporaryFile::remove_stale(*at);
  NfsEnv third(env);
  const auto file = open(third, {});
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(same_bytes(seen(*file, "b"), old_b));
}

TEST_F(Nfs, AServerThatDoesNotAnswerLosesNoFile) {
  dir.may_hold_temporaries();  // by it the old file is found
  const std::string old_b = seen(*open(), "b"), name = fs::path(path).filename();
  for (const bool is_smb : {false, true}) {
    {
      NfsEnv host(env);
      host.is_smb = is_smb;
      auto writer = open(host);
      ASSERT_NE(writer, nullptr);
      int renames = -1;
      host.before = [&](Call call) {
        if (renames < 0 && call == (is_smb ? Call::renameat : Call::linkat)) renames = 0;
        if (renames < 0) return 0;
        if (call == Call::renameat && ++renames == 2) renames = 1000;
        return renames >= 1000 && call != Call::unlinkat && call != Call::close ? -EIO : 0;
      };
      EXPECT_FALSE(update(*writer, "b", new_b, by_publish()));
      EXPECT_GE(renames, 1000);
      host.before = nullptr;
    }
    NfsEnv third(env);
    const auto file = open(third, {});
    ASSERT_NE(file, nullptr) << is_smb << " " << ::testing::PrintToString(beside());
    EXPECT_TRUE(same_bytes(seen(*file, "b"), old_b));
  }
}

// Two calls name files in a publish. One is answered wrongly, whether it was done or not.
class WrongEnv : public NfsEnv {
 public:
  using NfsEnv::NfsEnv;
  int renameat(int from_dir, const char *from, int to_dir, const char *to) override {
    return answered([&] { return NfsEnv::renameat(from_dir, from, to_dir, to); });
  }
  int linkat(int dir, const char *from, const char *to) override {
    return answered([&] { return NfsEnv::linkat(dir, from, to); });
  }
  int calls_left = 1000, answer = 0;
  bool is_done = true;

 private:
  template <class Call>
  int answered(Call call) {
    const bool is_it = calls_left-- == 0;
    const int r = is_it && !is_done ? 0 : call();
    return is_it ? answer : r;
  }
};

TEST_F(Nfs, AnAnswerThatIsWrongLosesNoFile) {
  const std::string old_b = seen(*open(), "b");
  for (int i = 0; i < 16; ++i) {
    bool is_new = false;
    {
      WrongEnv host(env);
      host.is_smb = (i & 1) != 0;
      auto writer = open(host);
      host.calls_left = i / 2 % 2;
      host.is_done = (i & 4) != 0;
      host.answer = i < 8 ? -EIO : -ENOENT;
      is_new = update(*writer, "b", new_b, by_publish()).has_value();
      EXPECT_LT(host.calls_left, 0) << i;
    }
    ASSERT_TRUE(fs::exists(path)) << i;
    EXPECT_TRUE(same_bytes(seen(*open(), "b"), is_new ? new_b : old_b)) << i;
    ASSERT_TRUE(is_ok(update(*open(here), "b", old_b, by_publish())));
    EXPECT_EQ(beside(), std::vector<std::string>{fs::path(path).filename()}) << i;
  }
}

TEST_F(Nfs, AStorageThatDoesNotSayWhatItIsIsNotTakenForADisk) {
  dir.may_hold_temporaries();
  for (int n = 0; n < 8; ++n) {
    NfsEnv host(env);
    host.is_smb = true;
    host.before = nth_call_fails(n / 2, -EIO, n % 2 == 1, [](Call call) { return call == Call::fstatfs; });
    auto reader = open(host, {}), writer = open(host);
    if (reader && writer) update(*writer, "b", new_b, by_publish());
    reader.reset();
    writer.reset();
    EXPECT_TRUE(fs::exists(path)) << n;
  }
  for (const Call failing : {Call::fstatfs, Call::list}) {
    NfsEnv host(env);
    host.before = [failing](Call call) { return call == failing ? -EIO : 0; };
    EXPECT_EQ(DataFile::open(host, dir / "none.safetensors", {}).error().os_errno, EIO) << call_name(failing);
  }
}

TEST_F(Nfs, AFolderIsOpenedBesideASecondNameThatIsLeft) {
  const fs::path folder = fs::path(path).parent_path() / "folder";
  fs::create_directory(folder);
  put_bytes((folder / "new.safetensors.index.json").string(), "{}");
  put_bytes((folder / ".old.safetensors.index.json.st-was-0123456789abcdef").string(), "{}");
  for (os::Env *host : {&env, static_cast<os::Env *>(&here)}) {
    const auto found = locate(*host, folder.string(), true);
    ASSERT_TRUE(is_ok(found));
    EXPECT_EQ(fs::path(found->path).filename(), "new.safetensors.index.json");
  }
}

// It may not give the file its name back. It waits for a writer that lives.
TEST_F(Nfs, AReaderThatMayNotWriteAwaitsAReplacement) {
  const std::string name = fs::path(path).filename(), digits = "0123456789abcdef";
  const fs::path folder = fs::path(path).parent_path(), second = folder / ("." + name + ".st-was-" + digits);
  const fs::path temporary = folder / ("." + name + ".st-tmp-" + digits);
  for (const int refused : {EROFS, EACCES}) {
    fs::copy_file(path, temporary);
    fs::rename(path, second);
    auto file = os::File::open(env, AT_FDCWD, second.string(), O_RDWR, 0, second.string());
    auto lock = os::RangeLock::acquire(*file, {os::whole_file(true)}, {});
    ASSERT_TRUE(is_ok(lock));
    NfsEnv host(env);
    ClockEnv clock(host);
    ReadOnlyEnv reader(clock);
    reader.error = refused;
    clock.on_sleep = [&] {
      if (!fs::exists(second)) return;
      fs::rename(temporary, path);
      fs::remove(second);
    };
    EXPECT_TRUE(is_ok(DataFile::open(reader, path, {})));
  }
}

TEST_F(Nfs, OnSmbANameThatIsTooLongForASecondIsNotReplaced) {
  const fs::path longest = fs::path(path).parent_path() / (std::string(235, 'm') + ".safetensors");
  fs::rename(path, longest);
  const std::string old_b = seen(*open_path(env, longest), "b");
  NfsEnv host(env);
  host.is_smb = true;
  {
    auto writer = open_path(host, longest);
    const auto done = update(*writer, "b", new_b, by_publish());
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().status, Status::unsupported) << done.error().message;
  }
  ASSERT_TRUE(fs::exists(longest));
  EXPECT_TRUE(same_bytes(seen(*open_path(env, longest), "b"), old_b));
}

// It was removed while a process of this host has it open: no other process of the host may rename it.
TEST_F(Nfs, AJournalThatNfsKeepsAsideIsNobodys) {
  open(here);
  const fs::path folder = fs::path(path).parent_path() / write::journal_folder_name(fs::path(path).filename());
  auto keeps = open(here);
  ASSERT_TRUE(is_ok(update(*keeps, "a", new_a)));
  put_bytes((folder / ".nfs0000000001").string(), std::string(4096, '\0'));
  auto writer = open(there);
  EXPECT_TRUE(is_ok(update(*writer, "b", new_b)));
  EXPECT_TRUE(same_bytes(seen(*open(there), "b"), new_b));
}

}  // namespace
}  // namespace st::store
