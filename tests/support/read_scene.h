// A file of pseudo-random bytes for bulk reads. And an Env for many threads in
// front of the kernel's, whose reads can be failed, shortened and watched.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "fault_env.h"
#include "os/process.h"
#include "read/bulk.h"
#include "test_files.h"

namespace st::testing {

class ReadEnv : public FaultEnv {
 public:
  ReadEnv() : FaultEnv(os::Env::posix()) {}

  // Before each read, one at a time: 0, -errno or short_io.
  std::function<int(int fd, uint64_t offset)> on_read;
  // Before each open: 0 or -errno.
  std::function<int(const char *path, int flags)> on_open;
  // What the kernel says is in memory, if it is asked for a place of this file: 0, 1 or -errno; nullopt: the truth.
  std::function<std::optional<int>(size_t question)> on_mincore;
  std::optional<int> on_cached;  // what is answered to a read that must not wait for the disk; nullopt: the truth
  std::map<std::string, std::string> environment;
  std::atomic<uint64_t> generation = 0;
  unsigned processors = 2;
  uid_t user = os::Env::posix().geteuid();
  std::atomic<size_t> reads = 0;
  size_t questions = 0;  // of mincore
  struct Advice {
    uint64_t offset, n;
    int advice;
  };
  std::vector<Advice> advices;

  ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override {
    const int answer = ask_read(fd, offset);
    if (answer < 0) return answer;
    return os::Env::posix().pread(fd, buffer, answer == short_io ? (n + 1) / 2 : n, offset);
  }
  ssize_t preadv(int fd, const struct iovec *parts, int count, uint64_t offset) override {
    const int answer = ask_read(fd, offset);
    if (answer < 0) return answer;
    if (answer != short_io) return os::Env::posix().preadv(fd, parts, count, offset);
    const struct iovec half = {parts[0].iov_base, (parts[0].iov_len + 1) / 2};
    return os::Env::posix().preadv(fd, &half, 1, offset);
  }
  int openat(int dir, const char *path, int flags, mode_t mode) override {
    const int answer = on_open ? on_open(path, flags) : 0;
    return answer < 0 ? answer : os::Env::posix().openat(dir, path, flags, mode);
  }
  int close(int fd) override { return os::Env::posix().close(fd); }
  int fstat(int fd, struct stat *out) override { return os::Env::posix().fstat(fd, out); }
  int mmap(size_t n, int protection, int flags, int fd, void **out) override {
    return os::Env::posix().mmap(n, protection, flags, fd, out);
  }
  int munmap(void *address, size_t n) override { return os::Env::posix().munmap(address, n); }
  int mincore(void *address, size_t n, unsigned char *out) override {
    const auto answer = on_mincore ? on_mincore(questions++) : std::nullopt;
    if (!answer) return os::Env::posix().mincore(address, n, out);
    if (*answer >= 0) std::memset(out, *answer, (n + 4095) / 4096);
    return std::min(*answer, 0);
  }
  ssize_t pread_cached(int fd, void *buffer, size_t n, uint64_t offset) override {
    if (on_cached) return *on_cached;
    return is_on_disk_alone(fd, offset) ? -EAGAIN : os::Env::posix().pread_cached(fd, buffer, n, offset);
  }
  int madvise(void *address, size_t n, int advice) override { return os::Env::posix().madvise(address, n, advice); }
  int fadvise(int fd, uint64_t offset, uint64_t n, int advice) override {
    std::lock_guard lock(mutex_);
    advices.push_back({offset, n, advice});
    return os::Env::posix().fadvise(fd, offset, n, advice);
  }
  uint64_t fork_generation() override { return generation; }
  unsigned cpus() override { return processors; }
  uid_t geteuid() override { return user; }
  const char *getenv(const char *name) override {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  }

