/* LD_PRELOAD: kills the process when it is about to write to the file named by
 * $KILL_WRITE_TO for the n-th time, n being $KILL_AT: a crash in the middle of
 * applying a committed change. Or, with $KILL_RENAME, when it renames a file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void count(int fd) {
  static int seen;
  char link[64], path[PATH_MAX];
  const char *target = getenv("KILL_WRITE_TO");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (!target || n < 0) return;
  path[n] = 0;
  if (strcmp(path, target) == 0 && ++seen == atoi(getenv("KILL_AT"))) raise(SIGKILL);
}

typedef ssize_t (*pwrite_fn)(int, const void *, size_t, off64_t);

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t offset) {
  count(fd);
  return ((pwrite_fn)dlsym(RTLD_NEXT, "pwrite64"))(fd, bytes, n, offset);
}
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset) {
  return pwrite64(fd, bytes, n, offset);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
  if (getenv("KILL_RENAME")) raise(SIGKILL);
  return ((int (*)(int, const char *, int, const char *))dlsym(RTLD_NEXT, "renameat"))(from_dir, from, to_dir, to);
}
