/* LD_PRELOAD: before a file is opened whose name begins with $COMMIT_BEFORE, the command $COMMIT is run, once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void commit_before(const char *path) {
  const char *before = getenv("COMMIT_BEFORE"), *commit = getenv("COMMIT");
  if (!before || !commit || strncmp(path, before, strlen(before)) != 0) return;
  unsetenv("COMMIT_BEFORE");
  if (system(commit) != 0) abort();
}

/* By both of its names. */
#define OPEN(name)                                                                                     \
  int name(int folder, const char *path, int flags, ...) {                                             \
    va_list rest;                                                                                      \
    va_start(rest, flags);                                                                             \
    const int mode = va_arg(rest, int);                                                                \
    va_end(rest);                                                                                      \
    commit_before(path);                                                                               \
    return ((int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, #name))(folder, path, flags, mode); \
  }

OPEN(openat)
#ifndef openat64
OPEN(openat64)
#endif
