/* LD_PRELOAD: when a file is to be durable, its folder $EXCHANGE is moved, and a link to $EXCHANGE_FOR put there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int fsync(int fd) {
  const char *folder = getenv("EXCHANGE"), *other = getenv("EXCHANGE_FOR");
  char moved[4096];
  if (folder && other) {
    snprintf(moved, sizeof moved, "%s.moved", folder);
    if (rename(folder, moved) != 0 || symlink(other, folder) != 0) abort();
    unsetenv("EXCHANGE");
  }
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
