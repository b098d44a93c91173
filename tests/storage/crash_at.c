/* LD_PRELOAD: something happens to the process at its n-th call that changes a
 * file, so that a loop over n tries every moment there is.
 *
 *   CRASH_AT=n        the calls are counted from 1
 *   CRASH_DO=exit     the process ends before the call (the default)
 *           =exit-after
 *           =tear     it ends after half of the call, to the sector, if it is a pwrite
 *           =cut      the power of the filesystem that CRASH_MOUNT lies on is cut
 *                     before the call, which then goes on, and so does the process
 *           =cut-after
 *           =error    the call does nothing and fails with CRASH_ERRNO
 *           =remove   the folder CRASH_FOLDER is removed with the files in it before the call, which then goes on;
 *                     the process says "removed"
 *           =stop     it is stopped before the call (SIGSTOP), which goes on when somebody wakes it up
 *   CRASH_FILE=path   only writes to this file count
 *   CRASH_BELOW=path  only calls in this folder, and in those in it, count
 *
 * The counted calls: pwrite, fsync, fdatasync, sync_file_range that waits, fallocate, unlinkat, mkdirat,
 * renameat, openat with O_CREAT, and ioctl(FICLONERANGE). */
#undef _FILE_OFFSET_BITS /* pwrite and pwrite64 are both defined here */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/types.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHUTDOWN _IOR('X', 125, __u32) /* EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN */
#define NO_LOG_FLUSH 2u

enum { EXIT_CODE = 9 };

static long calls, at;
static enum { DO_EXIT, DO_EXIT_AFTER, DO_TEAR, DO_CUT, DO_CUT_AFTER, DO_ERROR, DO_REMOVE, DO_STOP } action;
static int mount_fd = -1, error_number = EIO;
static const char *only_file, *only_below, *folder;

__attribute__((constructor)) static void read_environment(void) {
  const char *n = getenv("CRASH_AT"), *what = getenv("CRASH_DO"), *where = getenv("CRASH_MOUNT"),
             *error = getenv("CRASH_ERRNO");
  static const char *const names[] = {"exit", "exit-after", "tear", "cut", "cut-after", "error", "remove", "stop"};
  at = n ? atol(n) : 0;
  for (int i = 0; what && i < (int)(sizeof names / sizeof *names); ++i)
    if (!strcmp(what, names[i])) action = i;
  if (where) mount_fd = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (error) error_number = atoi(error);
  only_file = getenv("CRASH_FILE");
  only_below = getenv("CRASH_BELOW");
  folder = getenv("CRASH_FOLDER");
}

static void cut(void) {
  __u32 how = NO_LOG_FLUSH;
  if (ioctl(mount_fd, SHUTDOWN, &how) != 0) {
    perror("crash_at: cannot cut the power");
    _exit(5);
  }
}

static void remove_folder(void) {
  DIR *dir = opendir(folder);
  const struct dirent *entry;
  while (dir && (entry = readdir(dir))) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    unlink(path);
  }
  if (dir) closedir(dir);
  rmdir(folder);
  dprintf(STDOUT_FILENO, "removed\n");
}

/* Says before which file's call it stops. */
static void stop(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  dprintf(STDOUT_FILENO, "stopped %.*s\n", (int)(n > 0 ? n : 0), path);
  raise(SIGSTOP);
}

static int counts(int fd, int is_write) {
  if (!only_file && !only_below) return 1;
  if (only_file && !is_write) return 0;
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = 0;
  if (only_file) return strcmp(path, only_file) == 0;
  const size_t length = strlen(only_below);
  return strncmp(path, only_below, length) == 0 && (path[length] == 0 || path[length] == '/');
}

/* Is this the call? What is to be done before it is done. */
static int is_the_one(int fd, int is_write) {
  if (!counts(fd, is_write) || ++calls != at) return 0;
  if (action == DO_EXIT) _exit(EXIT_CODE);
  if (action == DO_CUT) cut();
  if (action == DO_REMOVE) remove_folder();
  if (action == DO_STOP) stop(fd);
  return 1;
}

static void after(int is_it) {
  if (!is_it) return;
  const int saved = errno;
  if (action == DO_EXIT_AFTER || action == DO_TEAR) _exit(EXIT_CODE);
  if (action == DO_CUT_AFTER) cut();
  errno = saved;
}

/* The function of that name that this one stands before. */
#define REAL(name)               \
  static __typeof__(&name) real; \
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name);

#define CALL(name, fd, ...)                       \
  REAL(name)                                      \
  const int is_it = is_the_one(fd, 0);            \
  if (is_it && action == DO_ERROR) return fail(); \
  const int result = real(__VA_ARGS__);           \
  after(is_it);                                   \
  return result;

static int fail(void) {
  errno = error_number;
  return -1;
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t offset) {
  REAL(pwrite64)
  const int is_it = is_the_one(fd, 1);
  if (is_it && action == DO_ERROR) return fail();
  if (is_it && action == DO_TEAR) {
    const size_t end = ((size_t)offset + n / 2) / 512 * 512;
    n = end > (size_t)offset ? end - (size_t)offset : 0;
  }
  const ssize_t result = real(fd, bytes, n, offset);
  after(is_it);
  return result;
}
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset) {
  return pwrite64(fd, bytes, n, offset);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t n) {
  CALL(fallocate64, fd, fd, mode, offset, n)
}
int fallocate(int fd, int mode, off_t offset, off_t n) {
  return fallocate64(fd, mode, offset, n);
}
int ioctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void *argument = va_arg(arguments, void *);
  va_end(arguments);
  if (request != FICLONERANGE) {
    REAL(ioctl)
    return real(fd, request, argument);
  }
  CALL(ioctl, fd, fd, request, argument)
}

int fsync(int fd) {
  CALL(fsync, fd, fd)
}
int fdatasync(int fd) {
  CALL(fdatasync, fd, fd)
}
int sync_file_range(int fd, off64_t offset, off64_t n, unsigned flags) {
  if (!(flags & SYNC_FILE_RANGE_WAIT_AFTER)) {
    REAL(sync_file_range)
    return real(fd, offset, n, flags);
  }
  CALL(sync_file_range, fd, fd, offset, n, flags)
}
int unlinkat(int dir, const char *path, int flags) {
  CALL(unlinkat, dir, dir, path, flags)
}
int mkdirat(int dir, const char *path, mode_t mode) {
  CALL(mkdirat, dir, dir, path, mode)
}
int renameat(int from_dir, const char *from, int to_dir, const char *to) {
  CALL(renameat, from_dir, from_dir, from, to_dir, to)
}

int openat64(int dir, const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (!(flags & O_CREAT)) {
    REAL(openat64)
    return real(dir, path, flags);
  }
  CALL(openat64, dir, dir, path, flags, mode)
}
int openat(int dir, const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return openat64(dir, path, flags, mode);
}
