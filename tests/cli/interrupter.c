/* LD_PRELOAD: sends the process SIGINT once, at what $INTERRUPT_AT names, and makes the file $INTERRUPT_MARK:
 * "change": a change is durable, for a file other than a shard has got its name, or a journal is about to go;
 * "write": it is about to write to standard output;
 * "journal": it is about to look for a journal. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*open_fn)(const char *, int, ...);
typedef int (*openat_fn)(int, const char *, int, ...);

static void interrupt_at(const char *point) {
  static int sent;
  const char *at = getenv("INTERRUPT_AT"), *mark = getenv("INTERRUPT_MARK");
  if (!at || strcmp(at, point) != 0 || sent++) return;
  if (mark) close(((open_fn)dlsym(RTLD_NEXT, "open"))(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  raise(SIGINT);
}

static int renamed(int result, const char *to) {
  const char *slash = strrchr(to, '/'), *name = slash ? slash + 1 : to;
  const int is_for_a_while = name[0] == '.' || strstr(name, ".part");
  if (result == 0 && !is_for_a_while && !strstr(name, "-of-")) interrupt_at("change");
  return result;
}

int rename(const char *from, const char *to) {
  return renamed(((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to), to);
}
int renameat(int from_dir, const char *from, int to_dir, const char *to) {
  int (*next)(int, const char *, int, const char *) = dlsym(RTLD_NEXT, "renameat");
  return renamed(next(from_dir, from, to_dir, to), to);
}
int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
  int (*next)(int, const char *, int, const char *, unsigned) = dlsym(RTLD_NEXT, "renameat2");
  return renamed(next(from_dir, from, to_dir, to, flags), to);
}
int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
  int (*next)(int, const char *, int, const char *, int) = dlsym(RTLD_NEXT, "linkat");
  return renamed(next(from_dir, from, to_dir, to, flags), to);
}
int unlinkat(int folder, const char *path, int flags) {
  if (!(flags & AT_REMOVEDIR)) interrupt_at("change");
  return ((int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat"))(folder, path, flags);
}
ssize_t write(int fd, const void *bytes, size_t n) {
  if (fd == STDOUT_FILENO) interrupt_at("write");
  return ((ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write"))(fd, bytes, n);
}

static int open_in(const char *name, int folder, const char *path, int flags, mode_t mode) {
  if (strstr(path, ".st-journal")) interrupt_at("journal");
  return ((openat_fn)dlsym(RTLD_NEXT, name))(folder, path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = va_arg(more, mode_t);
  va_end(more);
  return open_in("openat", folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = va_arg(more, mode_t);
  va_end(more);
  return open_in("openat64", folder, path, flags, mode);
}
