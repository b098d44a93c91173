/* A filesystem that remembers what it was asked: FUSE, read only, passes a
 * folder through, and writes each open, read and release of a file into a
 * mapped log. So a test can tell what reached the storage, which the page cache
 * and the kernel's readahead hide from everybody above. Many threads, as real
 * clients have; it never reorders nor merges requests.
 *
 *   record_fs [OPTION...] SOURCE LOG /dev/fd/N     (N: an open /dev/fuse, mounted by the caller)
 *     --direct-io   no page cache: a shared mapping answers ENODEV, and reads come as they were made
 *     --forget      every open drops what is cached of the file, as libfuse does unless told otherwise
 *     --serial      the reads of one handle wait for each other, as gcsfuse's do
 *     --in-order    one request at a time, so that the log has the order in which the kernel sent them
 *     --max-read N  no request is larger (the caller mounts with the same max_read) */
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { OPEN = 1, READ, RELEASE };

/* Shared with the test: the layout is also in record_fs.py. */
struct record {
  uint32_t kind;
  uint32_t thread; /* who asked; 0 where the kernel does not say */
  uint64_t handle; /* number of the open, from 1 */
  uint64_t offset, size;
};

struct log {
  uint32_t latency_us; /* of every read; set by the test at any time */
  uint32_t capacity;   /* records that there is room for; later ones are counted only */
  _Atomic uint64_t count;
  struct record records[];
};

static struct log *log_;
static char *source;
static int direct_io, forget, serial, in_order;
static unsigned max_read;
static _Atomic uint64_t handles;

struct opened {
  int fd;
  uint64_t number;
  pthread_mutex_t turn;
};

static struct opened *of(struct fuse_file_info *file) {
  return (struct opened *)(uintptr_t)file->fh;
}

static const char *at(const char *path) {
  return path[1] ? path + 1 : ".";
} /* the source is the working directory */

static void note(uint32_t kind, uint64_t handle, uint64_t offset, uint64_t size) {
  const uint64_t i = atomic_fetch_add(&log_->count, 1);
  if (i < log_->capacity)
    log_->records[i] = (struct record){kind, (uint32_t)fuse_get_context()->pid, handle, offset, size};
}

static int on_getattr(const char *path, struct stat *out, struct fuse_file_info *file) {
  const int failed = file ? fstat(of(file)->fd, out) : lstat(at(path), out);
  return failed ? -errno : 0;
}

static int on_open(const char *path, struct fuse_file_info *file) {
  const int fd = open(at(path), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -errno;
  struct opened *o = malloc(sizeof *o);
  if (!o) abort();
  o->fd = fd;
  o->number = atomic_fetch_add(&handles, 1) + 1;
  pthread_mutex_init(&o->turn, NULL);
  file->fh = (uintptr_t)o;
  file->direct_io = direct_io != 0;
  file->keep_cache = !forget;
  note(OPEN, o->number, 0, 0);
  return 0;
}

static int on_release(const char *path, struct fuse_file_info *file) {
  (void)path;
  struct opened *o = of(file);
  note(RELEASE, o->number, 0, 0);
  close(o->fd);
  pthread_mutex_destroy(&o->turn);
  free(o);
  return 0;
}

static int on_read(const char *path, char *to, size_t n, off_t offset, struct fuse_file_info *file) {
  (void)path;
  struct opened *o = of(file);
  if (serial) pthread_mutex_lock(&o->turn);
  note(READ, o->number, (uint64_t)offset, n);
  const uint32_t us = log_->latency_us;
  if (us) nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000L}, NULL);
  const ssize_t got = pread(o->fd, to, n, offset);
  const int error = errno;
  if (serial) pthread_mutex_unlock(&o->turn);
  return got < 0 ? -error : (int)got;
}

static int on_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *file,
                      enum fuse_readdir_flags flags) {
  (void)offset, (void)file, (void)flags;
  DIR *d = opendir(at(path));
  if (!d) return -errno;
  for (struct dirent *e; (e = readdir(d));) fill(buffer, e->d_name, NULL, 0, 0);
  closedir(d);
  return 0;
}

static int on_statfs(const char *path, struct statvfs *out) {
  return statvfs(at(path), out) ? -errno : 0;
}

static void *on_init(struct fuse_conn_info *connection, struct fuse_config *config) {
  if (max_read) connection->max_read = max_read;
  /* Else the kernel, with many readers, puts some of its readahead off, and asks out of order. */
  connection->max_background = connection->congestion_threshold = 1000;
  config->use_ino = 1;
  config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
  config->nullpath_ok = 1;
  if (chdir(source) != 0) abort(); /* here, as fuse_main goes to "/" */
  return NULL;
}

int main(int argc, char **argv) {
  static const struct fuse_operations operations = {
      .getattr = on_getattr,
      .open = on_open,
      .release = on_release,
      .read = on_read,
      .readdir = on_readdir,
      .statfs = on_statfs,
      .init = on_init,
  };
  int i = 1;
  for (; i < argc && !strncmp(argv[i], "--", 2); ++i) {
    if (!strcmp(argv[i], "--direct-io"))
      direct_io = 1;
    else if (!strcmp(argv[i], "--forget"))
      forget = 1;
    else if (!strcmp(argv[i], "--serial"))
      serial = 1;
    else if (!strcmp(argv[i], "--in-order"))
      in_order = 1;
    else if (!strcmp(argv[i], "--max-read") && i + 1 < argc)
      max_read = (unsigned)atoi(argv[++i]);
    else
      return 2;
  }
  if (argc - i != 3) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  source = argv[i];
  const int fd = open(argv[i + 1], O_RDWR | O_CLOEXEC);
  struct stat s;
  log_ =
      fd < 0 || fstat(fd, &s) ? MAP_FAILED : mmap(NULL, (size_t)s.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (log_ == MAP_FAILED || source[0] != '/') {
    perror("record_fs");
    return 1;
  }
  log_->capacity = (uint32_t)(((size_t)s.st_size - sizeof *log_) / sizeof log_->records[0]);
  char options[32];
  snprintf(options, sizeof options, max_read ? "max_read=%u" : "rw", max_read);
  char *arguments[] = {argv[0], "-f", "-o", options, argv[i + 2], in_order ? "-s" : NULL, NULL};
  return fuse_main(5 + in_order, arguments, &operations, NULL);
}
