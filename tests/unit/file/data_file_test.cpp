// Opening and reading a file, with whatever lies beside it.
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "counting_env.h"
#include "file/writer.h"
#include "read_only_env.h"
#include "store_scene.h"

namespace st::store {
namespace {

using namespace testing;
using testing::Call;
namespace fs = std::filesystem;

class DataFileTest : public testing::StoreScene {
 protected:
  Result<std::unique_ptr<DataFile>> try_open(const std::string &where, bool write = false) {
    OpenOptions options;
    options.writable = write;
    return DataFile::open(env, where, std::move(options));
  }
};

TEST_F(DataFileTest, OfAGitLfsPointerItSaysHowToGetTheModel) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
  put_bytes(path, pointer);
  const auto opened = try_open(path);
  ASSERT_TRUE(fails_with(Status::header_too_large, opened));
  EXPECT_NE(opened.error().message.find("`git lfs pull`"), std::string::npos) << opened.error().message;
  const auto in_memory = Snapshot::of_memory(env, reinterpret_cast<const std::byte *>(pointer.data()), pointer.size(),
                                             read::MapMode::automatic);
  ASSERT_TRUE(fails_with(Status::header_too_large, in_memory));
  EXPECT_NE(in_memory.error().message.find("`git lfs pull`"), std::string::npos) << in_memory.error().message;
}

TEST_F(DataFileTest, ShowsTheBytesOfEveryTensorInEveryMode) {
  for (read::MapMode mode : {read::MapMode::automatic, read::MapMode::shared, read::MapMode::private_copy,
                             read::MapMode::none, read::MapMode::copy_on_write}) {
    OpenOptions options;
    options.map = mode;
    auto c = open(std::move(options));
    const Snapshot &s = c->snapshot();
    ASSERT_EQ(s.header.index.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(same_bytes(seen(*c, tensors[i].name), tensors[i].bytes));
      std::string copy(tensors[i].bytes.size(), '?');
      ASSERT_TRUE(is_ok(c->read(s, i, copy.data())));
      EXPECT_TRUE(same_bytes(copy, tensors[i].bytes));
    }
    EXPECT_EQ(s.file_size(), old.size());
    const uint64_t times = mode == read::MapMode::none ? 2 : 1;  // for the views, too
    EXPECT_EQ(c->counters().bytes_read, times * 17007u);
  }
}

TEST_F(DataFileTest, ASmallFileIsOpenedByFewCalls) {
  testing::CountingXfs counting(os::Env::posix());
  const int root = counting.openat_without_links(AT_FDCWD, "/", O_PATH | O_DIRECTORY);
  if (root < 0) GTEST_SKIP() << "there is no openat2 here";
  counting.close(root);
  struct stat here;
  ASSERT_EQ(::stat(path.c_str(), &here), 0);
  if (major(here.st_dev) == 0) GTEST_SKIP() << "no device tells what kind of storage is below " << dir.path();
  counting.calls.clear();
  ASSERT_TRUE(is_ok(DataFile::open(counting, fs::canonical(path).string(), {})));
  const std::vector<Call> few = {Call::openat,  // the folder, by its whole path
                                 Call::openat,  Call::fstat,
                                 Call::openat,  // is there a journal?
                                 Call::fstatfs, Call::pread, Call::mmap, Call::munmap, Call::close, Call::close};
  EXPECT_TRUE(counting.calls == few) << [&] {
    std::string made;
    for (const Call call : counting.calls) made += std::string(testing::call_name(call)) + " ";
    return made;
  }();
}

// Before its header is read, so that its tensors come in the same request to the disk.
TEST_F(DataFileTest, AFileOfAFewPagesThatIsNotMappedIsAskedForAsAWhole) {
  class Asked : public testing::FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int fadvise(int fd, uint64_t offset, uint64_t n, int advice) override {
      if (advice == POSIX_FADV_WILLNEED && !has_read) asked.emplace_back(offset, n);
      return FaultEnv::fadvise(fd, offset, n, advice);
    }
    ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override {
      has_read = true;
      return FaultEnv::pread(fd, buffer, n, offset);
    }
    ssize_t pread_cached(int, void *, size_t, uint64_t) override { return cached; }
    bool has_read = false;
    ssize_t cached = -EAGAIN;
    std::vector<std::pair<uint64_t, uint64_t>> asked;
  };
  for (const auto map : {read::MapMode::none, read::MapMode::automatic})
    for (const auto &[bytes, cached] :
         {std::pair{1000, -EAGAIN}, {60000, -EAGAIN}, {60000, -ENOSYS}, {60000, 1}, {200000, -EAGAIN}}) {
      Asked env(os::Env::posix());
      env.cached = cached;
      const std::string file = testing::file_of({{"t", Dtype::U8, {static_cast<uint64_t>(bytes)}, pattern(bytes, 1)}});
      put_bytes(path, file);
      OpenOptions options;
      options.map = map;
      auto c = DataFile::open(env, path, std::move(options));
      ASSERT_TRUE(is_ok(c));
      EXPECT_TRUE(same_bytes(seen(**c, "t"), pattern(bytes, 1)));
      std::vector<std::pair<uint64_t, uint64_t>> wanted;
      if (map == read::MapMode::none && bytes == 60000 && cached != 1) wanted.emplace_back(0, file.size());
      EXPECT_TRUE(env.asked == wanted) << bytes << " " << cached;
    }
}

