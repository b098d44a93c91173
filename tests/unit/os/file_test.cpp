// Files on a system that does its calls by halves, with interruptions, or not
// at all.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <set>

#include "fault_env.h"
#include "os/file.h"
#include "os/location.h"
#include "os/process.h"
#include "os/range_lock.h"
#include "read_only_env.h"
#include "test_files.h"

namespace st::os {
namespace {

using namespace testing;
using testing::Call;

class FileTest : public ::testing::Test {
 protected:
  File open(int flags = O_RDWR) {
    auto file = File::open(env, AT_FDCWD, path, flags, 0600, path);
    EXPECT_TRUE(is_ok(file));
    return std::move(*file);
  }
  size_t calls_of(Call call) const { return static_cast<size_t>(std::count(env.calls.begin(), env.calls.end(), call)); }

  TempDir dir;
  const std::string path = dir / "f";
  FaultEnv env{Env::posix()};
};

TEST_F(FileTest, ShortReadsAndWritesAreFinished) {
  put_bytes(path, "");
  File file = open();
  env.before = [](Call call) { return call == Call::pread || call == Call::pwrite ? FaultEnv::short_io : 0; };
  const std::string data = testing::pattern(10000, 1);
  ASSERT_TRUE(is_ok(file.write(data.data(), data.size(), 5)));
  EXPECT_GT(calls_of(Call::pwrite), 5u);
  EXPECT_TRUE(same_bytes(bytes_of(path), std::string(5, '\0') + data));
  std::string back(data.size(), '?');
  ASSERT_TRUE(is_ok(file.read(back.data(), back.size(), 5)));
  EXPECT_GT(calls_of(Call::pread), 10u);
  EXPECT_TRUE(same_bytes(back, data));
}

TEST_F(FileTest, WhatTheStorageSaysOfAFileIsAskedOfTheKernelWhereStatxIsMissing) {
  put_bytes(path, "abc");
  File file = open();
  file.read_past_cache(PastCache::by_one);
  for (const int missing : {-ENOSYS, -EPERM}) {
    env.before = [&](Call call) { return call == Call::fstat_synced ? missing : 0; };
    auto stat = file.stat();
    ASSERT_TRUE(is_ok(stat));
    EXPECT_EQ(stat->st_size, 3);
  }
  env.before = [](Call call) { return call == Call::fstat_synced ? -EIO : 0; };
  EXPECT_TRUE(fails_with(Status::io, file.stat()));
}

// GlusterFS opens a file when it is first asked something of it, and this kernel leads the name to the file that was
// there.
TEST_F(FileTest, ANameThatLeadsToAFileThatIsGoneIsAskedOfTheServer) {
  put_bytes(path, "abc");
  auto at = Location::find(env, path);
  ASSERT_TRUE(is_ok(at));
  for (const int gone : {-EBADFD, -ENOENT, -ESTALE}) {
    bool asked = false;
    env.before = [&](Call call) {
      asked |= call == Call::renew_name;
      return call == Call::fstat && !asked ? gone : 0;
    };
    EXPECT_TRUE(is_ok(open_regular(*at, O_RDONLY)));
    EXPECT_TRUE(asked);
    env.before = nullptr;
  }
}

// JuiceFS says so of a file that another host has removed. So does a client of NFS 4 that asks for a lock, after its
// server has given away all that it held. What this program has closed is something else.
TEST_F(FileTest, WhatAServerDoesNotKnowByAnOpenDescriptorIsGone) {
  put_bytes(path, "abc");
  struct Case {
    int answer, fstat;
    Status status;
  };
  for (const auto &[answer, fstat, status] : {Case{-EBADF, 0, Status::file_changed}, Case{-EBADF, -EBADF, Status::io},
                                              Case{-ENOENT, 0, Status::file_changed}}) {
    File file = open();
    file.read_past_cache(PastCache::by_one);
    env.before = [&, answer = answer, fstat = fstat](Call call) {
      constexpr Call asked[] = {Call::pread, Call::pwrite, Call::fsync, Call::fdatasync, Call::lock};
      return std::ranges::count(asked, call) ? answer : call == Call::fstat ? fstat : 0;
    };
    char byte = 0;
    EXPECT_TRUE(fails_with(status, file.read(&byte, 1, 1)));
    EXPECT_TRUE(fails_with(status, file.write(&byte, 1, 1)));
    EXPECT_TRUE(fails_with(status, file.sync()));
    EXPECT_TRUE(fails_with(status, file.sync_data()));
    EXPECT_TRUE(fails_with(status, RangeLock::acquire(file, {{0, 1, true}}, {0, nullptr, nullptr})));
    env.before = nullptr;
  }
}

TEST_F(FileTest, WhereTheStorageFailsNoCacheAnswersForIt) {
  put_bytes(path, "abc");
  for (const PastCache how : {PastCache::by_one, PastCache::anew}) {
    File file = open();
    file.read_past_cache(how);
    char byte = 0;
    for (const int missing : {EMFILE, ENOMEM, EIO}) {
      env.before = [&](Call call) { return call == Call::openat ? -missing : 0; };
      const auto read = file.read(&byte, 1, 1);
      ASSERT_FALSE(read);
      EXPECT_EQ(read.error().os_errno, missing);
    }
    env.before = [](Call call) { return call == Call::openat ? -EINVAL : 0; };  // no O_DIRECT
    EXPECT_TRUE(is_ok(file.read(&byte, 1, 1)));
    EXPECT_EQ(byte, 'b');
    env.before = nullptr;
    File second = open();
    second.read_past_cache(how);
    env.before = [](Call call) { return call == Call::pread ? -EIO : 0; };
    const auto read = second.read(&byte, 1, 1);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().os_errno, EIO);
    env.before = nullptr;
  }
}

// By PastCache::by_length. No filesystem of one host has such a client: here F_SETFL answers, and does nothing.
class ByLength : public FileTest {
 protected:
  struct Client : FaultEnv {
    using FaultEnv::FaultEnv;
    int refuses = 0;                                 // an errno that F_SETFL answers
    std::map<int, int> opened;                       // descriptors, and their flags
    std::vector<int> read, written, synced, closed;  // by these
    std::vector<struct iovec> into;                  // what preadv fills
    int set_direct(int fd) override { return refuses ? -refuses : (opened[fd] |= O_DIRECT, 0); }
    int openat(int dir_fd, const char *name, int flags, mode_t mode) override {
      const int fd = FaultEnv::openat(dir_fd, name, flags & ~O_DIRECT, mode);
      if (fd >= 0) opened[fd] = flags & O_DIRECT;
      return fd;
    }
    ssize_t pread(int fd, void *to, size_t n, uint64_t offset) override {
      read.push_back(fd);
      return FaultEnv::pread(fd, to, n, offset);
    }
    ssize_t preadv(int fd, const struct iovec *parts, int count, uint64_t offset) override {
      read.push_back(fd);
      for (int i = 0; i < count; ++i)
        if (parts[i].iov_len > 0) into.push_back(parts[i]);
      return FaultEnv::preadv(fd, parts, count, offset);
    }
    ssize_t pwrite(int fd, const void *from, size_t n, uint64_t offset) override {
      written.push_back(fd);
      return FaultEnv::pwrite(fd, from, n, offset);
    }
    int fdatasync(int fd) override {
      synced.push_back(fd);
      return FaultEnv::fdatasync(fd);
    }
    int fsync(int fd) override {
      synced.push_back(fd);
      return FaultEnv::fsync(fd);
    }
    int close(int fd) override {
      closed.push_back(fd);
      return FaultEnv::close(fd);
    }
  };
  File shared() {
    auto file = File::open(client, AT_FDCWD, path, O_RDWR, 0600, path);
    EXPECT_TRUE(is_ok(file));
    file->read_past_cache(PastCache::by_length);
    return std::move(*file);
  }
  static constexpr size_t length = (size_t{1} << 20) + 5;
  const std::string data = testing::pattern(3 + length, 1);
  Client client{Env::posix()};
};

TEST_F(ByLength, ALongReadHasADescriptorOfItsOwnThatNobodyHasReadBy) {
  put_bytes(path, data);
  File file = shared();
  std::string got(length, '?'), short_one(10, '?');
  for (int i = 0; i < 2; ++i) {
    client.read.clear();
    client.closed.clear();
    ASSERT_TRUE(is_ok(file.read(got.data(), length, 3)));
    EXPECT_TRUE(same_bytes(got, data.substr(3)));
    ASSERT_EQ(client.read.size(), 1u);
    EXPECT_NE(client.read.front(), file.fd());
    EXPECT_EQ(client.opened[client.read.front()], O_DIRECT);
    EXPECT_EQ(client.closed, client.read);
  }
  client.closed.clear();
  ASSERT_TRUE(is_ok(file.read(short_one.data(), short_one.size(), 7)));
  EXPECT_TRUE(same_bytes(short_one, data.substr(7, 10)));
  EXPECT_NE(client.read.back(), file.fd());
  EXPECT_TRUE(client.closed.empty());
  // Beyond the end: what there is.
  auto had = file.read_up_to(got.data(), length, 100);
  ASSERT_TRUE(is_ok(had));
  EXPECT_EQ(*had, data.size() - 100);
}

// A process that forks meanwhile, and writes beside what is read, may get a copy of the page.
TEST_F(ByLength, ALongReadGoesStraightToWholePagesAlone) {
  put_bytes(path, data);
  const size_t page = page_size();
  std::string room(length + 2 * page, '#');
  for (const size_t begin : {size_t{0}, size_t{1}, page - 1})
    for (const bool by_halves : {false, true}) {
      File file = shared();
      char *const to = room.data() + (-reinterpret_cast<uintptr_t>(room.data()) % page) + begin;
      client.into.clear();
      if (by_halves) client.before = [](Call call) { return call == Call::pread ? FaultEnv::short_io : 0; };
      ASSERT_TRUE(is_ok(file.read(to, length, 3)));
      client.before = nullptr;
      EXPECT_TRUE(same_bytes({to, length}, data.substr(3))) << begin;
      EXPECT_FALSE(client.into.empty());
      for (const struct iovec &part : client.into) {
        const auto *at = static_cast<const char *>(part.iov_base);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(at) % page, 0u) << begin;
        if (at >= to && at < to + length) {
          EXPECT_EQ(part.iov_len % page, 0u) << begin;
        }
      }
    }
}

