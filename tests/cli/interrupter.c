/* LD_PRELOAD: sends the process SIGINT when it is about to call what $INTERRUPT_AT names for the first
 * time: "unlinkat", or "write" to standard output. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void interrupt_at(const char *call) {
  static int sent;
  const char *at = getenv("INTERRUPT_AT");
  if (!at || strcmp(at, call) != 0 || sent++) return;
  raise(SIGINT);
}

int unlinkat(int folder, const char *path, int flags) {
  interrupt_at("unlinkat");
  return ((int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat"))(folder, path, flags);
}
ssize_t write(int fd, const void *bytes, size_t n) {
  if (fd == STDOUT_FILENO) interrupt_at("write");
  return ((ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write"))(fd, bytes, n);
}
