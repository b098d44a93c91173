/* A disk that remembers: a FUSE filesystem with one file, `disk`, to put a loop
 * device over. Every write, discard and flush that reaches it is appended to a
 * log, in order. So a test can build what the disk held at any moment, and what
 * it might have held after a power cut then. dm-log-writes does the same, but few
 * kernels of CI machines have it.
 *
 *   disk_recorder IMAGE LOG /dev/fd/N      (N: an open /dev/fuse, mounted by the caller)
 *
 * Beside it lies `mark`: what is written there goes into the log as it is, in
 * the same order. Three marks are commands:
 *   !die N    after N more writes and flushes every one fails with EIO: the
 *             power is cut for good (0: now)
 *   !live     it works again
 *   !forget   empty the log
 *
 * A record is a struct record, then for 'W' and 'M' its `length` bytes. */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <signal.h>
#include <unistd.h>

struct record {
  char kind; /* W rite, Z eros, F lush, M ark */
  char reserved[3];
  uint32_t length;
  uint64_t offset;
};

static int image = -1, journal = -1;
static off_t image_size;
static long lives = -1; /* writes and flushes until it dies; negative: it does not */

static void put(char kind, uint64_t offset, uint32_t length, const void *bytes) {
  struct record r = {kind, {0}, length, offset};
  struct iovec parts[2] = {{&r, sizeof r}, {(void *)bytes, bytes ? length : 0}};
  const ssize_t want = (ssize_t)(sizeof r + parts[1].iov_len);
  if (writev(journal, parts, 2) != want) {
    perror("disk_recorder: cannot write the log");
    _exit(1);
  }
}

static int is_dead(void) {
  if (lives == 0) return 1;
  if (lives > 0) --lives;
  return 0;
}

static int is_disk(const char *path) {
  return strcmp(path, "/disk") == 0;
}
static int is_mark(const char *path) {
  return strcmp(path, "/mark") == 0;
}

static int on_getattr(const char *path, struct stat *out, struct fuse_file_info *file) {
  (void)file;
  memset(out, 0, sizeof *out);
  out->st_nlink = 1;
  if (strcmp(path, "/") == 0) {
    out->st_mode = S_IFDIR | 0755;
    return 0;
  }
  if (!is_disk(path) && !is_mark(path)) return -ENOENT;
  out->st_mode = S_IFREG | 0600;
  out->st_size = is_disk(path) ? image_size : 0;
  return 0;
}

static int on_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *file,
                      enum fuse_readdir_flags flags) {
  (void)offset, (void)file, (void)flags;
  if (strcmp(path, "/") != 0) return -ENOENT;
  for (const char *const *name = (const char *const[]){".", "..", "disk", "mark", NULL}; *name; ++name)
    fill(buffer, *name, NULL, 0, 0);
  return 0;
}

static int on_open(const char *path, struct fuse_file_info *file) {
  if (!is_disk(path) && !is_mark(path)) return -ENOENT;
  file->direct_io = is_mark(path);
  file->keep_cache = is_disk(path);
  return 0;
}

static int on_truncate(const char *path, off_t size, struct fuse_file_info *file) {
  (void)size, (void)file;
  return is_mark(path) ? 0 : -EPERM;
}

static int on_read(const char *path, char *to, size_t n, off_t offset, struct fuse_file_info *file) {
  (void)file;
  if (is_mark(path)) return 0;
  const ssize_t got = pread(image, to, n, offset);
  return got < 0 ? -errno : (int)got;
}

static int on_write(const char *path, const char *bytes, size_t n, off_t offset, struct fuse_file_info *file) {
  (void)file;
  if (is_mark(path)) {
    if (n > 5 && !memcmp(bytes, "!die ", 5))
      lives = atol(bytes + 5);
    else if (n >= 5 && !memcmp(bytes, "!live", 5))
      lives = -1;
    else if (n >= 7 && !memcmp(bytes, "!forget", 7))
      return ftruncate(journal, 0) == 0 ? (int)n : -errno;
    else
      put('M', 0, (uint32_t)n, bytes);
    return (int)n;
  }
  if (is_dead()) return -EIO;
  const ssize_t done = pwrite(image, bytes, n, offset);
  if (done < 0) return -errno;
  put('W', (uint64_t)offset, (uint32_t)done, bytes);
  return (int)done;
}

static int on_fsync(const char *path, int data_only, struct fuse_file_info *file) {
  (void)data_only, (void)file;
  if (is_mark(path)) return 0;
  if (is_dead()) return -EIO;
  put('F', 0, 0, NULL);
  return 0;
}

/* What a loop device makes of a discard and of a write of zeros. */
static int on_fallocate(const char *path, int mode, off_t offset, off_t n, struct fuse_file_info *file) {
  (void)file;
  if (is_mark(path) || !(mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))) return -EOPNOTSUPP;
  if (is_dead()) return -EIO;
  if (fallocate(image, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, n) != 0) return -errno;
  for (const off_t most = 1 << 30; n > 0; offset += most, n -= most)
    put('Z', (uint64_t)offset, (uint32_t)(n < most ? n : most), NULL);
  return 0;
}

static void *on_init(struct fuse_conn_info *connection, struct fuse_config *config) {
  connection->want &= ~(unsigned)FUSE_CAP_WRITEBACK_CACHE; /* a write arrives here before it returns */
  config->attr_timeout = config->entry_timeout = 3600;
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  image = open(argv[1], O_RDWR | O_CLOEXEC);
  journal = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  struct stat s;
  if (image < 0 || journal < 0 || fstat(image, &s) != 0) {
    perror("disk_recorder");
    return 1;
  }
  image_size = s.st_size;
  static const struct fuse_operations operations = {
      .getattr = on_getattr,
      .readdir = on_readdir,
      .open = on_open,
      .truncate = on_truncate,
      .read = on_read,
      .write = on_write,
      .fsync = on_fsync,
      .fallocate = on_fallocate,
      .init = on_init,
  };
  char *arguments[] = {argv[0], "-f", "-s", argv[3], NULL};
  return fuse_main(4, arguments, &operations, NULL);
}