TEST_F(DataFileTest, ReadsSlicesAndCountsTheirBytes) {
  auto c = open({});
  const Range part[] = {{100, 300, 1}};
  auto plan = SlicePlan::make(Dtype::U8, c->snapshot().header.index.at(1).shape, part);
  std::string out(200, '?');
  ASSERT_TRUE(is_ok(c->read_slice(c->snapshot(), 1, *plan, out.data())));
  EXPECT_TRUE(same_bytes(out, tensors[1].bytes.substr(100, 200)));
  EXPECT_EQ(c->counters().bytes_read, 200u);
}

TEST_F(DataFileTest, TensorsWithoutBytesHaveNoView) {
  put_bytes(path, testing::file_of({{"z", Dtype::F32, {0, 3}, ""}, {"s", Dtype::F32, {}, "abcd"}}));
  auto c = open({});
  EXPECT_EQ(c->view(c->snapshot(), 0).value(), nullptr);
  EXPECT_TRUE(same_bytes(seen(*c, "s"), "abcd"));
  put_bytes(path, testing::file_of({}));
  EXPECT_EQ(open({})->snapshot().header.index.size(), 0u);
}

TEST_F(DataFileTest, WhatIsNoPlainFileIsRefusedWithoutAHang) {
  EXPECT_TRUE(fails_with(Status::no_file, try_open(dir / "missing")));
  EXPECT_TRUE(fails_with(Status::no_file, try_open("")));
  EXPECT_TRUE(fails_with(Status::no_file, try_open(path + "/below")));
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  for (bool write : {false, true}) {
    EXPECT_TRUE(fails_with(Status::not_regular, try_open(dir.path(), write)));
    EXPECT_TRUE(fails_with(Status::not_regular, try_open("/dev/null", write)));
    EXPECT_TRUE(fails_with(Status::not_regular, try_open(dir / "pipe", write)));
    for (int fd : fds) EXPECT_TRUE(fails_with(Status::not_regular, try_open(text("/proc/self/fd/", fd), write)));
  }
  EXPECT_TRUE(fails_with(Status::not_regular, write::Writer::open(env, text("/proc/self/fd/", fds[1]), {}, {}, {})));
  for (int fd : fds) ::close(fd);
}

TEST_F(DataFileTest, AFileAgainstTheFormatIsRefusedWithItsPath) {
  put_bytes(path, "abc");
  EXPECT_TRUE(fails_with(Status::header_too_small, try_open(path)));
  put_bytes(path, testing::raw_file("{]", ""));
  auto bad = try_open(path);
  ASSERT_TRUE(fails_with(Status::header_json, bad));
  EXPECT_NE(bad.error().message.find(path), std::string::npos);
  put_bytes(path, old.substr(0, old.size() - 1));
  EXPECT_TRUE(fails_with(Status::truncated, try_open(path)));
  put_bytes(path, "");
  EXPECT_TRUE(fails_with(Status::header_too_small, try_open(path)));
}

TEST_F(DataFileTest, AFileThatIsEmptiedWhileItIsOpenedHasChanged) {
  testing::FaultEnv emptying(os::Env::posix());
  for (uint64_t left = 0; left <= 10; ++left) {
    put_bytes(path, old);
    emptying.before = [&](Call call) {
      if (call == Call::pread) std::filesystem::resize_file(path, left);
      return 0;
    };
    auto opened = DataFile::open(emptying, path, {});
    ASSERT_TRUE(fails_with(Status::file_changed, opened)) << left;
    EXPECT_NE(opened.error().message.find(text("ends at ", left, ",")), std::string::npos) << opened.error().message;
  }
}

