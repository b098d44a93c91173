#include "stops.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace st::testing {
namespace {

std::function<void(Point)> &watcher() {
  static std::function<void(Point)> w;
  return w;
}

// How far the commit or the recovery on this thread is.
thread_local enum { before_commit, committed, retiring } stage = before_commit;

enum class Kind { other, journal, data };

Kind kind_of(int fd) {
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  char path[PATH_MAX];
  const ssize_t n = ::readlink(link.c_str(), path, sizeof path);
  const std::string_view name(path, n > 0 ? static_cast<size_t>(n) : 0);
  if (name.find(".st-journal/") != name.npos) return Kind::journal;
  return name.ends_with(".safetensors") ? Kind::data : Kind::other;
}

bool is_zero(const void *bytes, size_t n) {
  const auto *b = static_cast<const unsigned char *>(bytes);
  return n == 0 || (b[0] == 0 && std::memcmp(b, b + 1, n - 1) == 0);
}

}  // namespace

void watch(std::function<void(Point)> w) {
  watcher() = std::move(w);
}

void before_write(int fd, const void *bytes, size_t n, off_t offset) {
  if (!watcher()) return;
  const Kind kind = kind_of(fd);
  if (kind == Kind::data) {
    stage = committed;
    watcher()(Point::data_write);
  } else if (kind == Kind::journal && offset == 0) {
    if (!is_zero(bytes, n)) {
      watcher()(Point::commit_record);
      stage = committed;
    } else if (stage == committed) {
      watcher()(Point::invalidate);
      stage = retiring;
    }
  }
}

void around_read(int fd, Point point) {
  if (watcher() && kind_of(fd) == Kind::journal) watcher()(point);
}

void before_sync(int fd) {
  if (!watcher()) return;
  const Kind kind = kind_of(fd);
  if (kind == Kind::other) return;
  if (kind == Kind::data) return watcher()(Point::data_sync);
  watcher()(stage == before_commit ? Point::payload_sync
            : stage == committed   ? Point::commit_sync
                                   : Point::retire_sync);
  if (stage == retiring) stage = before_commit;
}

}  // namespace st::testing

// With 64-bit offsets these are the symbols pwrite64 and pread64, which is what libst calls.
extern "C" {

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset) {
  st::testing::before_write(fd, bytes, n, offset);
  return ::syscall(SYS_pwrite64, fd, bytes, n, offset);
}

ssize_t pread(int fd, void *bytes, size_t n, off_t offset) {
  st::testing::around_read(fd, st::testing::Point::journal_read);
  const ssize_t got = ::syscall(SYS_pread64, fd, bytes, n, offset);
  st::testing::around_read(fd, st::testing::Point::journal_was_read);
  return got;
}

int fdatasync(int fd) {
  st::testing::before_sync(fd);
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}
}