TEST_F(ByLength, AStorageThatFailsIsNotReadByTheCache) {
  put_bytes(path, data);
  std::string got(length, '?');
  for (const int missing : {EMFILE, EIO}) {
    File file = shared();
    client.before = [&](Call call) { return call == Call::openat ? -missing : 0; };
    EXPECT_EQ(file.read(got.data(), length, 0).error().os_errno, missing);
    client.before = [&](Call call) { return call == Call::pread ? -missing : 0; };
    EXPECT_EQ(file.read(got.data(), length, 0).error().os_errno, missing);
    client.before = nullptr;
  }
}

// As of a file that is removed: a server may know it by the first descriptor alone.
TEST_F(ByLength, WhereNoNewDescriptorReadsTheKeptOneDoes) {
  put_bytes(path, data);
  for (const int refuses : {EINVAL, 0}) {
    File file = shared();
    char byte = 0;
    ASSERT_TRUE(is_ok(file.read(&byte, 1, 0)));
    const int kept = client.read.back();
    client.refuses = refuses;
    int left = refuses ? 1 : 0;
    client.before = [&](Call call) { return call == Call::pread && left++ == 0 ? -ESTALE : 0; };
    std::string got(length, '?');
    ASSERT_TRUE(is_ok(file.read(got.data(), length, 3)));
    EXPECT_TRUE(same_bytes(got, data.substr(3)));
    EXPECT_EQ(client.read.back(), kept);
    client.before = nullptr;
    client.refuses = 0;
  }
}