TEST_F(DataFileTest, MemoryIsAFileToo) {
  auto c = DataFile::open_memory(env, reinterpret_cast<const std::byte *>(old.data()), old.size());
  ASSERT_TRUE(is_ok(c));
  EXPECT_TRUE(same_bytes(seen(**c, "b"), tensors[1].bytes));
  EXPECT_EQ((*c)->view((*c)->snapshot(), 0).value(),
            reinterpret_cast<const std::byte *>(old.data()) + a_at);  // no copy
  std::string copy(3000, '?');
  ASSERT_TRUE(is_ok((*c)->read((*c)->snapshot(), 2, copy.data())));
  EXPECT_TRUE(same_bytes(copy, tensors[2].bytes));
  EXPECT_TRUE(fails_with(Status::unsupported, (*c)->reopen((*c)->snapshot(), Again::the_same)));
  EXPECT_TRUE(fails_with(Status::read_only, Transaction::begin(**c, {})));
  EXPECT_TRUE(fails_with(Status::header_too_small, DataFile::open_memory(env, nullptr, 0)));
  EXPECT_TRUE(fails_with(Status::truncated,
                         DataFile::open_memory(env, reinterpret_cast<const std::byte *>(old.data()), old.size() - 1)));
}

TEST_F(DataFileTest, ReopeningGivesAnotherHandleOnTheSameFile) {
  auto c = open();
  auto second = c->reopen(c->snapshot(), Again::the_same);
  ASSERT_TRUE(is_ok(second));
  EXPECT_NE((*second)->snapshot().file.fd(), c->snapshot().file.fd());
  EXPECT_TRUE((*second)->options().writable);
  c.reset();
  EXPECT_TRUE(same_bytes(seen(**second, "a"), tensors[0].bytes));
  testing::replace_by(path, old);
  EXPECT_TRUE(fails_with(Status::file_changed, (*second)->reopen((*second)->snapshot(), Again::the_same)));
  fs::remove(path);
  EXPECT_TRUE(fails_with(Status::file_changed, (*second)->reopen((*second)->snapshot(), Again::the_same)));
}

// Whatever step of it another thread looks at, or makes while this one looks.
TEST_F(DataFileTest, ReopensWhileItsOwnCommitReplacesTheFile) {
  testing::FaultEnv faulty(env);
  auto c = open(faulty);
  const auto publish = [&](const std::string &key) {
    auto t = begin(*c);
    ASSERT_TRUE(is_ok(t->set_metadata(key, "1")));
    ASSERT_TRUE(is_ok(t->commit()));
  };
  const auto with_hook = [&](const std::function<void(Call)> &hook, const std::function<void()> &run) {
    bool inside = false;
    faulty.before = [&](Call call) {
      if (!std::exchange(inside, true)) {
        hook(call);
        inside = false;
      }
      return 0;
    };
    run();
    faulty.before = {};
  };
  size_t looks = 0;
  with_hook(
      [&](Call) {
        ++looks;
        EXPECT_TRUE(is_ok(c->reopen_shown(Again::for_reading)));
      },
      [&] { publish("looked at"); });
  EXPECT_GT(looks, 10u);
  int reached = 0;
  for (int n = 1; reached == n - 1; ++n) {
    int step = 0;
    with_hook(
        [&](Call) {
          if (++step == n) publish("step " + std::to_string(reached = n));
        },
        [&] { EXPECT_TRUE(is_ok(c->reopen_shown(Again::for_reading))) << n; });
  }
  EXPECT_GT(reached, 3);
  // A file of another hand is another one, also while a commit only thinks that it will replace it.
  bool replaced = false;
  with_hook(
      [&](Call call) {
        if (call != Call::renameat || std::exchange(replaced, true)) return;
        testing::replace_by(path, old);
        EXPECT_TRUE(fails_with(Status::file_changed, c->reopen_shown(Again::for_reading)));
      },
      [&] { publish("over another"); });
  EXPECT_TRUE(replaced);
  testing::replace_by(path, old);
  EXPECT_TRUE(fails_with(Status::file_changed, c->reopen_shown(Again::for_reading)));
}

