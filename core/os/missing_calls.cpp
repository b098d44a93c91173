#include "os/missing_calls.h"

#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "base/error.h"
#include "os/missing_call.h"

namespace st::os {
namespace {

// A call of no file (-EBADF) is there.
bool answers(int64_t r) {
  return !is_missing(r);
}

class Folder {
 public:
  Folder(Env &env, const char *path) : env_(env), fd_(env.openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0)) {}
  ~Folder() {
    if (fd_ >= 0) env_.close(fd_);
  }
  Folder(const Folder &) = delete;
  Folder &operator=(const Folder &) = delete;
  int fd() const { return fd_; }

 private:
  Env &env_;
  const int fd_;
};

bool opens_without_links(Env &env) {
  const int fd = env.openat_without_links(AT_FDCWD, "/", O_PATH | O_DIRECTORY);
  if (fd >= 0) env.close(fd);
  return answers(fd);
}

bool locks(Env &env, int fd) {
  struct flock asked = {};
  asked.l_type = F_WRLCK;
  return answers(env.lock(fd, F_OFD_GETLK, &asked));
}

constexpr size_t some_memory = size_t{64} << 10;  // a whole page everywhere

struct Memory {
  explicit Memory(Env &e) : env(e) {
    if (env.mmap(some_memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, &at) < 0) at = nullptr;
  }
  ~Memory() {
    if (at) env.munmap(at, some_memory);
  }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;

  bool populates() const { return at && answers(env.madvise(at, some_memory, MADV_POPULATE_READ)); }
  bool tells_residency() const {
    unsigned char pages[some_memory / 4096] = {};  // no system has smaller pages
    return at && answers(env.mincore(at, some_memory, pages));
  }

  Env &env;
  void *at = nullptr;
};

constexpr std::string_view machine =
#if defined(__x86_64__)
    "x86_64";
#elif defined(__aarch64__)
    "aarch64";
#elif defined(__s390x__)
    "s390x";
#elif defined(__i386__)
    "i686";
#elif defined(__arm__)
    "arm";
#else
    "another machine";
#endif

std::string libc() {
#ifdef __GLIBC__
  return text("glibc ", ::gnu_get_libc_version());
#else
  return "a libc that is not glibc";
#endif
}

}  // namespace

std::vector<OptionalCall> optional_calls(Env &env) {
  const Folder root(env, "/"), self(env, "/proc/self/fd");
  const Memory memory(env);
  struct stat s = {};
  uint64_t number = 0, copy = 0;
  return {
      {"openat2", "paths are walked folder by folder", opens_without_links(env)},
      {"statx", "on storage of several hosts sizes and links may be old", answers(env.fstat_synced(root.fd(), &s))},
      {"getrandom", "names come from /dev/urandom", answers(env.random(&number, sizeof number))},
      {"OFD locks", "files are read, and changing them is refused", locks(env, root.fd())},
      {"copy_file_range", "new files are copied by reads and writes", answers(env.copy_range(-1, -1, 0, 0, 0))},
      {"process_vm_readv", "memory of the caller that is gone raises a signal",
       answers(env.copy_memory(&copy, &number, sizeof copy))},
      {"MADV_POPULATE", "memory is filled page by page", memory.populates()},
      {"mincore", "what lies in memory is not known", memory.tells_residency()},
      {"sync_file_range", "the sync at the end writes all", answers(env.sync_range(-1, 0, 0))},
      {"/proc", "files are opened anew by name, reads past the page cache are not, and who holds a lock is not known",
       self.fd() >= 0},
  };
}

std::string platform(Env &env) {
  std::string kernel;
  char number[64];
  if (const int fd = env.openat(AT_FDCWD, "/proc/sys/kernel/osrelease", O_RDONLY, 0); fd >= 0) {
    const ssize_t n = env.pread(fd, number, sizeof number, 0);
    env.close(fd);
    if (n > 1) kernel = text(std::string_view(number, static_cast<size_t>(n) - 1), " ");  // without its newline
  }
  return text("Linux ", kernel, machine, ", ", libc());
}

}  // namespace st::os