TEST_F(ByLength, WhatIsWrittenGoesPastTheCacheAndIsSyncedByTheSameDescriptor) {
  put_bytes(path, data);
  File file = shared();
  EXPECT_EQ(client.opened[file.fd()], 0);
  for (size_t n : {size_t{1}, length}) {
    ASSERT_TRUE(is_ok(file.write(data.data(), n, 3)));
    EXPECT_EQ(client.opened[file.fd()], O_DIRECT);
  }
  EXPECT_TRUE(file.writes_past_cache());
  ASSERT_TRUE(is_ok(file.sync_data()));
  ASSERT_TRUE(is_ok(file.sync()));
  EXPECT_EQ(std::set<int>(client.written.begin(), client.written.end()), std::set<int>{file.fd()});
  EXPECT_EQ(std::set<int>(client.synced.begin(), client.synced.end()), std::set<int>{file.fd()});
  EXPECT_TRUE(same_bytes(bytes_of(path), data.substr(0, 3) + data.substr(0, length)));
}

// A layer of the client that writes later tells a failure once, also to a close, and then to no sync.
TEST_F(ByLength, NothingIsClosedBetweenAWriteAndItsSync) {
  put_bytes(path, data);
  File file = shared();
  std::string got(length, '?');
  char byte = 0;
  ASSERT_TRUE(is_ok(file.read(&byte, 1, 0)));
  ASSERT_TRUE(is_ok(file.write("xyz", 3, 0)));
  for (int i = 0; i < 2; ++i) {
    client.closed.clear();
    ASSERT_TRUE(is_ok(file.read(got.data(), length, 0)));
    EXPECT_TRUE(same_bytes(got.substr(0, 3), "xyz"));
    EXPECT_TRUE(client.closed.empty());
    client.before = [](Call call) { return call == Call::fdatasync ? -EIO : 0; };
    EXPECT_TRUE(fails_with(Status::io, file.sync_data()));  // of which nobody knows what it left
    client.before = nullptr;
  }
  ASSERT_TRUE(is_ok(file.sync_data()));
  ASSERT_TRUE(is_ok(file.read(got.data(), length, 0)));
  EXPECT_EQ(client.closed.size(), 1u);
}