TEST_F(DataFileTest, FinishesACommittedJournalFirst) {
  for (bool write : {false, true}) {
    put_bytes(path, old);
    ASSERT_NE(leave({{a_at, new_a}}, true), "");
    std::vector<std::string> log;
    OpenOptions options;
    options.writable = write;
    options.log = [&](LogLevel, const std::string &m) { log.push_back(m); };
    auto c = open(std::move(options));
    EXPECT_TRUE(same_bytes(seen(*c, "a"), new_a));
    EXPECT_EQ(c->counters().recoveries, 1u);
    EXPECT_EQ(log.size(), 1u);
    EXPECT_FALSE(fs::exists(folder()));
  }
}

TEST_F(DataFileTest, AWriterDropsAnUncommittedJournalAlsoWithoutBytes) {
  ASSERT_NE(leave({{a_at, new_a}}, false), "");
  put_bytes(folder() + "/0123456789abcdef", "");
  EXPECT_TRUE(same_bytes(seen(*open(), "a"), tensors[0].bytes));
  EXPECT_FALSE(fs::exists(folder()));
}

// A server that looks for folders by their paths knows it no more, though it is open. So it is with most FUSE daemons.
TEST_F(DataFileTest, AJournalFolderThatItsWriterRemovesAmidAnOpenKeepsNobodyOut) {
  for (const bool write : {false, true}) {
    size_t lists = 0;
    for (bool more = true; more; ++lists) {
      SCOPED_TRACE(text(write, ", list ", lists));
      fs::create_directory(folder());
      testing::FaultEnv by_path(env);
      more = false;
      by_path.before = [&, left = lists](Call call) mutable {
        if (call != Call::list || left-- != 0) return 0;
        more = true;
        fs::remove(folder());
        return -ENOENT;
      };
      OpenOptions options;
      options.writable = write;
      EXPECT_TRUE(is_ok(DataFile::open(by_path, path, std::move(options))));
    }
    EXPECT_GT(lists, 1u);
  }
}

TEST_F(DataFileTest, SaysOnceThatAJournalWasNotApplied) {
  const std::string journal = leave({{a_at, new_a}}, true);
  testing::poke(path, a_at + 7, "???");
  auto first = try_open(path);
  ASSERT_TRUE(fails_with(Status::journal, first));
  EXPECT_NE(first.error().message.find(".bad"), std::string::npos);
  EXPECT_TRUE(is_ok(try_open(path)));
  EXPECT_TRUE(fs::exists(journal + ".bad"));
}

// By _exit, as the workers of Python's multiprocessing end.
TEST_F(DataFileTest, AReaderDropsWhatAWriterLeftThatEndedWithoutClosing) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto writer = open();
    ::_exit(is_ok(update(*writer, "a", new_a)) && testing::names_in(folder()).size() == 1 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(testing::names_in(folder()).size(), 1u);
  OpenOptions options;
  std::vector<std::string> told;
  options.log = [&](LogLevel, const std::string &message) { told.push_back(message); };
  auto reader = open(std::move(options));
  ASSERT_TRUE(reader);
  EXPECT_FALSE(fs::exists(folder()));
  EXPECT_EQ(reader->counters().recoveries, 1u);
  EXPECT_EQ(told.size(), 1u);
  EXPECT_TRUE(same_bytes(seen(*reader, "a"), new_a));
}

// Each of them takes a sync.
TEST_F(DataFileTest, AReaderDropsAFewAtOnce) {
  for (int i = 0; i < 6; ++i) ASSERT_NE(leave({{a_at, new_a}}, false), "");
  ASSERT_TRUE(is_ok(try_open(path)));
  EXPECT_EQ(testing::names_in(folder()).size(), 2u);
  ASSERT_TRUE(is_ok(try_open(path)));
  EXPECT_FALSE(fs::exists(folder()));
}

// The emptied record must be on the disk before.
TEST_F(DataFileTest, AReaderMakesDurableWhatItDrops) {
  ASSERT_NE(leave({{a_at, new_a}}, false), "");
  FaultEnv watched(env);
  ASSERT_TRUE(is_ok(DataFile::open(watched, path, {})));
  const auto at = [&](Call call) {
    return std::find(watched.calls.begin(), watched.calls.end(), call) - watched.calls.begin();
  };
  EXPECT_LT(at(Call::pwrite), at(Call::fdatasync));
  EXPECT_LT(at(Call::fdatasync), at(Call::unlinkat));
  EXPECT_LT(at(Call::unlinkat), static_cast<ptrdiff_t>(watched.calls.size()));
}