 private:
  // The kernel begins to read what is not in memory as it answers, and where the disk is faster it answers that all is.
  static bool is_on_disk_alone(int fd, uint64_t offset) {
    os::Env &system = os::Env::posix();
    const size_t page = os::page_size(), at = offset / page * page;
    void *mapped = nullptr;
    if (system.mmap(at + page, PROT_READ, MAP_SHARED, fd, &mapped) < 0) return false;
    unsigned char is_there = 1;
    const int r = system.mincore(static_cast<std::byte *>(mapped) + at, page, &is_there);
    system.munmap(mapped, at + page);
    return r == 0 && (is_there & 1) == 0;
  }
  int ask_read(int fd, uint64_t offset) {
    ++reads;
    std::lock_guard lock(mutex_);
    return on_read ? on_read(fd, offset) : 0;
  }
  std::mutex mutex_;
};

class ReadScene : public ::testing::Test {
 protected:
  static constexpr size_t KiB = 1024, MiB = 1024 * KiB;

  explicit ReadScene(size_t size = 2 * MiB + 1234) : bytes(pattern(size, 9)) {
    put_bytes(path, bytes);
    auto opened = os::File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
    EXPECT_TRUE(is_ok(opened));
    file = std::move(*opened);
  }

  static read::Strategy strategy(uint32_t threads, bool own_range, bool direct = false) {
    read::Strategy s;
    s.prefetch = read::Prefetch::parallel;
    s.threads = threads;
    s.own_range = own_range;
    s.direct = direct ? read::Direct::on : read::Direct::off;
    s.block = 64 * KiB;
    s.gap = 4 * KiB;
    return s;
  }
  // Stretches of the file, and room for each with a rim that must stay as it is.
  struct Wanted {
    uint64_t offset, length;
    std::shared_ptr<std::string> room;  // stays where it is when this is copied
    size_t at;                          // in room
  };
  static constexpr size_t rim = 64;
  Wanted want(uint64_t offset, uint64_t length, uint64_t misaligned) const {
    Wanted w{offset, length, std::make_shared<std::string>(length + 2 * rim + 2 * 4096, '#'), rim};
    // So that the destination lies `misaligned` bytes away from where O_DIRECT could write it in place.
    const auto address = reinterpret_cast<uintptr_t>(w.room->data()) + rim;
    w.at += (offset + misaligned + 4096 - address % 4096) % 4096;
    return w;
  }
  static std::vector<read::Piece> pieces_of(std::vector<Wanted> &wanted) {
    std::vector<read::Piece> pieces;
    for (Wanted &w : wanted)
      pieces.push_back({w.offset, w.length, reinterpret_cast<std::byte *>(w.room->data()) + w.at});
    return pieces;
  }
  void expect_read(const std::vector<Wanted> &wanted) const {
    for (const Wanted &w : wanted) {
      ASSERT_TRUE(same_bytes(std::string_view(*w.room).substr(w.at, w.length),
                             std::string_view(bytes).substr(w.offset, w.length)))
          << w.offset << " + " << w.length;
      ASSERT_EQ(w.room->substr(w.at - rim, rim), std::string(rim, '#')) << w.offset;
      ASSERT_EQ(w.room->substr(w.at + w.length, rim), std::string(rim, '#')) << w.offset;
    }
  }
  // Pieces of all sizes, that overlap and leave gaps, and several times the file
  // in sum, as a thread is only used for megabytes.
  std::vector<Wanted> random_pieces(unsigned seed, size_t repeats = 6) const {
    std::mt19937 random(seed);
    std::vector<Wanted> wanted;
    for (size_t i = 0; i < repeats; ++i) wanted.push_back(want(random() % 3, bytes.size() - 3, random() % 2));
    for (int i = 0; i < 150; ++i) {
      const uint64_t offset = random() % bytes.size();
      const uint64_t most = random() % 3 ? 5000 : 200000;
      wanted.push_back(want(offset, std::min<uint64_t>(random() % most, bytes.size() - offset), random() % 2));
    }
    return wanted;
  }
  Result<read::BulkDone> read(std::vector<Wanted> &wanted, const read::Strategy &how, uint64_t memory_limit = 0,
                              const Control &control = {}) {
    return read::read_pieces(file, pieces_of(wanted), how, memory_limit, control);
  }

  const TempDir dir;
  const std::string path = dir / "f";
  const std::string bytes;
  ReadEnv env;
  os::File file;
};

}  // namespace st::testing