TEST_F(ByLength, BytesAreLockedWhereNoPageIsWritten) {
  put_bytes(path, data);
  const std::vector<LockRange> bytes = {{0, 100, false}, {100, 50, true}};
  const auto locked = [&](int refuses) {
    client.refuses = refuses;
    const File file = shared();
    auto ranges = to_pages(file, bytes);
    EXPECT_TRUE(is_ok(ranges));
    return ranges->back();
  };
  const LockRange exact = locked(0), rounded = locked(EINVAL);
  EXPECT_EQ(exact.begin, 100u);
  EXPECT_EQ(exact.length, 50u);
  EXPECT_EQ(rounded.begin + rounded.length, page_size());
  File file = shared();
  EXPECT_FALSE(file.writes_past_cache());
  ASSERT_TRUE(is_ok(file.write("xyz", 3, 0)));  // through the cache, then
  EXPECT_TRUE(same_bytes(bytes_of(path).substr(0, 3), "xyz"));
}

TEST_F(FileTest, ASystemThatOnlyReadsSaysWhy) {
  struct OnlyReads : ReadOnlyEnv {
    using ReadOnlyEnv::ReadOnlyEnv;
    std::string why_read_only() override { return "nothing is changed here"; }
  } only_reads{Env::posix()};
  put_bytes(path, "abc");
  EXPECT_TRUE(is_ok(File::open(only_reads, AT_FDCWD, path, O_RDONLY, 0, path)));
  const auto file = File::open(only_reads, AT_FDCWD, path, O_RDWR, 0, path);
  ASSERT_TRUE(fails_with(Status::unsupported, file));
  EXPECT_EQ(file.error().message, "nothing is changed here");
  EXPECT_EQ(file.error().os_errno, EROFS);
}