TEST_F(DataFileTest, AReaderOpensWhetherOrNotItCanDropWhatADeadWriterLeft) {
  const std::string journal = leave({{a_at, new_a}}, false);
  testing::ReadOnlyEnv read_only(env);
  for (const int error : {EROFS, EACCES, EPERM}) {
    read_only.error = error;
    EXPECT_TRUE(is_ok(DataFile::open(read_only, path, {})));
    EXPECT_TRUE(fs::exists(journal));
  }
  testing::OthersJournals others(env);
  EXPECT_TRUE(is_ok(DataFile::open(others, path, {})));
  EXPECT_TRUE(fs::exists(journal));
  FaultEnv faulty(env);
  size_t lists = 0;
  for (const auto &[failing, error] :
       {std::pair(Call::pwrite, -EIO), {Call::fdatasync, -EIO}, {Call::lock, -ENOSYS}, {Call::list, -EIO}}) {
    faulty.before = [&, failing = failing, error = error](Call call) {
      if (call != failing || (call == Call::list && lists++ == 0)) return 0;
      return error;
    };
    EXPECT_TRUE(is_ok(DataFile::open(faulty, path, {})));
    EXPECT_TRUE(fs::exists(journal));
  }
  faulty.before = [&](Call call) { return call == Call::unlinkat ? -EROFS : 0; };
  EXPECT_TRUE(is_ok(DataFile::open(faulty, path, {})));
  EXPECT_TRUE(fs::exists(journal));
}

TEST_F(DataFileTest, AReaderLeavesJournalsThatMayBeInUse) {
  ASSERT_NE(leave({{a_at, new_a}}, false), "");
  const std::string made = "0123456789abcdef";
  put_bytes(folder() + "/" + made, "");  // its maker is about to lock it
  auto living = make_journal({{b_at, new_b}}, false), linked = make_journal({{b_at, new_b}}, false);
  fs::create_hard_link(folder() + "/" + linked->name(), dir / "backup");
  const std::string as_it_is = bytes_of(dir / "backup");
  ASSERT_TRUE(is_ok(try_open(path)));
  std::vector<std::string> left = {made, living->name(), linked->name()};
  std::sort(left.begin(), left.end());
  auto names = testing::names_in(folder());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, left);
  EXPECT_EQ(bytes_of(dir / "backup"), as_it_is);
}

// Before each call of a first commit, of which one makes the journal, and a later one lets readers in.
TEST_F(DataFileTest, AnotherUsersReadersOpenAmidAFirstCommit) {
  std::filesystem::permissions(path, std::filesystem::perms(0644));
  FaultEnv faulty(env);
  testing::OtherUser reader(env);
  auto writer = open(faulty);
  size_t opened = 0, closed = 0;
  faulty.before = [&](testing::Call) {
    struct stat s;
    // For that one waits: see FolderTest.
    if (::stat(folder().c_str(), &s) == 0 && (s.st_mode & 0077) == 0) return 0;
    if (::stat(folder().c_str(), &s) == 0)
      for (const std::string &name : testing::names_in(folder()))
        closed += ::stat((folder() + "/" + name).c_str(), &s) == 0 && (s.st_mode & 0077) == 0;
    EXPECT_TRUE(is_ok(DataFile::open(reader, path, {})));
    ++opened;
    return 0;
  };
  ASSERT_TRUE(is_ok(update(*writer, "a", new_a)));
  writer.reset();
  EXPECT_GT(opened, 0u);
  EXPECT_GT(closed, 0u);
}

// As `cp -al` makes it. The writer has parked its journal for its next transaction.
TEST_F(DataFileTest, ABackupThatLinksALivingWritersJournalIsInNobodysWay) {
  auto first = open();
  ASSERT_TRUE(is_ok(update(*first, "a", new_a)));
  const auto names = testing::names_in(folder());
  ASSERT_EQ(names.size(), 1u);
  std::filesystem::create_hard_link(folder() + "/" + names[0], dir / "backup");
  auto second = open();
  ASSERT_TRUE(second);
  EXPECT_EQ(testing::names_in(folder()), names);
  ASSERT_TRUE(is_ok(update(*second, "b", new_b)));
  ASSERT_TRUE(is_ok(update(*first, "a", old.substr(a_at, 4000))));
  second.reset();
  first.reset();
  EXPECT_FALSE(std::filesystem::exists(folder()));
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{b_at, new_b}})));
}

