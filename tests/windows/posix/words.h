// Included first in each test of unit/ and crash/, so that it compiles for Windows: what POSIX has and Windows has not.
// Most of it answers ENOSYS. Tests that need it are named in unit/meson.build, and are not run.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "os/env.h"

using st::gid_t;
using st::uid_t;

#define ST_NOT_HERE \
  {                 \
    errno = ENOSYS; \
    return -1;      \
  }

// Processes, users, signals.
#define SIGKILL 9
#define SIGSTOP 19
#define SIGCONT 18
#define WNOHANG 1
#define WIFEXITED(status) ((status) == 0)
#define WEXITSTATUS(status) (status)
#define WIFSIGNALED(status) false
#define WTERMSIG(status) 0
inline int fork() ST_NOT_HERE inline int waitpid(int, int *, int) ST_NOT_HERE inline int kill(int, int) ST_NOT_HERE
    inline int pause() ST_NOT_HERE inline int pipe(int *) ST_NOT_HERE inline int seteuid(uid_t)
ST_NOT_HERE
inline int setegid(gid_t)
ST_NOT_HERE
inline int setgroups(size_t, const gid_t *) ST_NOT_HERE inline int getgroups(int, gid_t *) ST_NOT_HERE
    inline int alarm(unsigned) ST_NOT_HERE inline int fcntl(int, int, ...) ST_NOT_HERE using rlim_t = uint64_t;
struct rlimit {
  rlim_t rlim_cur, rlim_max;
};
#define RLIMIT_NOFILE 0
inline int getrlimit(int, rlimit *) ST_NOT_HERE inline int setrlimit(int, const rlimit *) ST_NOT_HERE inline uid_t
    geteuid() {
  return 1000;
}
inline gid_t getegid() {
  return 1000;
}

// Kinds of files, and what belongs to them.
#ifndef S_IFSOCK
#define S_IFSOCK 0140000
#endif
#define FIEMAP_EXTENT_LAST 1
inline int mkfifo(const char *, unsigned) ST_NOT_HERE inline int mknod(const char *, unsigned, st::dev_t) ST_NOT_HERE
#define LOCK_EX 2
    inline int flock(int, int) ST_NOT_HERE inline int link(const char *, const char *) ST_NOT_HERE
    inline int symlink(const char *, const char *) ST_NOT_HERE inline int chown(const char *, uid_t, gid_t)
ST_NOT_HERE
inline int lchown(const char *, uid_t, gid_t)
ST_NOT_HERE
inline int getxattr(const char *, const char *, void *, size_t)
ST_NOT_HERE
inline int setxattr(const char *, const char *, const void *, size_t, int) ST_NOT_HERE
    inline int removexattr(const char *, const char *) ST_NOT_HERE
// Memory that nobody may touch.
#define PROT_NONE 0
#define MAP_FAILED (reinterpret_cast<void *>(-1))
    inline void *mmap(void *, size_t, int, int, int, int64_t) {
  errno = ENOSYS;
  return MAP_FAILED;
}
inline int munmap(void *, size_t)
ST_NOT_HERE
inline int mprotect(void *, size_t, int) ST_NOT_HERE

    // What the system has by another name.
    inline int setenv(const char *name, const char *value, int) {
  return ::_putenv_s(name, value);
}
inline int unsetenv(const char *name) {
  return ::_putenv_s(name, "");
}
inline const void *memmem(const void *in, size_t n, const void *what, size_t m) {
  const size_t at = std::string_view(static_cast<const char *>(in), n).find({static_cast<const char *>(what), m});
  return at == std::string_view::npos ? nullptr : static_cast<const char *>(in) + at;
}
inline int stat(const char *path, struct st::stat *out) {
  const int r = st::os::Env::posix().fstatat(AT_FDCWD, path, out, 0);
  if (r < 0) errno = -r;
  return r < 0 ? -1 : 0;
}
inline int lstat(const char *path, struct st::stat *out) {
  const int r = st::os::Env::posix().fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
  if (r < 0) errno = -r;
  return r < 0 ? -1 : 0;
}

inline int fstat(int fd, struct st::stat *out) {
  const int r = st::os::Env::posix().fstat(fd, out);
  if (r < 0) errno = -r;
  return r < 0 ? -1 : 0;
}
inline int statfs(const char *, struct st::statfs *) ST_NOT_HERE

    namespace st::os {
  int path_of_handle(void *handle, std::string *out);
}
// Only links in /proc/self/fd can be read.
inline ssize_t readlink(const char *path, char *out, size_t n) {
  constexpr std::string_view folder = "/proc/self/fd/";
  std::string target;
  if (!std::string_view(path).starts_with(folder)) ST_NOT_HERE
  void *handle = reinterpret_cast<void *>(static_cast<intptr_t>(std::atoi(path + folder.size())));
  if (const int r = st::os::path_of_handle(handle, &target); r < 0) {
    errno = -r;
    return -1;
  }
  return static_cast<ssize_t>(target.copy(out, n));
}