TEST_F(FileTest, InterruptedReadsAndWritesAreRepeated) {
  put_bytes(path, "");
  File file = open();
  int left = 50;
  env.before = [&](Call call) { return (call == Call::pread || call == Call::pwrite) && left-- > 0 ? -EINTR : 0; };
  ASSERT_TRUE(is_ok(file.write("abc", 3, 0)));
  left = 50;
  char back[3];
  ASSERT_TRUE(is_ok(file.read(back, 3, 0)));
  EXPECT_EQ(std::string(back, 3), "abc");
}

TEST_F(FileTest, EndlessInterruptionsAreAnErrorAndNoHang) {
  put_bytes(path, "abc");
  File file = open();
  env.before = [](Call call) {
    return call == Call::pread || call == Call::pwrite || call == Call::openat ? -EINTR : 0;
  };
  char byte = 0;
  auto read = file.read(&byte, 1, 0);
  ASSERT_TRUE(fails_with(Status::io, read));
  EXPECT_EQ(read.error().os_errno, EINTR);
  EXPECT_TRUE(fails_with(Status::io, file.write(&byte, 1, 0)));
  EXPECT_TRUE(fails_with(Status::io, File::open(env, AT_FDCWD, path, O_RDONLY, 0, path)));
}

TEST_F(FileTest, SyncsAreNeverRepeated) {
  put_bytes(path, "abc");
  File file = open();
  for (int error : {EINTR, EIO, ENOSPC}) {
    env.calls.clear();
    env.before = [&](Call call) { return call == Call::fsync || call == Call::fdatasync ? -error : 0; };
    EXPECT_FALSE(file.sync_data());
    EXPECT_FALSE(file.sync());
    EXPECT_EQ(calls_of(Call::fdatasync), 1u);
    EXPECT_EQ(calls_of(Call::fsync), 1u);
  }
}

TEST_F(FileTest, AFileThatEndsEarlyHasChanged) {
  put_bytes(path, std::string(100, 'x'));
  File file = open();
  char buffer[64];
  auto r = file.read(buffer, 64, 80);
  ASSERT_TRUE(fails_with(Status::file_changed, r));
  EXPECT_EQ(r.error().offset, 100u);
  EXPECT_NE(r.error().message.find(path), std::string::npos);
  EXPECT_EQ(file.read_up_to(buffer, 64, 80).value(), 20u);
  EXPECT_EQ(file.read_up_to(buffer, 64, 200).value(), 0u);
}

TEST_F(FileTest, AFailureSaysWhereAndKeepsTheErrno) {
  put_bytes(path, std::string(100, 'x'));
  File file = open();
  env.before = testing::nth_call_fails(1, -EIO, true, [](Call call) { return call == Call::pread; });
  char buffer[100];
  auto first = file.read(buffer, 10, 0);
  ASSERT_TRUE(is_ok(first));
  auto r = file.read(buffer, 10, 30);
  ASSERT_TRUE(fails_with(Status::io, r));
  EXPECT_EQ(r.error().os_errno, EIO);
  EXPECT_EQ(r.error().offset, 30u);
  EXPECT_NE(r.error().message.find("cannot read"), std::string::npos);
}