TEST_F(DataFileTest, AReaderWhoMayNotWriteIsNeverShownHalfAChange) {
  ASSERT_NE(leave({{a_at, new_a}}, true), "");
  testing::poke(path, a_at, new_a.substr(0, 1024 - a_at % 512));
  fs::permissions(dir.path(), fs::perms(0755));
  {
    AsUser user(testing::somebody);
    if (!user) GTEST_SKIP() << "only root can act as somebody else";
    EXPECT_TRUE(fails_with(Status::needs_recovery, try_open(path)));
  }
  EXPECT_TRUE(same_bytes(seen(*open(), "a"), new_a));
}

TEST_F(DataFileTest, ReadersOpenWhileAWriterStages) {
  auto writer = open();
  auto t = begin(*writer);
  ASSERT_TRUE(is_ok(t->update("a", value(*writer, "a", new_a))));
  EXPECT_TRUE(fs::exists(folder()));
  EXPECT_TRUE(same_bytes(seen(*open({}), "a"), tensors[0].bytes));
  EXPECT_TRUE(same_bytes(seen(*open(), "a"), tensors[0].bytes));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(same_bytes(seen(*open({}), "a"), new_a));
}

// A reader may read the file while another process has it open for writing.
class WhileAWriterHasItOpen : public DataFileTest, public ::testing::WithParamInterface<std::pair<mode_t, mode_t>> {};

TEST_P(WhileAWriterHasItOpen, EveryReaderOfTheFileMayOpenIt) {
  const auto [mode, mask] = GetParam();
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as somebody else";
  fs::permissions(dir.path(), fs::perms(0755));
  ASSERT_EQ(::chown(path.c_str(), static_cast<uid_t>(-1), testing::somebody), 0);
  ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  const mode_t before = ::umask(mask);
  auto writer = open();
  ASSERT_TRUE(is_ok(update(*writer, "a", new_a)));  // from here on there is a folder
  ::umask(before);

  std::vector<gid_t> groups(64);
  const int count = ::getgroups(64, groups.data());
  ASSERT_EQ(::setgroups(0, nullptr), 0);
  ASSERT_EQ(::setegid(testing::somebody), 0);
  {
    AsUser user(testing::somebody);
    EXPECT_TRUE(is_ok(try_open(path)));
  }
  ASSERT_EQ(::setegid(0), 0);
  ASSERT_EQ(::setgroups(static_cast<size_t>(count), groups.data()), 0);
}

INSTANTIATE_TEST_SUITE_P(ModeAndUmask, WhileAWriterHasItOpen,
                         ::testing::Values(std::pair<mode_t, mode_t>{0644, 022}, std::pair<mode_t, mode_t>{0644, 077},
                                           std::pair<mode_t, mode_t>{0640, 022}, std::pair<mode_t, mode_t>{0660, 002}),
                         [](const auto &p) {
                           char name[32];
                           std::snprintf(name, sizeof name, "Mode%03oUmask%03o", p.param.first, p.param.second);
                           return std::string(name);
                         });

TEST_F(DataFileTest, ThroughALinkTheJournalLiesBesideTheTarget) {
  fs::create_directory(dir / "links");
  const std::string link = dir / "links/model.safetensors";
  fs::create_symlink("../model.safetensors", link);
  auto c = open_path(env, link);
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
  EXPECT_TRUE(fs::exists(folder()));
  EXPECT_EQ(testing::names_in(dir / "links").size(), 1u);
  ASSERT_TRUE(is_ok(t->commit()));
  t.reset();
  c.reset();
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}})));
  EXPECT_TRUE(fs::is_symlink(link));
  // And recovery by the link finds it there.
  ASSERT_NE(leave({{b_at, new_b}}, true), "");
  EXPECT_TRUE(same_bytes(seen(*open_path(env, link, {}), "b"), new_b));
}

TEST_F(DataFileTest, AnUpdateKeepsInodeModeAndLinks) {
  fs::create_hard_link(path, dir / "second");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  struct stat before, after;
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  ASSERT_TRUE(is_ok(update(*open(), "a", new_a)));
  ASSERT_EQ(::stat(path.c_str(), &after), 0);
  EXPECT_EQ(after.st_ino, before.st_ino);
  EXPECT_EQ(after.st_mode, before.st_mode);
  EXPECT_EQ(after.st_nlink, 2u);
  EXPECT_TRUE(same_bytes(bytes_of(dir / "second"), with({{a_at, new_a}})));
}

}  // namespace
}  // namespace st::store