TEST_F(FileTest, AWriteThatMovesNothingIsAnError) {
  put_bytes(path, "");
  File file = open();
  // Nothing written, no error: the loop must not spin.
  class Nothing : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    ssize_t pwrite(int, const void *, size_t, uint64_t) override { return 0; }
  } nothing{Env::posix()};
  auto stuck = File::open(nothing, AT_FDCWD, path, O_RDWR, 0, path);
  ASSERT_TRUE(is_ok(stuck));
  EXPECT_TRUE(fails_with(Status::io, stuck->write("abc", 3, 0)));
}

TEST_F(FileTest, EveryErrnoHasItsStatus) {
  const std::pair<int, Status> table[] = {{ENOENT, Status::no_file},      {ENOTDIR, Status::no_file},
                                          {EACCES, Status::permission},   {EPERM, Status::permission},
                                          {EROFS, Status::permission},    {ENOSPC, Status::no_space},
                                          {EDQUOT, Status::no_space},     {ENOMEM, Status::nomem},
                                          {EISDIR, Status::not_regular},  {EIO, Status::io},
                                          {EMFILE, Status::io},           {ESTALE, Status::file_changed},
                                          {ECANCELED, Status::cancelled}, {EOPNOTSUPP, Status::unsupported}};
  for (const auto &[error, status] : table) {
    env.before = [e = error](Call call) { return call == Call::openat ? -e : 0; };
    auto r = File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
    EXPECT_TRUE(fails_with(status, r));
    EXPECT_EQ(r.error().os_errno, error);
  }
}

#ifndef _WIN32  // no handle passes to another process, and no open file is renamed over by its C library
TEST_F(FileTest, DescriptorsCloseOnExecAndOnce) {
  put_bytes(path, "abc");
  {
    File file = open();
    EXPECT_TRUE(::fcntl(file.fd(), F_GETFD) & FD_CLOEXEC);
    File moved = std::move(file);
    EXPECT_FALSE(file);  // NOLINT: a moved-from file is closed
    EXPECT_TRUE(moved);
    moved.close();
    EXPECT_FALSE(moved);
    moved.close();
  }
  EXPECT_EQ(calls_of(Call::close), 1u);
  File a = open(), b = open();
  const int kept = b.fd();
  a = std::move(b);
  EXPECT_EQ(a.fd(), kept);
  EXPECT_EQ(calls_of(Call::close), 2u);
}

#ifdef __linux__
TEST_F(FileTest, NoneTakesTheNumberOfAStandardStream) {
  put_bytes(path, "abc");
  const auto program = [&] {
    for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(stream);
    const File file = open();
    std::string folder = dir / "";
    const int linkless = env.openat_without_links(AT_FDCWD, folder.c_str(), O_PATH | O_DIRECTORY);
    const bool closes =
        (::fcntl(file.fd(), F_GETFD) & FD_CLOEXEC) && (linkless < 0 || ::fcntl(linkless, F_GETFD) & FD_CLOEXEC);
    const bool above = file.fd() > STDERR_FILENO && (linkless < 0 || linkless > STDERR_FILENO);
    const ssize_t printed = ::write(STDERR_FILENO, "oh", 2);
    const bool are_taken = (::fcntl(STDIN_FILENO, F_GETFD) & ::fcntl(STDOUT_FILENO, F_GETFD)) == FD_CLOEXEC;
    ::_exit(closes && above && printed < 0 && are_taken ? 0 : 1);
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(bytes_of(path), "abc");
}
#endif

TEST_F(FileTest, AReplacedFileIsNoticed) {
  put_bytes(path, "abc");
  File file = open();
  EXPECT_EQ(was_replaced(file, path).value(), false);
  ASSERT_EQ(::link(path.c_str(), (dir / "second").c_str()), 0);
  EXPECT_EQ(was_replaced(file, dir / "second").value(), false);  // the same inode by another name
  put_bytes(dir / "new", "abc");
  ASSERT_EQ(::rename((dir / "new").c_str(), path.c_str()), 0);
  EXPECT_EQ(was_replaced(file, path).value(), true);
  ASSERT_EQ(::unlink(path.c_str()), 0);
  EXPECT_EQ(was_replaced(file, path).value(), true);
  env.before = [](Call call) { return call == Call::fstatat ? -EACCES : 0; };
  EXPECT_TRUE(fails_with(Status::permission, was_replaced(file, path)));
}

#endif

#ifdef __linux__

// A program like Samba, which gives its lease back when it is told to: `gives`. Else it keeps the file to itself.
class WithALease {
 public:
  WithALease(const std::string &path, bool gives) {
    int told[2];
    if (::pipe(told) != 0) return;
    child_ = ::fork();
    if (child_ == 0) hold(path, gives, told[1]);
    ::close(told[1]);
    char taken = 0;
    has_ = ::read(told[0], &taken, 1) == 1 && taken == 'y';
    ::close(told[0]);
  }
  ~WithALease() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  bool has() const { return has_; }

 private:
  [[noreturn]] static void hold(const std::string &path, bool gives, int tell) {
    sigset_t asked;
    sigemptyset(&asked);
    sigaddset(&asked, SIGIO);
    sigprocmask(SIG_BLOCK, &asked, nullptr);
    const int fd = ::open(path.c_str(), O_RDONLY);
    const char taken = ::fcntl(fd, F_SETLEASE, F_RDLCK) == 0 ? 'y' : 'n';
    if (::write(tell, &taken, 1) != 1) ::_exit(1);
    int signal = 0;
    sigwait(&asked, &signal);
    if (gives) ::fcntl(fd, F_SETLEASE, F_UNLCK);
    for (;;) ::pause();
  }

  pid_t child_ = -1;
  bool has_ = false;
};

TEST(Leases, AreWaitedForAndNotTakenForFailures) {
  const TempDir dir;
  const std::string path = dir / "f";
  put_bytes(path, "x");
  const auto at = Location::find(Env::posix(), path);
  ASSERT_TRUE(is_ok(at));
  for (const bool gives : {true, false}) {
    const WithALease other(path, gives);
    if (!other.has()) GTEST_SKIP() << "no leases here";
    const auto opened = open_regular(*at, O_RDWR, nullptr, {gives ? -1 : 10});
    if (gives) {
      EXPECT_TRUE(is_ok(opened));
      continue;
    }
    ASSERT_TRUE(fails_with(Status::busy, opened));
    EXPECT_NE(opened.error().message.find("another program has a lease on"), std::string::npos);
    EXPECT_TRUE(is_ok(open_regular(*at, O_RDONLY))) << "it is a lease against writers";
  }
}

#endif

TEST(ErrorText, NamesAreQuotedEscapedAndCut) {
  EXPECT_EQ(in_quotes("a b"), "'a b'");
  EXPECT_EQ(in_quotes(std::string_view("a\0\n\x7f", 4)), "'a\\x00\\x0a\\x7f'");
  EXPECT_EQ(in_quotes("ü 漢字 🙂"), "'ü 漢字 🙂'");
  EXPECT_EQ(in_quotes("\xc2\x9b"
                      "31m"),
            "'\\xc2\\x9b31m'");                                   // a control character of eight bits
  EXPECT_EQ(in_quotes("\u202egnp.x"), "'\\xe2\\x80\\xaegnp.x'");  // from here on the terminal turns words around
  EXPECT_EQ(in_quotes("a\u200bb"), "'a\\xe2\\x80\\x8bb'");
  EXPECT_EQ(in_quotes("\x9b\xff\xc2"), "'\\x9b\\xff\\xc2'");  // no UTF-8
  EXPECT_EQ(in_quotes("\xed\xa0\x80\xc0\x80"), "'\\xed\\xa0\\x80\\xc0\\x80'");
  EXPECT_LT(st::in_quotes(std::string(1000000, 'x')).size(), 200u);
  EXPECT_TRUE(st::in_quotes(std::string(1000000, 'x')).ends_with("...'"));
}

}  // namespace
}  // namespace st::os
